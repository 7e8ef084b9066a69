"""Why a started or ended job has waited: the reasons in order, and how accurate the estimate was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from millpond.model.decisions import Start
from millpond.model.events import Ended, JobSubmitted, StopRequested, WaitExplained
from millpond.model.states import JobState
from millpond.server.store.histories import DecisionEntry, History, HistoryStore, LogEntry
from millpond.specs.api.jobs.reasons import ReasonInfo, StartInfo, WaitInfo


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
