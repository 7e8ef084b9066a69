"""Bursts of work of all kinds, and a scheduler that is restored from its snapshot, or forked, time and again.

It has to take every decision that its twin takes, which never was: what influences decisions lies in the snapshot and
in the fork, and what is asked in between influences none.
"""

from __future__ import annotations

import json
import random

import pytest
from bursts import KINDS, settings_of, world_of

from millpond.model.decisions import Decision
from millpond.model.events import Event, JobSubmitted
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.kernel import Simulation


class Restored:
    """A scheduler, and its twin that is restored at random points."""

    def __init__(self, settings: Settings, seed: int, share: float) -> None:
        self.first = Scheduler(settings)
        self.second = Scheduler(settings)
        self.restored = 0
        self._draws = random.Random(seed)
        self._share = share

    def handle(self, event: Event) -> None:
        self.first.handle(event)
        self.second.handle(event)
        self._restore()
        if isinstance(event, JobSubmitted) and self._draws.random() < self._share:
            self.second.explain(event.job.id, event.at)

    def decide(self, now: float) -> list[Decision]:
        decisions = self.first.decide(now)
        assert self.second.decide(now) == decisions, f"restored {self.restored} times, at {now}"
        self._restore()
        return decisions

    def next_wakeup(self, now: float) -> float | None:
        wakeup = self.first.next_wakeup(now)
        assert self.second.next_wakeup(now) == wakeup, f"restored {self.restored} times, at {now}"
        return wakeup

    def forget(self, job_id: str) -> None:
        self.first.forget(job_id)
        self.second.forget(job_id)

    def _restore(self) -> None:
        if self._draws.random() < self._share:
            plain = self.second.snapshot()
            if self.restored % 2:
                self.second = Scheduler.restore(json.loads(json.dumps(plain)))
            else:
                self.second = self.second.fork()
                assert self.second.snapshot() == plain
            self.restored += 1


def play(kind: str, seed: int, jobs: int, share: float) -> int:
    """One log of bursts; returns how often the twin was restored."""
    both = Restored(settings_of(kind), seed, share)
    Simulation(world_of(kind, seed, jobs), both).run()
    return both.restored


@pytest.mark.parametrize("kind", KINDS)
def test_a_scheduler_restored_anywhere_goes_on_as_if_it_had_not_been(kind: str) -> None:
    assert play(kind, 1, 80, 0.1) > 20


def test_a_reservation_that_was_found_in_a_trial_is_not_taken_for_fresh_once_that_is_rolled_back() -> None:
    assert play("nothing-preempted", 3, 40, 0.2) > 20


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_long_logs_of_bursts_are_gone_on_with_from_anywhere(kind: str) -> None:
    assert sum(play(kind, seed, 100, 0.2) for seed in (2, 3)) > 100
