"""Bodies about the trials of sweeps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """One trial of a sweep.

    Attributes:
        state: a ``model.states.JobState``; or ``stopped``: it fell behind; or ``waiting``: not handed to the
            scheduler yet.
        value, step: its best value of the metric, and where it was.
        last, last_step: its latest value; None where that was not finite, or nothing came.
        stopped: why it was stopped.
    """

    index: int
    job: str
    parameters: dict[str, int | float | str | bool]
    state: str
    value: float | None = None
    step: float | None = None
    last: float | None = None
    last_step: float | None = None
    stopped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialList:
    """Trials, the best first; ``truncated`` says that ``limit`` cut the list.

    Attributes:
        metric, goal: by what they are compared, and whether ``minimize`` or ``maximize``; empty without one.
    """

    job: str
    metric: str = ""
    goal: str = ""
    trials: list[TrialInfo]
    truncated: bool = False
