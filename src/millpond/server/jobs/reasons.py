"""Why jobs wait or run: queried from the scheduler's thread, without what the reader may not see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from millpond.model.decisions import Start
from millpond.model.events import Ended, JobSubmitted, StopRequested, WaitExplained
from millpond.model.states import JobState
from millpond.server.jobs.adoption.gang_documents import as_pods_can, is_part_of_card
from millpond.server.jobs.monitors.deadlines import ESTIMATES_WITHIN_S, foreseen
from millpond.server.runtime.active_jobs.job_cache import read_only_view
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.runtime.clock import on_wall_clock
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.store.histories import DecisionEntry, History, HistoryStore, LogEntry
from millpond.server.views.reasons import reason_info
from millpond.server.views.visibility import Reader
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo, StartInfo, WaitInfo

REASONS_IN_A_LIST: Final = 20
"""Reasons cost the scheduler's thread time; in a list the first so many waiting jobs get one."""

ReasonOutsideCore = Callable[[str, Callable[[str], ReasonInfo | None]], ReasonInfo | None]


class Reasons:
    """Finds reasons.

    Args:
        outside_core: why a job or an array waits that the core does not know; None of all others. Only from within a
            query, with what explains a job that the core knows.
        unshared: says why no card of a pool is shared out; nothing where some are. It may wait for the cluster.
    """

    def __init__(
        self, loop: Loop, lookup: JobLookup, outside_core: ReasonOutsideCore, unshared: Callable[[str], str]
    ) -> None:
        self._loop, self._lookup, self._unshared = loop, lookup, unshared
        self._outside_core = outside_core
        self._explainer = ReasonCache()

    async def added_to(self, infos: list[JobInfo], reader: Reader) -> list[JobInfo]:
        """All asked at once: they are answered between the same two turns, so that a list waits for one turn only."""
        waiting = [info for info in infos if info.state == JobState.QUEUED][:REASONS_IN_A_LIST]
        answers = await asyncio.gather(*(self.explained(info, reader) for info in waiting))
        explained = {info.id: info for info in answers}
        return [explained.get(info.id, info) for info in infos]

    async def explained(self, info: JobInfo, reader: Reader) -> JobInfo:
        """A job that waited a moment ago, as it is now, with the reason if it still waits: both of one instant."""
        if self._loop.read_only is not None:
            return read_only_view(info)
        now, reason = await self._loop.ask(
            lambda core: (self._loop.job_cache.get(info.id), self._explain(core, info.id, briefly=True))
        )
        if now is None:
            return await asyncio.to_thread(self._lookup.look, info.id)
        if reason is None or now.state != JobState.QUEUED:
            return now
        return replace(now, reason=(await self.veiled(reason, reader)).summary)

    async def foreseen(self, infos: list[JobInfo]) -> list[JobInfo]:
        """Jobs with the outlook for their deadlines: of the first so many, as these too cost the thread time."""
        due = [info for info in infos if info.deadline is not None and not JobState(info.state).ended]
        if not due or self._loop.read_only is not None:
            return infos
        due = due[:REASONS_IN_A_LIST]
        found = await self._loop.ask(lambda core: [foreseen(core, info) for info in due], is_long=True)
        known = {info.id: info for info in found}
        return [known.get(info.id, info) for info in infos]

    async def veiled(self, reason: ReasonInfo, reader: Reader) -> ReasonInfo:
        """A reason as these readers may see it; only where a job stands in the way the store may have to be asked."""
        return await asyncio.to_thread(reader.reason, reason, self._lookup.find) if reason.blocked_by else reason

    async def summary(self, job: str, reader: Reader) -> str:
        """Why a job waits or runs, in a sentence; empty when it has ended."""
        reason = await self._loop.ask(lambda core: self._explain(core, job, briefly=True))
        return "" if reason is None else (await self.veiled(reason, reader)).summary

    async def of(self, job: str) -> ReasonInfo | None:
        """Whom a job waits for, or why it waits or runs; None when it has ended."""
        info, why = self._loop.job_cache.get(job), self._loop.read_only
        if why is not None and info is not None:
            remedy = RemedyInfo(change=why.remedy)
            return ReasonInfo(job=job, state=info.state, cause="copy", summary=info.reason, remedy=remedy)
        reason, now = await self._loop.ask(lambda core: (self._explain(core, job), core.now), is_long=True)
        reason = None if reason is None else as_clocks_are(reason, now, time.time())
        if reason is None or reason.remedy is None or not reason.remedy.field:
            return reason
        pool = "" if info is None else info.pool
        reason = as_pods_can(reason, await self._lookup.document(job))
        return await as_cards_are(reason, partial(self._unshared, pool))

    def _explain(self, core: Core, job: str, *, briefly: bool = False) -> ReasonInfo | None:
        """For the scheduler's thread: whom a job waits for, or why it waits or runs; None when it has ended."""
        explain = partial(self._explainer.explain, core, briefly=briefly)
        return self._outside_core(job, explain) or explain(job)


