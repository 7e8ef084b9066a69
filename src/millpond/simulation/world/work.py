"""The work of one simulated job: how much is left, how fast it is done, and what has become of it so far.

Work is measured in seconds at full speed.
"""

from __future__ import annotations

import math

from millpond.model.decisions import Placement
from millpond.model.events import ProgressMeasured
from millpond.model.workloads import Job
from millpond.simulation.world.power_curves import PowerCurve
from millpond.simulation.world.present_runs import NEVER
from millpond.simulation.world.speeds import JobSpeed


class Work:
    """What the engine knows of one job.

    Attributes:
        remaining_s: work left at full speed, unpaid overhead included; ``NEVER`` where only a request ends it.
        is_over: it does not run again once it has left.
        overhead_s: the part of it that comes from preemptions.
        placements: its tasks that run, start or are suspended; empty when it has none.
        swapped_mib: device memory that lies in host memory.
        version: rises whenever the instant of its end changes; older entries of the agenda are void.
        held_since: since when it holds cards; ``NEVER`` while it holds none.
        fails_after_s: work at full speed that this run does before it fails; ``NEVER`` where it does not.
        held_s, preemptions, lost_s, first_start_at, ended_at: its history; NaN is not yet.
        booked_s: work done since it holds these cards, without what it has to repeat.
        suspensions, switching_s: how often it left without ending, and what leaving and coming back took.
        failures: how often its runs failed.
        truth: how fast it is on which cards; None: it knows no speeds but 1.
        curve: how fast it is at power caps, and what it draws; None: nothing is known of that.
        cap_w: at which its cards are kept; 0: none.
        measured: its rate when that was measured last; NaN in a run in which it was not.
        caching: the nodes of its run whose caches hold what it uses.
    """

    __slots__ = (
        "attempt", "booked_s", "caching", "cap_w", "curve", "ended_at", "fails_after_s", "failures", "first_start_at",
        "held_s", "held_since", "index", "is_over", "job", "lost_s", "measured", "overhead_s", "placements",
        "preemptions", "rate", "remaining_s", "run_service_s", "since", "started", "suspensions", "swapped_mib",
        "switching_s", "task_count", "truth", "version",
    )  # fmt: skip

    def __init__(self, index: int, job: Job, duration_s: float) -> None:
        self.index = index
        self.job = job
        self.task_count = job.task_count
        self.remaining_s = duration_s
        self.overhead_s = 0.0
        self.placements: tuple[Placement, ...] = ()
        self.attempt = 0
        self.swapped_mib = 0
        self.version = 0
        self.started = False
        self.is_over = False
        self.since = 0.0
        self.rate = 0.0
        self.run_service_s = 0.0
        self.held_since = NEVER
        self.held_s = 0.0
        self.preemptions = 0
        self.lost_s = 0.0
        self.booked_s = 0.0
        self.suspensions = 0
        self.switching_s = 0.0
        self.failures = 0
        self.fails_after_s = NEVER
        self.first_start_at = math.nan
        self.ended_at = math.nan
        self.truth: JobSpeed | None = None
        self.curve: PowerCurve | None = None
        self.cap_w = 0.0
        self.measured = math.nan
        self.caching: tuple[str, ...] = ()

    def advance(self, now: float) -> None:
        """Book the work done since the last call. Overhead is worked off first."""
        done = (now - self.since) * self.rate
        self.since = now
        self.remaining_s = max(self.remaining_s - done, 0.0)
        self.fails_after_s = max(self.fails_after_s - done, 0.0)
        paid = min(self.overhead_s, done)
        self.overhead_s -= paid
        self.run_service_s += done - paid
        self.booked_s += done - paid

    @property
    def cards(self) -> list[str]:
        """UUIDs of the cards that its tasks have."""
        return [grant.device for placement in self.placements for grant in placement.grants]

    def measure(self, at: float) -> ProgressMeasured:
        """The speed of a job has been the same for a while: a server would have measured it.

        Simulated programs take no device memory.
        """
        truth, curve = self.truth, self.curve
        self.measured = self.rate
        gpu_milli = sum(grant.compute_milli for placement in self.placements for grant in placement.grants)
        full = truth.full if truth is not None else 1.0 if curve is None else curve.steps_per_s
        power_w = None if curve is None else curve.drawn_w(self.cap_w) * len(self.cards)
        job, attempt = self.job.id, self.attempt
        rate = self.rate * full
        return ProgressMeasured(at, job, attempt, rate, gpu_milli, power_w=power_w, cap_w=self.cap_w, memory_mib=0)

    @property
    def is_measured(self) -> bool:
        """Whether its steps are counted: its real speed is known to this world."""
        return self.truth is not None or self.curve is not None
