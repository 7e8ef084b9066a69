"""The jobs that a future expects: hours of the past come again, in an order in which hours have followed each other.

The rest of this hour goes on as of late. Behind each hour comes one that in the past came behind one in which about as
much was submitted, at about that hour of the day; or, the more so the less is known of such hours, another like itself.
So a burst goes on for as long as bursts do, and in quiet hours there may come one. What has come for a short time alone
may soon be over: half of the futures expect it for no longer than the square of the hours that are known, which is an
hour at first, and four days after ten hours. A job that ended comes with the length it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from millpond.model.states import JobState
from millpond.model.units import HOUR_S
from millpond.scheduling.estimating.lengths import Length
from millpond.scheduling.estimating.pool_model import PoolModeller
from millpond.scheduling.estimating.possible_jobs import Candidate, InLine
from millpond.scheduling.ordering.arrivals import Hour
from millpond.scheduling.ordering.queueing import new_record, take_place
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

LEAST_ARRIVALS = 8
"""From fewer submissions nothing is learnt of later ones."""

LATEST_ARRIVALS = 32
"""So many submissions, if there were as many, say what comes in the rest of an hour: its own few would come again and
again, in all futures."""

FORESEEN_HOURS = 31 * 24
MOST_AN_HOUR = 2000
"""No future looks at so many."""

LEAN_HOURS = 0.25
"""The rate of an hour that is not over leans on the one before as if so much of it had gone on like that; no rate is
learnt from less."""

ALIKE, ALIKE_HOURS = 0.5, 1.5
"""Standard deviations: of ln(submissions + 1) and of the hour of the day, between hours that are alike."""

OTHER_HOUR, UNLIKE = 0.1, 0.02
"""What one counts for that is of another hour of the day, and one in which more or less was submitted."""

PERSISTENCE = 0.2
"""What it counts for that an hour is followed by another like itself."""


@dataclass(frozen=True, slots=True)
class _Hour:
    """What may come within an hour.

    Attributes:
        rate: submissions into the pool, a second.
        level: ln(submissions an hour + 1), of all pools.
        records: some of those into the pool.
    """

    rate: float
    level: float
    records: list[JobRecord]


class Newcomers:
    """Who may come into the pool of a question.

    Attributes:
        count: how many submissions it rests on; 0: too few, so none are expected.
    """

    def __init__(self, state: State, modeller: PoolModeller, pool: str) -> None:
        self._state = state
        self._modeller = modeller
        self._now = state.now
        hours = state.arrivals.until(state.now)
        self._past = [self._hour(hour, pool, is_first=number == 0) for number, hour in enumerate(hours)]
        known = max((state.now - hours[0].begin) / HOUR_S, 1.0) if hours else 0.0
        self._trusted_s = known * known * HOUR_S
        remembered = sum(len(hour.records) for hour in self._past)
        self.count = remembered if remembered >= LEAST_ARRIVALS else 0
        self._hours_of_day = np.array([hour.begin // HOUR_S % 24 for hour in hours])
        self._levels = np.array([hour.level for hour in self._past])
        for hour in self._past:
            for record in hour.records:
                modeller.know(record)
        self._following: dict[tuple[float, int], FloatArray] = {}
        self._known: dict[str, Candidate] = {}

    def _hour(self, hour: Hour, pool: str, *, is_first: bool) -> _Hour:
        """``is_first``: nothing came before it, so it counts as a whole one."""
        takes_jobs = self._state.queues.is_leaf  # one that has been deleted, or parted, since takes none
        records = [record for record in hour.records if record.job.pool == pool and takes_jobs(record.queue)]
        part = len(records) / max(len(hour.records), 1) / self._modeller.every
        seen_s = HOUR_S if is_first else min(hour.end, self._state.now) - hour.begin
        rate = hour.count / max(seen_s, LEAN_HOURS * HOUR_S)
        return _Hour(part * rate, float(np.log1p(HOUR_S * rate)), records)

    def _present(self) -> _Hour:
        """The hour that is not over, as it goes on."""
        present = self._past[-1]
        if len(self._past) < 2:
            return present
        before, latest = self._past[-2], list[JobRecord]()
        for hour in reversed(self._past):
            if len(latest) >= LATEST_ARRIVALS:
                break
            latest = hour.records + latest
        past_s = self._now % HOUR_S
        lean = LEAN_HOURS * HOUR_S / (past_s + LEAN_HOURS * HOUR_S)
        all_now, all_before = np.expm1(present.level), np.expm1(before.level)
        rate = (1.0 - lean) * present.rate + lean * before.rate
        level = float(np.log1p((1.0 - lean) * all_now + lean * all_before))
        return _Hour(rate, level, latest)

    def may_overtake(self, target: InLine) -> bool:
        """Whether one of them could go before a waiting job."""
        return any(self._newcomer(record).rank < target.rank for hour in self._past for record in hour.records)

    def stream(self, draw: np.random.Generator, part: float) -> Iterator[tuple[float, Candidate]]:
        """Who comes in one future, and when in seconds from now.

        Args:
            part: above 0 and below 1, of all futures those in which it goes on for longer than in this one.
        """
        if not self.count:
            return
        now, over_s = self._now, self._trusted_s * (1.0 / part - 1.0)
        begin, end, hour = 0.0, HOUR_S - now % HOUR_S, self._present()
        of_day = int(now // HOUR_S)
        for _ in range(FORESEEN_HOURS):
            if begin >= over_s:
                return
            if hour.rate > 0.0:
                most = min(int(hour.rate * (end - begin)) * 2 + 16, MOST_AN_HOUR)
                instants = begin + np.cumsum(draw.exponential(1.0 / hour.rate, most))
                place = int(draw.integers(len(hour.records)))
                for number, at in enumerate(instants[instants < min(end, over_s)].tolist(), place):
                    yield at, self._newcomer(hour.records[number % len(hour.records)])
            begin, end, of_day = end, end + HOUR_S, of_day + 1
            hour = self._next(hour, of_day % 24, draw.random())

    def _next(self, hour: _Hour, of_day: int, part: float) -> _Hour:
        """The hour that follows, by a number drawn evenly from 0 to 1."""
        key = round(4.0 * hour.level), of_day
        weights = self._following.get(key)
        if weights is None:
            apart = np.abs(self._hours_of_day[1:-1] - of_day)
            of_hour = OTHER_HOUR + _likeness(np.minimum(apart, 24 - apart) / ALIKE_HOURS)
            of_level = UNLIKE + _likeness((self._levels[:-2] - hour.level) / ALIKE)
            weights = self._following[key] = np.cumsum(np.concatenate(([PERSISTENCE], of_hour * of_level)))
        place = int(np.searchsorted(weights, part * weights[-1], side="right"))
        return self._past[place] if place else hour

    def _newcomer(self, record: JobRecord) -> Candidate:
        found = self._known.get(record.id)
        if found is None:
            state = self._state
            fresh = new_record(state, record.job, 0, self._now)
            fresh.expected_s, fresh.cautious_s = record.expected_s, record.cautious_s
            take_place(state, fresh)
            found = self._known[record.id] = self._modeller.candidate(fresh, self._whole(record))
        return found

    def _whole(self, record: JobRecord) -> Length:
        if record.state is JobState.SUCCEEDED:
            return Length(record.attained_s)
        left = self._modeller.length_of(record)
        return replace(left, extra_s=left.extra_s + record.service_s(self._now))


def _likeness(deviations: FloatArray) -> FloatArray:
    found: FloatArray = np.exp(-0.5 * deviations * deviations)
    return found
