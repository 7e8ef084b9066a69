"""Schedulers for replays: compiled where numba is installed, interpreted where not; the decisions are the same."""

from __future__ import annotations

from millpond.scheduling.placement.kernels import fastest
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings


def make_scheduler(settings: Settings) -> Scheduler:
    """A fresh scheduler on the fastest kernels there are."""
    scheduler = Scheduler(settings)
    scheduler.use_kernels(fastest())
    return scheduler
