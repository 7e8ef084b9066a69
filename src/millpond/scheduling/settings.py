"""The settings of a scheduler's policies: part of its snapshot, so same settings, same log, same decisions."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.errors import InvalidInputError
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Kind

ORDERINGS = ("default", "fifo", "sjf", "srtf", "srsf", "ssf", "tiresias", "edf", "fair")
PLACEMENTS = ("default", "fgd", "best-fit", "dot-product", "random", "gandiva", "spread", "auto")
FOR_ALL_KINDS = ("random", "gandiva")
"""Placements that what has been placed before decides: they hold for all kinds of jobs."""


def placements_of(text: str) -> dict[Kind, str]:
    """The placement of each kind of job: one of ``PLACEMENTS`` for all, or such as ``service=spread,train=fgd``.

    Kinds that are not named have the default one.

    Raises:
        InvalidInputError: a placement or a kind is unknown, named twice, or not to be had for some kinds alone.
    """
    if "=" not in text:
        return dict.fromkeys(Kind, _known_placement(text))
    found: dict[Kind, str] = {}
    for part in text.split(","):
        word, _, placement = part.strip().partition("=")
        if word not in list(Kind):
            raise InvalidInputError(f"unknown kind {word!r} in placement {text!r}", f"choose one of {', '.join(Kind)}")
        if Kind(word) in found:
            raise InvalidInputError(f"two placements of kind {word} in {text!r}", "leave one of them out")
        found[Kind(word)] = _known_placement(placement)
        if placement in FOR_ALL_KINDS:
            raise InvalidInputError(
                f"placement {placement!r} of kind {word} alone", "choose it for all kinds, or another"
            )
    return dict.fromkeys(Kind, PLACEMENTS[0]) | found


def _known_placement(name: str) -> str:
    if name not in PLACEMENTS:
        raise InvalidInputError(f"unknown placement {name!r}", f"choose one of {', '.join(PLACEMENTS)}")
    return name


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
        ordering: who is next; one of ``ORDERINGS``.
        placement: where it goes; see ``placements_of``.
        preempt: the ordering may end running work of the same class for work that goes before it.
        preempt_by_priority: a higher class may end lower work.
        reserve: keep room for the first job that does not fit (EASY), so that it cannot starve.
        fair_half_life_s: time after which past usage counts half.
        typical_mix: request shapes known beforehand with their counts; empty: learnt from what is submitted.
        load_weight: how much measured node load counts against a node; 0 is not at all.
        tiresias_thresholds_gpu_s: attained GPU-seconds at which ``tiresias`` moves a job to its next queue.
        replan_period_s: the published preemptive orderings look at everything at multiples of this; 0: at every event.
        seed: for policies that draw lots.
    """

    ordering: str = "default"
    placement: str = "default"
    preempt: bool = False
    preempt_by_priority: bool = True
    reserve: bool = True
    preemption_cost: PreemptionCost = PreemptionCost()
    fair_half_life_s: float = 7 * 86400.0
    typical_mix: tuple[tuple[TaskRequest, int], ...] = ()
    load_weight: int = 0
    tiresias_thresholds_gpu_s: tuple[float, ...] = (18_000.0,)
    replan_period_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ordering not in ORDERINGS:
            raise InvalidInputError(f"unknown ordering {self.ordering!r}", f"choose one of {', '.join(ORDERINGS)}")
        placements_of(self.placement)
