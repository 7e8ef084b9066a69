"""Bodies about what a change would do: what the same jobs come to without and with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Effect = Literal["earlier", "later", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfJob:
    """A job to which the change makes a difference.

    Attributes:
        effect: it waits less, or longer, or as long and is ended less or more often; ``new``: it is there only with
            the change.
        ran: it ran at the beginning; then its starts say nothing.
        start_before, start_after: its first start; null: none as far as was played.
        wait_before_s, wait_after_s: time without cards from the beginning, or its submission, to its end.
    """

    job: str
    user: str
    name: str
    queue: str
    gpu_milli: int
    effect: Effect
    ran: bool = False
    start_before: float | None = None
    start_after: float | None = None
    wait_before_s: float = 0.0
    wait_after_s: float = 0.0
    preemptions_before: int = 0
    preemptions_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfShare:
    """All jobs of one user or queue; those that only the change brings, or takes away, do not count.

    Attributes:
        earlier, later: how many of them wait less, and longer.
        mean_wait_before_s, mean_wait_after_s: of all of them.
    """

    name: str
    jobs: int
    earlier: int
    later: int
    mean_wait_before_s: float
    mean_wait_after_s: float
    preemptions_before: int
    preemptions_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSide:
    """The sums of one play.

    Attributes:
        gpus: cards of the cluster.
        mean_wait_s, longest_wait_s: over jobs that are in both plays.
        not_started: how many of them had not started at the end of the play.
        utilisation_percent: cards held, of those there are, from the beginning to ``WhatIfInfo.busy_until``.
    """

    gpus: float
    mean_wait_s: float
    longest_wait_s: float
    not_started: int
    preemptions: int
    utilisation_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfInfo:
    """What a change would do.

    Attributes:
        changes: what is changed, in words.
        begin_at, until: the span that was played.
        busy_until: the last first start of any job in either play, an hour after the beginning at the least.
        past: it is the recorded past that was played.
        cut: it was too much to be played as far as it was asked for.
        compared: how many jobs are in both plays.
        jobs: to which it makes a difference, the largest first.
        hidden: how many more there are, of others.
        queues, users: with a difference, the largest loss first.
        left_out: how many jobs are not played, by the reason.
        caveats: what such an answer cannot know.
    """

    changes: list[str]
    begin_at: float
    until: float
    busy_until: float
    past: bool = False
    cut: bool
    before: WhatIfSide
    after: WhatIfSide
    compared: int
    jobs: list[WhatIfJob] = field(default_factory=list)
    hidden: int = 0
    queues: list[WhatIfShare] = field(default_factory=list)
    users: list[WhatIfShare] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
