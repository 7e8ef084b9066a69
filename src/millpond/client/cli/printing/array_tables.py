"""Arrays and sweeps on the screen: how far their members are, and the table of trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millpond.client.cli.printing.listing import Column
from millpond.specs.api.jobs.jobs import STOPPED_EARLY

if TYPE_CHECKING:
    from millpond.specs.api.jobs.jobs import ArrayInfo, JobInfo
    from millpond.specs.api.jobs.trials import TrialInfo, TrialList

TRIALS_SHOWN = 20


def members_text(array: ArrayInfo) -> Iterator[tuple[str, str]]:
    """What there is to say of an array's members, each with its title."""
    parallel = "" if array.parallel is None else f", at most {array.parallel} at once"
    yield "members", f"{array.count} ({array.indices_within(40)}){parallel}"
    counts = {
        "not yet in line": array.unsubmitted,
        "waiting": array.waiting,
        "running": array.running,
        "suspended": array.suspended,
        "succeeded": array.succeeded,
        "failed": array.failed,
        "cancelled": array.cancelled,
        STOPPED_EARLY: array.pruned,
    }
    yield "of these", ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def trial_columns(found: TrialList) -> list[Column]:
    """The columns of the table of trials: one for each parameter, and those of the metric where there is one."""
    names = found.trials[0].parameters if found.trials else {}
    metric = [Column(found.metric, right=True), Column("STEP", right=True)] if found.metric else []
    return [Column("TRIAL", right=True), Column("STATE"), *metric, *(Column(name, right=True) for name in names)]


def trial_row(found: TrialList, trial: TrialInfo) -> list[str]:
    """A trial in these columns."""
    metric = [_number(trial.value), _number(trial.step)] if found.metric else []
    state = STOPPED_EARLY if trial.stopped else trial.state
    return [str(trial.index), state, *metric, *(_parameter(value) for value in trial.parameters.values())]


def best_text(found: TrialList) -> str:
    """The best trial so far, in a line; empty while none could have reported a value."""
    best = found.trials[0] if found.metric and found.trials else None
    if best is None:
        return ""
    if best.value is None:
        has_ended = any(trial.state == "succeeded" for trial in found.trials)
        return f"unknown, as no trial has reported {found.metric}" if has_ended else ""
    parameters = ", ".join(f"{name}={_parameter(value)}" for name, value in best.parameters.items())
    return f"trial {best.index}: {found.metric} {_number(best.value)} at step {_number(best.step)}, with {parameters}"


def where(job: JobInfo) -> str:
    """How far an array is and, while none of it runs or is suspended, why."""
    assert job.array is not None, "asked of arrays alone"
    under_way = job.array.running or job.array.suspended
    return f"{job.array.summary}; {job.reason}" if job.reason and not under_way else job.array.summary


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _parameter(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
