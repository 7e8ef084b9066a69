"""Under which conventions the published figures of each trace were made, so that a replay can be held against them.

Muri's simulator (Zhao et al., SIGCOMM'22, github pkusys/Muri) re-places all work at every event and charges nothing for
a preemption; its Tiresias has queues up to 3,250 and 7,200 GPU-seconds. Lucid's simulator (Hu et al., ASPLOS'23, github
S-Lab-System-Group/Lucid), with which the Philly case was measured, adds 40 s of work to a preempted job of up to eight
cards and 60 s above, and lets Tiresias decide once a minute, with one threshold of 18,000 GPU-seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.policies import without_weights
from millpond.scheduling.settings import PreemptionCost
from millpond.simulation.world.costs import NO_PREEMPTION_COST


@dataclass(frozen=True, slots=True)
class Conventions:
    """Defaults of one trace format.

    Attributes:
        preemption: what a preemption costs.
        tiresias_thresholds_gpu_s: where ``tiresias`` moves a job to its next queue.
        tiresias_period_s: how often ``tiresias`` decides; 0 is at every event.
    """

    preemption: PreemptionCost = PreemptionCost()
    tiresias_thresholds_gpu_s: tuple[float, ...] = (18_000.0,)
    tiresias_period_s: float = 60.0


MURI = Conventions(NO_PREEMPTION_COST, (3_250.0, 7_200.0), 0.0)


def conventions_of(trace_format: str) -> Conventions:
    """The conventions of a format; those of the Philly case where nothing was published."""
    return MURI if trace_format == "muri" else Conventions()


_ITS_OWN = ("default", "learned")


def default_placement(trace_format: str, ordering: str) -> str:
    """The default placement: the published orderings were measured with consolidated best-fit."""
    return "default" if trace_format == "openb" or without_weights(ordering) in _ITS_OWN else "best-fit"
