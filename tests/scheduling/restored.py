"""A scheduler, and its twin that is restored from its snapshot, or forked, at random points of a log of bursts."""

from __future__ import annotations

import hashlib
import json
import random

from bursts import settings_of, world_of

from millpond.model.decisions import Decision
from millpond.model.events import Event, JobSubmitted
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.kernel import Simulation


class Restored:
    """Both hear the same, and have to decide the same.

    Attributes:
        restored: how often the twin was.
        digest: of all decisions, in order.
    """

    def __init__(self, settings: Settings, seed: int, share: float) -> None:
        self.first = Scheduler(settings)
        self.second = Scheduler(settings)
        self.restored = 0
        self.digest = hashlib.sha256()
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
        self.digest.update(repr(decisions).encode())
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


def play(kind: str, seed: int, jobs: int, share: float, kernels: KernelSet | None = None) -> Restored:
    """One log of bursts, and who has played it.

    Args:
        kernels: what the one runs on that is never restored.
    """
    both = Restored(settings_of(kind), seed, share)
    if kernels is not None:
        both.first.use_kernels(kernels)
    Simulation(world_of(kind, seed, jobs), both).run()
    return both
