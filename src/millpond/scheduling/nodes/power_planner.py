"""Which nodes to switch off and on: idle ones beyond a spare go, and what waiting work needs is woken at once.

Demand swings. What was needed at any time within the idle time stays, whichever nodes had work then, so that a peak
that comes back does not wake again what has just gone.

The planner is pure: time and what it sees are arguments, and it changes nothing. The server carries its plans out by
hooks, and each step becomes an event of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.model.hardware.node_power import RETRY_S, NodePower, NodePowerState, PowerSavingRule


@dataclass(frozen=True, slots=True)
class PowerCandidate:
    """What the planner knows of a node.

    Attributes:
        is_empty: nothing holds anything of it.
        takes_work: it is on, open and well.
        power: as the core has it; None: it has always been on.
    """

    name: str
    pool: str
    is_empty: bool
    takes_work: bool
    power: NodePower | None


@dataclass(frozen=True, slots=True)
class PowerStep:
    """One node to be switched.

    Attributes:
        on: or off.
        why: in words.
    """

    node: str
    on: bool
    why: str


class PowerPlanner:
    """Remembers since when nodes have been empty and on, and how many were needed of late."""

    def __init__(self) -> None:
        self._needs: dict[str, deque[tuple[float, int]]] = {}
        self._empty_since: dict[str, float] = {}
        self._seen_on_since: dict[str, float] = {}

    def plan(
        self,
        now: float,
        nodes: Sequence[PowerCandidate],
        wanted: Mapping[str, str],
        rules: Mapping[str, PowerSavingRule],
    ) -> list[PowerStep]:
        """What to switch now.

        Args:
            wanted: nodes that are off, or on their way, by which a waiting job would fit, and that job.
            rules: by pool; nodes of others are never switched.
        """
        self._note(now, nodes)
        steps: list[PowerStep] = []
        for pool, rule in rules.items():
            there = [node for node in nodes if node.pool == pool]
            steps += self._steps(now, pool, there, (wanted, rule))
        return steps

    def _note(self, now: float, nodes: Sequence[PowerCandidate]) -> None:
        idle = {node.name for node in nodes if node.is_empty and node.takes_work}
        self._empty_since = {name: self._empty_since.get(name, now) for name in idle}
        on = {node.name for node in nodes if node.power is None or not node.power.is_closed}
        self._seen_on_since = {name: self._seen_on_since.get(name, now) for name in on}

    def _steps(
        self,
        now: float,
        pool: str,
        nodes: Sequence[PowerCandidate],
        by: tuple[Mapping[str, str], PowerSavingRule],
    ) -> list[PowerStep]:
        wanted, rule = by
        sleeping = [node for node in nodes if _can_wake(node, now)]
        needed = [node.name for node in sleeping if node.name in wanted]
        steps = [PowerStep(name, True, f"{wanted[name]} waits for it") for name in needed]
        waiting_for = [node for node in nodes if node.name in wanted]
        idle = [node for node in nodes if node.name in self._empty_since]
        booting = [node for node in nodes if _is(node, NodePowerState.BOOTING) and node.name not in wanted]
        in_use = sum(not node.is_empty for node in nodes)
        missing = rule.spare - len(idle) - len(booting)
        if missing > 0:
            rested = [node for node in sleeping if node.name not in wanted and _since(node, now) >= rule.least_off_s]
            why = f"too few empty nodes are on, of {rule.spare} that should be"
            steps += [PowerStep(node.name, True, why) for node in rested[:missing]]
        most_needed = self._most_needed((now, in_use + len(waiting_for) + rule.spare), pool, rule.idle_s)
        surplus = in_use + len(idle) + len(booting) - most_needed
        if surplus <= 0 or waiting_for:
            return steps
        due = sorted(
            (self._empty_since[node.name], node.name)
            for node in idle
            if now - self._empty_since[node.name] >= rule.idle_s
            and now - self._seen_on_since[node.name] >= rule.least_on_s
            and not _failed_lately(node, now)
        )
        return steps + [PowerStep(name, False, "it is empty") for _, name in due[:surplus]]

    def _most_needed(self, latest: tuple[float, int], pool: str, span_s: float) -> int:
        """The most nodes, with the spare ones, that were needed in the span until the latest instant."""
        kept = self._needs.setdefault(pool, deque())
        while kept and kept[-1][1] <= latest[1]:
            kept.pop()
        kept.append(latest)
        while kept[0][0] < latest[0] - span_s:
            kept.popleft()
        return kept[0][1]


def _is(node: PowerCandidate, state: NodePowerState) -> bool:
    return node.power is not None and node.power.state is state


def _since(node: PowerCandidate, now: float) -> float:
    return now - node.power.since if node.power is not None else 0.0


def _can_wake(node: PowerCandidate, now: float) -> bool:
    """Whether it is down for sure: one that is still going down would be switched off after it was switched on."""
    if node.power is None:
        return False
    if node.power.state is NodePowerState.FAILED:
        return now - node.power.since >= RETRY_S
    return node.power.state is NodePowerState.OFF and node.power.is_gone


def _failed_lately(node: PowerCandidate, now: float) -> bool:
    return node.power is not None and node.power.failed_lately(now)
