"""Why jobs wait or run, and how they ended, as the API shows it."""

from __future__ import annotations

from millpond.model.states import JobState
from millpond.server.runtime.core import Core
from millpond.server.views.nodes import reason_info
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs import ArrayInfo, JobInfo
from millpond.specs.api.reasons import ReasonInfo
from millpond.specs.api.trials import TrialList


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
            ask = core.scheduler.cause if briefly else core.scheduler.explain
            self._known[wanted] = reason_info(job, record.state, ask(job, core.now))
        return self._known[wanted]


def last_word(info: JobInfo) -> ReasonInfo:
    """How a job ended."""
    summary = "it was cancelled" if info.state == JobState.CANCELLED else f"it {info.state}"
    if info.array is not None:
        summary += f": {info.reason or info.array.summary}"
        return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)
    if info.state == JobState.FAILED:
        summary += " and never ran" if info.first_started_at is None else f" with exit code {info.exit_code}"
    if info.state != JobState.SUCCEEDED:
        summary += f": {info.blamed}" if info.blamed else ""
    return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)


def last_of_array(info: JobInfo, array: ArrayInfo, trials: TrialList | None, seq: int) -> EventInfo:
    """The end of an array in its history: of no event of its own, as it follows from those of its members.

    Args:
        trials: of a sweep, the best of them at least.
    """
    text = f"{info.state}: {array.summary}"
    if trials is not None and trials.metric and trials.trials:
        best = trials.trials[0]
        best_text = f"the best is trial {best.index} with {best.value:.6g}" if best.value is not None else ""
        text += f"; {best_text or f'no trial reported {trials.metric}'}"
    return EventInfo(seq=seq, at=info.ended_at or 0.0, what="Ended", decided=False, text=text, data={}, about=info.id)
