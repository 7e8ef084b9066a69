"""Why jobs wait or run, and how they ended, as the API tells it."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.workloads import JobState
from millpond.server.core import Core
from millpond.server.views import reason_info
from millpond.specs.api import ArrayInfo, EventInfo, JobInfo, ReasonInfo, TrialInfo


class Explainer:
    """Reasons, kept until anything happens: many clients wait for the same answer. For the scheduler's thread."""

    def __init__(self) -> None:
        self._seq = -1
        self._known: dict[str, ReasonInfo] = {}

    def explain(self, core: Core, job: str) -> ReasonInfo | None:
        """Why a job waits or runs; None when it has ended."""
        if core.seq != self._seq:
            self._seq = core.seq
            self._known.clear()
        record = core.scheduler.jobs.get(job)
        if record is None or record.state.ended:
            return None
        if job not in self._known:
            self._known[job] = reason_info(job, record.state, core.scheduler.explain(job, core.now))
        return self._known[job]


def last_word(info: JobInfo) -> ReasonInfo:
    """How a job ended."""
    summary = "it was cancelled" if info.state == JobState.CANCELLED else f"it {info.state}"
    if info.array is not None:
        summary += f": {info.reason or info.array.summary}"
        return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)
    if info.state == JobState.FAILED:
        summary += f" with exit code {info.exit_code}"
    if info.state != JobState.SUCCEEDED:
        detail = next((task.detail for task in info.tasks if task.detail), "")
        summary += f": {detail}" if detail else ""
    return ReasonInfo(job=info.id, state=info.state, cause=info.state, summary=summary)


def last_of_array(info: JobInfo, array: ArrayInfo, best: Sequence[TrialInfo], seq: int) -> EventInfo:
    """The end of an array in its history: of no event of its own, as it follows from those of its members.

    Args:
        best: of a sweep, the best trial.
    """
    text = f"{info.state}: {array.summary}"
    if best and best[0].value is not None:
        text += f"; the best is trial {best[0].index} with {best[0].value:.6g}"
    return EventInfo(seq=seq, at=info.ended_at or 0.0, what="Ended", decided=False, text=text, data={}, about=info.id)
