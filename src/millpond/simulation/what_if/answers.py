"""The question what a change would do, answered by two plays: without it, and with it.

Either play may be broken off by a bound on work. Then both end at the same instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millpond.model.events import Event, StopRequested
from millpond.scheduling.copies.snapshots import settings_of
from millpond.simulation.queueing import admissible_world
from millpond.simulation.what_if.differences import compare
from millpond.simulation.what_if.plays import (
    NEVER,
    GoesOn,
    LiveCopy,
    PastJob,
    Played,
    changed_settings,
    past_world,
    replay_past,
)
from millpond.specs.api.reports.what_if import WhatIfInfo

LIVE_CAVEATS: Final = (
    "jobs run as long as estimates expect, and none fails",
    "nothing is submitted later",
)
PAST_CAVEATS: Final = (
    "jobs run as long as they ran, or up to when they were ended",
    "the span has today's nodes, queues and limits throughout",
    "users would have acted otherwise: submitted more, less, or elsewhere",
)
NOT_DIVIDED: Final = "wait for a card to be divided, which is not played"
NEVER_FITS: Final = "could never run on the present cluster"


@dataclass(frozen=True, slots=True)
class WhatIfQuery:
    """A change.

    Attributes:
        changes: as events that happen first.
        words: the same for people.
        bound: makes the bound on work of one play.
    """

    changes: tuple[Event, ...]
    words: tuple[str, ...]
    bound: Callable[[], GoesOn]


def answer_live(snapshot: dict[str, Any], question: WhatIfQuery, begin_at: float, until: float) -> WhatIfInfo:
    """What a change would do to a live scheduler's jobs.

    Args:
        snapshot: of that scheduler.
        begin_at, until: its present, and how far it is played.

    Raises:
        InvalidInputError, NotFoundError, ConflictError: the scheduler refuses the change.
    """
    copy = LiveCopy(snapshot, begin_at)

    def play(changes: tuple[Event, ...], until: float) -> Played:
        return copy.play(changes, until, question.bound())

    before, after = _both(play, question.changes, until)
    caveats = [*LIVE_CAVEATS, *([_guessed(before)] if before.guessed else [])]
    left_out = {NOT_DIVIDED: len(copy.undivided)} if copy.undivided else {}
    return replace(compare(question.words, before, after), caveats=caveats, left_out=left_out)


def answer_past(
    snapshot: dict[str, Any],
    past: Sequence[PastJob],
    begin_at: float,
    question: WhatIfQuery,
    left_out: dict[str, int],
) -> WhatIfInfo:
    """What a change would have done to jobs of the past.

    Args:
        snapshot: of the scheduler whose nodes, queues and policies are the base.
        past: the jobs, by the instant at which they come, with what held cards or waited when the span began.
        begin_at: when it began.
        left_out: how many are missing among them, by the reason.

    Raises:
        InvalidInputError: none of the jobs could run on the cluster.
    """
    base = admissible_world(past_world(snapshot, past, ()), skip_bad_rows=True)
    settings = settings_of(snapshot)
    fitting = {entry.job.id for entry in base.workload.jobs}
    kept = [each for each in past if each.entry.job.id in fitting]
    others = frozenset(each.entry.job.id for each in kept if not each.counts)

    def play(changes: tuple[Event, ...], until: float) -> Played:
        cancelled = _cancelled(changes)
        world = past_world(snapshot, [each for each in kept if each.entry.job.id not in cancelled], changes)
        played = replay_past(replace(world, until=until), changed_settings(settings, changes), question.bound())
        return replace(_without(played, others), begin_at=begin_at)

    before, after = _both(play, question.changes, NEVER)
    never_fit = sum(each.counts and each.entry.job.id not in fitting for each in past)
    left_out = left_out | ({NEVER_FITS: never_fit} if never_fit else {})
    return replace(compare(question.words, before, after), past=True, caveats=list(PAST_CAVEATS), left_out=left_out)


def _both(
    play: Callable[[tuple[Event, ...], float], Played], changes: tuple[Event, ...], until: float
) -> tuple[Played, Played]:
    """The plays without and with the change, up to the same instant, of the jobs that the change does not cancel."""
    before = play((), until)
    after = play(changes, before.until if before.cut else until)
    if after.cut and after.until < before.until:
        before = replace(play((), after.until), cut=True)
    cancelled = _cancelled(changes)
    return _without(before, cancelled), _without(after, cancelled)


def _guessed(played: Played) -> str:
    of = f"{len(played.guessed)} of {len(played.jobs)} jobs"
    return f"of {of} nothing is known (no forecast, no time limit, few have ended): their lengths are guesses"


def _cancelled(changes: tuple[Event, ...]) -> frozenset[str]:
    return frozenset(change.job for change in changes if isinstance(change, StopRequested))


def _without(played: Played, jobs: frozenset[str]) -> Played:
    left = {name: job for name, job in played.jobs.items() if name not in jobs}
    return replace(played, jobs=left, guessed=played.guessed - jobs)