async def as_cards_are(reason: ReasonInfo, unshared: Callable[[], str]) -> ReasonInfo:
    """A reason without a part of a card as what would help, where no card is shared out.

    Args:
        unshared: as ``Reasons`` has it, for the job's pool.
    """
    if reason.remedy is None or not is_part_of_card(reason.remedy) or not await asyncio.to_thread(unshared):
        return reason
    return replace(reason, remedy=None)


def as_clocks_are(reason: ReasonInfo, now: float, wall: float) -> ReasonInfo:
    """A reason with the estimate by the clock of its readers, of which the scheduler's may be ahead.

    Args:
        now: the scheduler's time, by which the estimate is.
        wall: what the wall clock shows then.
    """
    if reason.start is None or reason.start.unknown:
        return reason

    def shown(instant: float | None) -> float | None:
        return None if instant is None else on_wall_clock(instant, now, wall)

    start = reason.start
    earliest_at = on_wall_clock(start.earliest_at, now, wall)
    likely_at, latest_at = shown(start.likely_at), shown(start.latest_at)
    return replace(reason, start=replace(start, earliest_at=earliest_at, likely_at=likely_at, latest_at=latest_at))


class ReasonCache:
    """Reasons, kept until anything happens: many clients wait for the same answer. For the scheduler's thread."""

    def __init__(self) -> None:
        self._seq = -1
        self._known: dict[tuple[str, bool], ReasonInfo] = {}

    def explain(self, core: Core, job: str, *, briefly: bool = False) -> ReasonInfo | None:
        """Why a job waits or runs; None when it has ended.

        Args:
            briefly: without remedy and estimate.
        """
        if core.seq != self._seq:
            self._seq = core.seq
            self._known.clear()
        record = core.scheduler.jobs.get(job)
        if record is None or record.state.ended:
            return None
        wanted = (job, briefly)
        if wanted not in self._known:
            scheduler, now = core.scheduler, core.now
            reason = scheduler.cause(job, now) if briefly else scheduler.explain(job, now, within_s=ESTIMATES_WITHIN_S)
            self._known[wanted] = reason_info(job, record.state, reason)
        return self._known[wanted]


def last_word(info: JobInfo) -> ReasonInfo:
    """How a job ended."""
    if info.stopped_early:
        summary = f"it was stopped early: {info.stopped_early}"
        return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)
    summary = "it was cancelled" if info.state == JobState.CANCELLED else f"it {info.state}"
    if info.array is not None:
        summary += f": {info.reason or info.array.summary}"
        return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)
    if info.state == JobState.FAILED:
        summary += " and never ran" if info.first_started_at is None else f" with exit code {info.exit_code}"
    if info.state != JobState.SUCCEEDED:
        summary += f": {info.blamed}" if info.blamed else ""
    return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)


async def with_waits(histories: HistoryStore, reason: ReasonInfo) -> ReasonInfo:
    """The reason of a job; of one that waits no longer with why it waited, as the log has it."""
    if reason.state == JobState.QUEUED.value:
        return reason
    history = await asyncio.to_thread(histories.of_job, reason.job)
    return replace(reason, waits=list(waits_in(history)))


def waits_in(history: History) -> Iterator[WaitInfo]:
    """The spans in which a job waited for one reason each, as far as they were noted.

    A span ends with the next reason, the start of the job, a request to stop it, or its end. The first one begins when
    the job came to wait, as the reason is noted only a minute later.
    """
    happened, decided = history
    entries: list[LogEntry | DecisionEntry] = sorted([*happened, *decided], key=lambda entry: entry.seq)
    open_: WaitExplained | None = None
    since = 0.0
    for entry in entries:
        what = entry.event if isinstance(entry, LogEntry) else entry.decision
        at = entry.at if isinstance(entry, DecisionEntry) else entry.event.at
        if isinstance(what, JobSubmitted):
            since = at
        if not isinstance(what, WaitExplained | StopRequested | Ended | Start):
            continue
        if open_ is not None:
            yield _span(open_, (since, at), started=isinstance(what, Start))
            since = at
        open_ = what if isinstance(what, WaitExplained) else None
        if isinstance(what, Ended):
            since = at


def _span(wait: WaitExplained, span: tuple[float, float], *, started: bool) -> WaitInfo:
    start = None
    if wait.earliest_at is not None:
        start = StartInfo(earliest_at=wait.earliest_at, latest_at=wait.latest_at, likely_at=wait.likely_at)
    return WaitInfo(
        cause=wait.cause.value, summary=wait.summary, since=span[0], until=span[1], started=started, start=start
    )
