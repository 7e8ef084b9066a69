"""When jobs start that may start later than they could: at once, or in hours in which energy costs or emits less.

A job is held in no line until the start of least predicted mean over its expected length, of those at which cards
should be free for it; the next best one where they are taken. It lines up at once if that saves less than
``LEAST_SAVED``, if nothing is known of the present hour, or if no later start has room: better a dirty hour than a late
one.

The latest start is the one that ``flexible`` allows, and before that the one that its deadline allows for the longest
that it may run (its time limit, else the length that nine in ten stay below); a deadline of a job of unknown length
allows nothing. It lines up after ``HELD_PART`` of the span until then at the latest, as it may have to wait in line:
what comes meanwhile, and takes the cards, is not foreseen.

Starts are chosen in the cycle behind the submission, and anew for all who are held as often as hours are predicted,
those first whose latest start is the nearest. Once in line a job is as any other, also if it is run again. Its wait
counts from its submission, so it is soon overdue there (``cycle.overdue``) where its hour turns out to be crowded.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

import numpy as np

from millpond.model import windows
from millpond.model.units import HOUR_S
from millpond.scheduling.estimating.lengths import LEAST_ENDED
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.queueing import enqueue, watch_window
from millpond.scheduling.placement.arrays import BoolArray, FloatArray
from millpond.scheduling.records import JobRecord
from millpond.scheduling.shifting.hours import FreeHours, PredictedHours
from millpond.scheduling.state import State

HELD_PART: Final = 0.75
LEAST_SAVED: Final = 0.01
"""A later start has to promise that part of what an earlier one costs or emits."""


def expected_s(state: State, record: JobRecord) -> float:
    """How long a waiting job should run; an hour if nothing is known of it."""
    limit, now = record.job.time_limit_s, state.now
    if _is_unknown(state, record):
        return HOUR_S if limit is None else limit
    return state.ordering.time_left.expected_end(record, now) - now


def longest_s(state: State, record: JobRecord) -> float:
    """The longest that its deadline has to leave it."""
    limit, now = record.job.time_limit_s, state.now
    if limit is None and _is_unknown(state, record):
        return NEVER
    return state.ordering.time_left.cautious_end(record, now) - now if limit is None else limit


def _is_unknown(state: State, record: JobRecord) -> bool:
    return record.expected_s is None and state.ordering.time_left.survival.endings < LEAST_ENDED


def latest_line_up(state: State, record: JobRecord) -> float:
    """The latest instant at which a held job lines up."""
    job, could_start = record.job, record.submitted_at
    if job.windows:
        could_start = windows.opens_at(job.windows, could_start)
    latest = could_start + job.flexible_s
    if job.deadline_s is not None:
        latest = min(latest, job.deadline_s - longest_s(state, record))
    return could_start + HELD_PART * (latest - could_start)


def choose_starts(state: State) -> None:
    """Choose when the jobs start that wait for that."""
    held = state.held
    held.prune()
    hours = PredictedHours(held.predicted, state.now)
    rooms: dict[str, FreeHours] = {}
    chosen: list[tuple[str, float]] = []
    due = [(latest_line_up(state, record), record.sequence, record) for record in held.undecided.values()]
    due.sort(key=itemgetter(0, 1))
    for latest, _, record in due:
        pool = record.job.pool
        if pool not in rooms:
            rooms[pool] = FreeHours(state, pool, hours)
            _take_chosen(state, pool, rooms[pool], hours)
        chosen.append((record.id, _chosen_start(state, record, latest, (hours, rooms[pool]))))
    give_starts(state, chosen)
    held.chosen = chosen
    held.version += 1


def give_starts(state: State, chosen: Iterable[tuple[str, float]]) -> None:
    """Let held jobs start at these instants; at once where they are not later than now."""
    held = state.held
    for job, start in chosen:
        record = held.jobs[job]
        del held.undecided[job]
        if start <= state.now:
            start_now(state, record)
        elif start != record.held_until:
            record.held_until = start
            watch_window(state, record)


def start_now(state: State, record: JobRecord) -> None:
    """A held job lines up, whatever the hour."""
    state.held.release(record)
    enqueue(state, record)


def _take_chosen(state: State, pool: str, room: FreeHours, hours: PredictedHours) -> None:
    """Leave the cards to those of a pool whose starts stay."""
    held = state.held
    staying = [each for each in held.jobs.values() if each.job.pool == pool and each.id not in held.undecided]
    if staying:
        starts = np.array([each.held_until for each in staying])
        lengths = np.array([expected_s(state, each) for each in staying])
        room.take(np.array([float(each.gpu_milli) for each in staying]), hours.overlaps(starts, lengths))


def _chosen_start(state: State, record: JobRecord, latest: float, known: tuple[PredictedHours, FreeHours]) -> float:
    """When a job starts, and its cards are taken from then on."""
    hours, room = known
    hours_open = record.job.windows
    first = windows.opens_at(hours_open, state.now) if hours_open else state.now
    if latest <= first:
        return state.now  # nothing but its windows keeps it from then on
    starts = hours.starts(first, latest)
    if hours_open:
        starts = np.array([start for start in starts.tolist() if windows.is_open(hours_open, start)])
    length_s = expected_s(state, record)
    overlaps = hours.overlaps(starts, np.full(len(starts), length_s))
    chosen, in_line = _cheapest(hours.means(overlaps), room.fits(record.gpu_milli, overlaps))
    taken = chosen if chosen or in_line is None else in_line
    room.take(np.array([float(record.gpu_milli)]), overlaps[taken : taken + 1])
    return float(starts[chosen])


def _cheapest(means: FloatArray, fits: BoolArray) -> tuple[int, int | None]:
    """The start to choose, 0 for the first; and at which it would find room if it lined up at once."""
    with_room = np.flatnonzero(fits)
    if not len(with_room):
        return 0, None
    in_line = int(with_room[0])
    known = with_room[~np.isnan(means[with_room])]
    if np.isnan(means[in_line]) or not len(known):
        return 0, in_line
    best = int(known[np.argmin(means[known])])
    saved = float(means[in_line] - means[best])
    return (best if saved > LEAST_SAVED * abs(float(means[in_line])) else 0), in_line
