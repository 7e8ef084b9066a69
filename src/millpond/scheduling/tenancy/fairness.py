"""Decayed weighted fair share: who has had least of late goes first.

Usage of each account (a queue with all below it, or a user within a leaf) decays with a half-life, and its share is its
dominant one: the largest of its parts of the cluster's GPUs, CPUs and memory (dominant resource fairness: Ghodsi et
al., NSDI'11; decay as in Slurm's multifactor priority).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from millpond.model.resources import Amount

_RESOURCES = 3
_LOG_2 = math.log(2.0)


class _Account:
    """One running total.

    Attributes:
        decayed: as of ``since``; from then on it has used ``rate``.
        asked: what was asked for last, which is asked for again and again at one instant: as of ``asked_at``.
    """

    __slots__ = ("asked", "asked_at", "decayed", "rate", "since")

    def __init__(self, at: float) -> None:
        self.rate = [0.0] * _RESOURCES
        self.decayed = [0.0] * _RESOURCES
        self.since = at
        self.asked: list[float] = []
        self.asked_at = -math.inf


class DecayedUsage:
    """Running totals of resource-seconds that lose half of their weight every half-life.

    Args:
        half_life_s: seconds after which past usage counts half.
    """

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._accounts: dict[str, _Account] = {}

    @property
    def accounts(self) -> int:
        """How many accounts have ever used anything."""
        return len(self._accounts)

    def change(self, names: Iterable[str], amount: Amount, sign: int, now: float) -> None:
        """From ``now`` on these accounts use ``amount`` more each (or, with ``sign`` -1, less)."""
        gpu, cpu, memory = sign * amount.gpu_milli, sign * amount.cpu_milli, sign * amount.memory_mib
        accounts = self._accounts
        for name in names:
            account = accounts.get(name)
            if account is None:
                account = accounts[name] = _Account(now)
            if now > account.since:
                account.decayed, account.since = self._decayed(account, now), now
            account.asked_at = -math.inf
            rate = account.rate
            rate[0] += gpu
            rate[1] += cpu
            rate[2] += memory

    def dominant_shares(self, names: Iterable[str], capacity: Amount, now: float) -> list[float]:
        """Each account's largest part of the cluster: recent average use over capacity, about 0..1."""
        gpus, cpus, memories = (
            total or math.inf for total in (capacity.gpu_milli, capacity.cpu_milli, capacity.memory_mib)
        )
        found = []
        for name in names:
            account = self._accounts.get(name)
            if account is None:
                found.append(0.0)
                continue
            gpu, cpu, memory = self._decayed(account, now)
            found.append(max(gpu / gpus, cpu / cpus, memory / memories) * _LOG_2 / self.half_life_s)
        return found

    def served_s(
        self, name: str, capacity: Amount, now: float, ahead_s: float = 0.0, more: Sequence[float] = (0.0, 0.0, 0.0)
    ) -> float:
        """What an account has had, and will have soon, in seconds of the whole cluster by its dominant resource.

        Args:
            ahead_s: all that it holds counts as if it had been held for so much longer.
            more: GPU milli, CPU milli and memory MiB that it is about to hold too.
        """
        account = self._accounts.get(name)
        if account is None:
            account = _Account(now)
        totals = (capacity.gpu_milli, capacity.cpu_milli, capacity.memory_mib)
        used = zip(self._decayed(account, now), account.rate, more, totals, strict=True)
        return max((past + (rate + soon) * ahead_s) / total if total else 0.0 for past, rate, soon, total in used)

    def change_half_life(self, seconds: float, now: float) -> None:
        """From ``now`` on usage decays so; the shares of that instant stay as they are."""
        longer = seconds / self.half_life_s
        for account in self._accounts.values():
            account.decayed = [total * longer for total in self._decayed(account, now)]
            account.since = max(account.since, now)
            account.asked_at = -math.inf
        self.half_life_s = seconds

    def skip(self, seconds: float) -> None:
        """So many of the seconds up to now have not passed: nothing was used in them, and nothing decayed."""
        for account in self._accounts.values():
            account.since += seconds
            account.asked_at = -math.inf

    def _decayed(self, account: _Account, now: float) -> list[float]:
        """The decayed totals as of ``now``. Asking changes none: the rounding must not depend on who asks when."""
        if account.asked_at == now:
            return account.asked
        elapsed = now - account.since
        if elapsed <= 0:
            return account.decayed
        kept = 0.5 ** (elapsed / self.half_life_s)
        gained = (1.0 - kept) * self.half_life_s / _LOG_2
        gpu, cpu, memory = account.decayed
        gpu_rate, cpu_rate, memory_rate = account.rate
        account.asked_at = now
        account.asked = [
            gpu * kept + gpu_rate * gained,
            cpu * kept + cpu_rate * gained,
            memory * kept + memory_rate * gained,
        ]
        return account.asked

    def snapshot(self) -> dict[str, list[float]]:
        """Plain data: per account three rates, three decayed totals and the instant they hold for."""
        return {name: [*a.rate, *a.decayed, a.since] for name, a in self._accounts.items()}

    def restore(self, plain: dict[str, list[float]]) -> None:
        """Take over what ``snapshot`` returned."""
        self._accounts = {}
        for name, values in plain.items():
            account = self._accounts[name] = _Account(values[6])
            account.rate, account.decayed = list(values[0:3]), list(values[3:6])
