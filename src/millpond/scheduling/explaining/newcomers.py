"""The jobs that a future expects: those remembered come again, at the rate of the hour of the day.

A job that ended comes with the length it had. Together they ask for no more than the pool can give for ever: what looks
like more is taken for the burst that it has been so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from millpond.model.states import JobState
from millpond.scheduling.explaining.futures import Candidate
from millpond.scheduling.explaining.lengths import Length
from millpond.scheduling.explaining.pool_model import PoolModeller
from millpond.scheduling.ordering.arrivals import FloatArray
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

LEAST_ARRIVALS = 8
"""From fewer submissions nothing is learnt of later ones."""

STABLE_LOAD = 1.0
"""What keeps coming asks for no more than this part of the pool."""


class Newcomers:
    """Who may come into the pool of a question.

    Attributes:
        count: how many submissions it rests on; 0: too few, so none are expected.
    """

    def __init__(self, state: State, modeller: PoolModeller, pool: str) -> None:
        self._state = state
        self._modeller = modeller
        latest = state.arrivals.latest
        self._past = [each.record for each in latest if each.record.job.pool == pool]
        self.count = len(self._past) if len(self._past) >= LEAST_ARRIVALS else 0
        part = len(self._past) / max(len(latest), 1)
        self._part = part / modeller.every * min(1.0, STABLE_LOAD / max(self._load(part), 1e-9))
        self._known: dict[str, Candidate] = {}

    def _load(self, part: float) -> float:
        """What the remembered jobs, coming again and again, keep busy of the pool, at the least."""
        now = self._state.now
        work = sum(record.service_s(now) * self._modeller.amount_of(record) for record in self._past)
        rate = float(self._state.arrivals.rates(now).mean()) * part
        return rate * work / max(len(self._past), 1) / max(self._modeller.capacity, 1)

    def stream(self, units: FloatArray, first: int) -> Iterator[tuple[float, Candidate]]:
        """Who comes in one future, and when in seconds from now, beginning with any of the remembered.

        Args:
            units: instants of a stream of rate 1.
        """
        if not self.count:
            return
        instants = self._state.arrivals.instants(self._state.now, units, self._part)
        for number, at in enumerate(instants[np.isfinite(instants)].tolist()):
            yield at, self._newcomer(self._past[(first + number) % self.count])

    def _newcomer(self, record: JobRecord) -> Candidate:
        found = self._known.get(record.id)
        if found is None:
            state = self._state
            fresh = state.new_record(record.job, 0, state.now)
            fresh.expected_s, fresh.cautious_s = record.expected_s, record.cautious_s
            fresh.key = state.ordering.waiting_key(fresh, state.now)
            found = self._known[record.id] = self._modeller.candidate(fresh, self._whole(record))
        return found

    def _whole(self, record: JobRecord) -> Length:
        if record.state is JobState.SUCCEEDED:
            return Length(record.attained_s)
        left = self._modeller.length_of(record)
        return replace(left, extra_s=left.extra_s + record.service_s(self._state.now))
