"""The parts of the server that the scheduler's thread calls: the engine, and those that act on what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from millpond.forecasting.durations import Forecast
from millpond.model.decisions import Decision
from millpond.model.workloads import Job
from millpond.node.host.clocks import WallClock
from millpond.server.storage.provisioning.staging import NOTHING_TO_STAGE, NothingToStage, Staging
from millpond.server.store.deliveries import NewDelivery
from millpond.specs.api.jobs.jobs import JobInfo


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn decided and ended.

    Attributes:
        settled: the views of jobs that have ended, and of those that have failed and are kept from now on.
        jobs: looks up a living job's view by its id.
    """

    at: float
    decisions: Sequence[Decision]
    settled: Sequence[JobInfo]
    jobs: Callable[[str], JobInfo | None]


class TurnOutbox(Protocol):
    """What delivers notices of what happened; see ``server.notifications.outbox``."""

    def address(self, turn: TurnResult) -> list[NewDelivery]:
        """The deliveries that a turn leads to; they are stored with it."""

    def wake(self) -> None:
        """Such deliveries are stored."""


class NoNotices:
    """The outbox of a server that tells nobody."""

    def address(self, _turn: TurnResult) -> list[NewDelivery]:
        """No deliveries."""
        return []

    def wake(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """What the scheduler's thread calls. Each call returns at once.

    Attributes:
        clock_jump: returns, and then forgets, by how many seconds the clock was set forward, as of its latest reading.
        stages: fetches what jobs need before they queue.
        notices: webhooks and users are told of what happened.
        forecast: how long a member of an array will run; None when that is not known at once.
        on_cycle: called with the seconds that the core took to decide.
        on_ended: each is called with the last views of jobs whose end is durable.
    """

    clock: WallClock = time.time
    clock_jump: Callable[[], float] = lambda: 0.0
    stages: Staging | NothingToStage = NOTHING_TO_STAGE
    notices: TurnOutbox = NoNotices()
    forecast: Callable[[Job], Forecast | None] = lambda _: None
    on_cycle: Callable[[float], None] = lambda _: None
    on_ended: Sequence[Callable[[Sequence[JobInfo]], None]] = ()
