"""The body about training curves of several runs; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRun:
    """One of the runs.

    Attributes:
        state: as that of a trial (``TrialInfo``).
        parameters: of a trial of a sweep.
        metrics: all that it has, by name.
        notes: what of it could not be read.
    """

    job: str
    name: str
    user: str
    state: str
    attempt: int
    started_at: float | None = None
    parent: str = ""
    parameters: dict[str, int | float | str | bool] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveInfo:
    """One metric of one run, over all its attempts: where a later one goes on, the earlier ends.

    Attributes:
        folder: where in the output its event file lies; empty for what the program reported.
        count: finite values that it has; ``steps`` are fewer where it is sampled: the lowest and highest of stretches.
        not_finite: values such as NaN, which are in no curve.
        least, least_step, most, most_step, last, last_step: of all of them; None without any.
        at: when each was reported; 0 where that is not known.
    """

    job: str
    task: int
    metric: str
    folder: str = ""
    count: int = 0
    not_finite: int = 0
    least: float | None = None
    least_step: float | None = None
    most: float | None = None
    most_step: float | None = None
    last: float | None = None
    last_step: float | None = None
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesInfo:
    """Curves of several runs.

    Attributes:
        metrics: all metrics that any of the runs has.
        shown: those whose curves are here.
        goal: of the sweep that all runs belong to, ``minimize`` or ``maximize``, for its metric ``aim``; else empty.
        missing: what was asked for and is no job that the caller may see.
        left_out: runs that were asked for beyond the most.
        whole: all files are read; else the same request has more of them a moment later.
    """

    runs: list[CurveRun] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    curves: list[CurveInfo] = field(default_factory=list)
    aim: str = ""
    goal: str = ""
    missing: list[str] = field(default_factory=list)
    left_out: int = 0
    whole: bool = True
