"""How long jobs waited for their first start since they could start, by group and number of cards; what is not known is
shown as such."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.model.resources import CARD_MILLI
from millpond.node.host.clocks import WallClock
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.roles import Caller
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.store.statistics.start_waits import StartWait, StartWaitStore, WaitFilter, wait_of
from millpond.server.views.reports.usage import usage_share
from millpond.specs.api.reports.usage import WaitFigure, WaitingJob, WaitingJobList, WaitReport, WaitRow

STARTED: Final = "started"
GAVE_UP: Final = "gave up"
WAITING: Final = "waiting"
UNKNOWN: Final = "unknown"
_SIZE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

_Known = tuple[str, float]
"""How a wait ended, and how long it was in seconds."""


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """Which waits are asked for.

    Attributes:
        since, until: the jobs could start from an instant between these.
        only: by column (``user``, ``group``, ``queue``), the value that counts alone.
        cards: only jobs of this size, as ``WaitRow.cards`` has it; empty: of any.
    """

    since: float
    until: float
    only: Mapping[str, str] = field(default_factory=dict)
    cards: str = ""


class WaitReports:
    """Adds up the waits of the jobs whose usage a caller may see."""

    def __init__(self, store: StartWaitStore, job_cache: JobCache, accounts: Accounts, clock: WallClock) -> None:
        self._store = store
        self._job_cache = job_cache
        self._accounts = accounts
        self._clock = clock

    async def report(self, by: str, asked: WaitRequest, caller: Caller) -> WaitReport:
        """Waits by group and number of cards.

        Args:
            by: a ``specs.api.reports.usage.WaitGrouping``.
        """
        return await asyncio.to_thread(self._report, by, asked, self._filter(asked, caller))

    async def jobs(self, asked: WaitRequest, caller: Caller, limit: int) -> WaitingJobList:
        """The jobs behind a row, those that waited longest first."""
        wanted = self._filter(asked, caller)
        ended = await asyncio.to_thread(self._store.longest, wanted, limit + 1)
        now = self._clock()
        found = [_shown(wait, *_known(wait, now)) for wait in ended]
        found += [_shown(wait, *known) for wait, known in self._live(wanted)]
        found.sort(key=lambda job: (-(math.inf if job.waited_s is None else job.waited_s), job.job))
        return WaitingJobList(jobs=found[:limit], truncated=len(found) > limit)

    def _filter(self, asked: WaitRequest, caller: Caller) -> WaitFilter:
        size = _milli_of(asked.cards) if asked.cards else None
        return WaitFilter(asked.since, asked.until, usage_share(self._accounts, caller), asked.only, size)

    def _live(self, wanted: WaitFilter) -> Iterator[tuple[StartWait, _Known]]:
        """Those of jobs that have not ended."""
        now = self._clock()
        for info in self._job_cache.newest_first():
            wait = wait_of(info)
            # A service that waits for its first request waits for no cards; of arrays, their members count.
            counts = info.array is None and not (info.scaled_to_zero and info.first_started_at is None)
            if counts and wait is not None and wanted.matches(wait):
                is_unknown = info.apart and wait.started_at is None
                yield wait, (UNKNOWN, 0.0) if is_unknown else _known(wait, now)

    def _report(self, by: str, asked: WaitRequest, wanted: WaitFilter) -> WaitReport:
        groups: dict[tuple[str, int], _Waits] = {}
        for name, milli, seconds, is_cut in self._store.lengths(by, wanted):
            key = name, milli
            waits = groups.get(key)
            if waits is None:
                waits = groups[key] = _Waits()
            waits.known.append((seconds if seconds > 0 else 0.0, is_cut))
        for wait, known in self._live(wanted):
            groups.setdefault((getattr(wait, by), wait.gpu_milli), _Waits()).add(*known)
        classes: dict[tuple[str, str], _Waits] = {}
        everything = _Waits()
        for (name, milli), waits in groups.items():
            classes.setdefault((name, card_class(milli)), _Waits()).extend(waits)
            everything.extend(waits)
        ordered = sorted(classes, key=lambda key: (key[0], _milli_of(key[1])))
        rows = [classes[name, cards].row(name, cards) for name, cards in ordered]
        total = everything.row("", asked.cards)
        return WaitReport(by=by, since=asked.since, until=asked.until, rows=rows, total=total)


@dataclass(slots=True)
class _Waits:
    """The waits of some jobs.

    Attributes:
        known: their seconds, and whether they were cut off: the job has not started.
        waiting: how many of these go on.
        unknown: of how many more jobs it is not known.
    """

    known: list[tuple[float, bool]] = field(default_factory=list)
    waiting: int = 0
    unknown: int = 0

    def add(self, outcome: str, seconds: float) -> None:
        """One more."""
        if outcome == UNKNOWN:
            self.unknown += 1
            return
        self.known.append((seconds, outcome != STARTED))
        self.waiting += outcome == WAITING

    def extend(self, others: _Waits) -> None:
        """Some more."""
        self.known += others.known
        self.waiting += others.waiting
        self.unknown += others.unknown

    def row(self, name: str, cards: str) -> WaitRow:
        """All of them together."""
        self.known.sort()
        cut = sum(is_cut for _, is_cut in self.known)
        return WaitRow(
            name=name,
            cards=cards,
            jobs=len(self.known) + self.unknown,
            started=len(self.known) - cut,
            gave_up=cut - self.waiting,
            waiting=self.waiting,
            unknown=self.unknown,
            p50=_percentile(self.known, 50),
            p95=_percentile(self.known, 95),
        )


def card_class(gpu_milli: int) -> str:
    """The size of a job: ``0``, ``part``, or its cards, from three on in spans up to a power of two."""
    if gpu_milli < CARD_MILLI:
        return "part" if gpu_milli else "0"
    cards = -(-gpu_milli // CARD_MILLI)
    if cards <= 2:
        return str(cards)
    upper = 1 << (cards - 1).bit_length()
    return f"{upper // 2 + 1}-{upper}"


def _milli_of(cards: str) -> tuple[int, int]:
    """The least and the most that jobs of a size ask for; of a word that is none, what none asks for."""
    if cards == "part":
        return 1, CARD_MILLI - 1
    found = _SIZE.fullmatch(cards)
    if found is None:
        return 1, 0
    least, most = int(found[1]), int(found[2] or found[1])
    return (least - 1) * CARD_MILLI + 1 if least > 1 else least * CARD_MILLI, most * CARD_MILLI


def _known(wait: StartWait, now: float) -> _Known:
    if wait.started_at is not None:
        return STARTED, max(wait.started_at - wait.eligible_at, 0.0)
    outcome, end = (WAITING, now) if wait.ended_at is None else (GAVE_UP, wait.ended_at)
    return outcome, max(end - wait.eligible_at, 0.0)


def _percentile(waits: Sequence[tuple[float, bool]], percent: int) -> WaitFigure | None:
    """The shortest wait such that so many percent of the jobs waited no longer (the nearest rank).

    Args:
        waits: in order, each with whether it was cut off: the job has not started.
    """
    if not waits:
        return None
    seconds, is_cut = waits[-(-len(waits) * percent // 100) - 1]
    return WaitFigure(seconds=seconds, at_least=is_cut)


def _shown(wait: StartWait, outcome: str, seconds: float) -> WaitingJob:
    return WaitingJob(
        job=wait.job,
        user=wait.user,
        queue=wait.queue,
        group=wait.group,
        gpu_milli=wait.gpu_milli,
        eligible_at=wait.eligible_at,
        waited_s=None if outcome == UNKNOWN else seconds,
        outcome=outcome,
    )
