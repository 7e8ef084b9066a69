"""Two plays of the same jobs, compared: who waits less and who longer, and what that comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from millpond.simulation.what_if.plays import Played, PlayedJob
from millpond.specs.api.reports.what_if import Effect, WhatIfInfo, WhatIfJob, WhatIfShare, WhatIfSide

LEAST_DIFFERENCE_S: Final = 1.0
"""A wait that changes by less is the same."""

LEAST_SPAN_S: Final = 3600.0
"""Utilisation is that of an hour at least."""

Pair = tuple[PlayedJob, PlayedJob]


def compare(changes: Sequence[str], before: Played, after: Played) -> WhatIfInfo:
    """What the change does. Both plays end at the same instant.

    Args:
        changes: in words.
    """
    pairs = [(job, after.jobs[name]) for name, job in before.jobs.items() if name in after.jobs]
    new = [job for name, job in after.jobs.items() if name not in before.jobs]
    changed = [pair for pair in pairs if _difference(pair) != (0.0, 0)]
    changed.sort(key=lambda pair: (*(-abs(each) for each in _difference(pair)), pair[0].job.id))
    until = max(before.until, after.until)
    busy_until = _busy_until(pairs, before.begin_at, until)
    return WhatIfInfo(
        changes=list(changes),
        begin_at=before.begin_at,
        until=until,
        busy_until=busy_until,
        cut=before.cut or after.cut,
        before=_side(before, [pair[0] for pair in pairs], busy_until),
        after=_side(after, [pair[1] for pair in pairs], busy_until),
        compared=len(pairs),
        jobs=[*map(_row, new), *map(_changed, changed)],
        queues=_shares(pairs, lambda job: job.job.queue),
        users=_shares(pairs, lambda job: job.job.user),
    )


def _longer_s(pair: Pair) -> float:
    """How much longer it waits with the change."""
    return pair[1].waited_s - pair[0].waited_s


def _difference(pair: Pair) -> tuple[float, int]:
    """How much longer it waits with the change, and how much more often it is ended: what is more is a loss."""
    longer_s = _longer_s(pair)
    more_often = pair[1].preemptions - pair[0].preemptions
    return longer_s if abs(longer_s) >= LEAST_DIFFERENCE_S else 0.0, more_often


def _busy_until(pairs: Iterable[Pair], begin_at: float, until: float) -> float:
    """When the last of them that ever starts has started in both plays."""
    starts = [job.started_at for pair in pairs for job in pair if job.started_at is not None]
    return min(max([begin_at + LEAST_SPAN_S, *starts]), max(until, begin_at + LEAST_SPAN_S))


def _side(played: Played, jobs: Sequence[PlayedJob], busy_until: float) -> WhatIfSide:
    waits = [job.waited_s for job in jobs]
    span_s = busy_until - played.begin_at
    held = sum(
        max(min(end, busy_until) - max(begin, played.begin_at), 0.0) * milli for begin, end, milli in played.held
    )
    room = played.capacity_milli * span_s
    return WhatIfSide(
        gpus=played.capacity_milli / 1000,
        mean_wait_s=sum(waits) / len(waits) if waits else 0.0,
        longest_wait_s=max(waits, default=0.0),
        not_started=sum(not job.ran and job.started_at is None for job in jobs),
        preemptions=sum(job.preemptions for job in jobs),
        utilisation_percent=100 * held / room if room else 0.0,
    )


def _changed(pair: Pair) -> WhatIfJob:
    before, after = pair
    return replace(
        _row(after, "later" if _difference(pair) > (0.0, 0) else "earlier"),
        ran=before.ran,
        start_before=before.started_at,
        wait_before_s=before.waited_s,
        preemptions_before=before.preemptions,
    )


def _row(played: PlayedJob, effect: Effect = "new") -> WhatIfJob:
    """A job as it fares with the change."""
    job = played.job
    return WhatIfJob(
        job=job.id,
        user=job.user,
        name=job.name,
        queue=job.queue,
        gpu_milli=job.gpu_milli,
        effect=effect,
        start_after=played.started_at,
        wait_after_s=played.waited_s,
        preemptions_after=played.preemptions,
    )


def _shares(pairs: Iterable[Pair], whose: Callable[[PlayedJob], str]) -> list[WhatIfShare]:
    """A row for each of those whose jobs fare differently, the largest loss first."""
    by_name: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_name.setdefault(whose(pair[0]), []).append(pair)
    rows = [_share(name, of_one) for name, of_one in by_name.items()]
    rows = [row for row in rows if row.earlier or row.later or row.preemptions_before != row.preemptions_after]
    rows.sort(key=lambda row: (-(row.mean_wait_after_s - row.mean_wait_before_s) * row.jobs, row.name))
    return rows


def _share(name: str, pairs: Sequence[Pair]) -> WhatIfShare:
    longer = [_longer_s(pair) for pair in pairs]
    return WhatIfShare(
        name=name,
        jobs=len(pairs),
        earlier=sum(each <= -LEAST_DIFFERENCE_S for each in longer),
        later=sum(each >= LEAST_DIFFERENCE_S for each in longer),
        mean_wait_before_s=sum(before.waited_s for before, _ in pairs) / len(pairs),
        mean_wait_after_s=sum(after.waited_s for _, after in pairs) / len(pairs),
        preemptions_before=sum(before.preemptions for before, _ in pairs),
        preemptions_after=sum(after.preemptions for _, after in pairs),
    )
