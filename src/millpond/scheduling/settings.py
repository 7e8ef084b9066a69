"""The settings of a scheduler's policies: part of its snapshot, so same settings, same log, same decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.model.policies import orderings_of, placements_of
from millpond.model.policy_trials import ClusterPolicies, PolicyTrial
from millpond.model.resources import TaskRequest
from millpond.model.tenancy.tenants import USAGE_HALF_LIFE_S


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """What ending and restarting a job costs it, as the policy expects, in seconds of its run.

    Attributes:
        small_s: for jobs of up to ``large_above_gpus`` cards.
        large_s: for larger ones.
    """

    small_s: float = 40.0
    large_s: float = 60.0
    large_above_gpus: int = 8

    @property
    def is_free(self) -> bool:
        """Whether a preemption costs nothing."""
        return self.small_s == 0.0 and self.large_s == 0.0

    def of(self, gpu_milli: int) -> float:
        """Seconds that a job of this size loses by one preemption."""
        return self.large_s if gpu_milli > self.large_above_gpus * 1000 else self.small_s


@dataclass(frozen=True, slots=True)
class Settings:
    """Policies of one scheduler.

    Attributes:
        ordering: who is next; see ``model.policies.orderings_of``.
        placement: where it goes; see ``model.policies.placements_of``.
        preempt: the ordering may end running work of the same class for work that goes before it; a higher class may
            end lower work in any case.
        reserve: keep room for the first job that does not fit (EASY), so that it cannot starve.
        usage_half_life_s: time after which past usage counts half.
        typical_mix: request shapes known beforehand with their counts; empty: learnt from what is submitted.
        tiresias_thresholds_gpu_s: attained GPU-seconds at which ``tiresias`` moves a job to its next queue.
        replan_period_s: the published preemptive orderings look at everything at multiples of this; 0: at every event.
        seed: for policies that draw lots.
        trial: the last choice that the server made among policies by itself; decides nothing here.
    """

    ordering: str = "default"
    placement: str = "default"
    preempt: bool = False
    reserve: bool = True
    preemption_cost: PreemptionCost = PreemptionCost()
    usage_half_life_s: float = USAGE_HALF_LIFE_S
    typical_mix: tuple[tuple[TaskRequest, int], ...] = ()
    tiresias_thresholds_gpu_s: tuple[float, ...] = (18_000.0,)
    replan_period_s: float = 0.0
    seed: int = 0
    trial: PolicyTrial | None = None

    def __post_init__(self) -> None:
        orderings_of(self.ordering)
        placements_of(self.placement)

    @property
    def policies(self) -> ClusterPolicies:
        """The policies among them."""
        return ClusterPolicies(self.ordering, self.placement, self.preempt, self.reserve)

    def under(self, policies: ClusterPolicies) -> Settings:
        """The same with other policies.

        Raises:
            InvalidInputError: there are none of these names.
        """
        return replace(
            self,
            ordering=policies.ordering,
            placement=policies.placement,
            preempt=policies.preempt,
            reserve=policies.reserve,
        )
