"""What the pretended world charges: the parameters by which a simulated cluster differs from an ideal one."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.errors import InvalidInputError
from millpond.scheduling.settings import PreemptionCost

NO_PREEMPTION_COST = PreemptionCost(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Costs:
    """In seconds where nothing else is said, and all zero by default.

    Attributes:
        start_s: from the decision to start a job until its work begins; cards are held meanwhile.
        restore_s: the same again for a job that ran before.
        preemption: extra work that a job has to do after it was preempted or moved.
        grace_s: how long a job that is asked to end holds its cards on.
        lost_work_s: work since the last checkpoint that a preempted job repeats; infinity keeps nothing.
        loses_unsaved: a job that does not save its work on notice repeats the whole run.
        suspend_s: what suspending takes, and resuming again.
        swap_mib_per_s: device memory that moves to the host or back in a second; 0: it moves at once.
        sharing_speed: speed of a job on a card that another job uses too, above 0 and up to 1. Dev jobs and services
            last by the clock, not by work: they are not slowed down.
        failing: part of the runs of training jobs that fail, at an even instant of their work, 0 and below 1.
        failures_seed: which of them.
    """

    start_s: float = 0.0
    restore_s: float = 0.0
    preemption: PreemptionCost = NO_PREEMPTION_COST
    grace_s: float = 0.0
    lost_work_s: float = 0.0
    loses_unsaved: bool = False
    sharing_speed: float = 1.0
    suspend_s: float = 0.0
    swap_mib_per_s: float = 0.0
    failing: float = 0.0
    failures_seed: int = 0

    def __post_init__(self) -> None:
        charged = (self.start_s, self.restore_s, self.preemption.small_s, self.preemption.large_s)
        if min(*charged, self.grace_s, self.lost_work_s, self.suspend_s, self.swap_mib_per_s) < 0:
            raise InvalidInputError("a negative cost", "costs are seconds, zero or more")
        if not 0 < self.sharing_speed <= 1:
            raise InvalidInputError(
                f"a speed of {self.sharing_speed} on shared cards", "use a number above 0 and up to 1"
            )
        if not 0 <= self.failing < 1:
            raise InvalidInputError(f"{self.failing} of the runs fail", "use a part below 1, such as 0.01")

    def switching_s(self, swapped_mib: int) -> float:
        """How long a job takes to leave its cards, or to come back, with so much device memory to be moved."""
        moving_s = swapped_mib / self.swap_mib_per_s if self.swap_mib_per_s else 0.0
        return self.suspend_s + moving_s
