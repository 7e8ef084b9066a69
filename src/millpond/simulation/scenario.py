"""One replay as a value: which trace, which cluster, which policy, which costs. Small enough to send to a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import Node
from millpond.scheduling.settings import Settings
from millpond.simulation import packing, queueing
from millpond.simulation.clusters import capacity_milli, cards_per_node, uniform_cluster
from millpond.simulation.kernel import World
from millpond.simulation.readers import QUEUEING_FORMATS, gavel, openb, read_workload
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.trace import Workload
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.speeds import SpeedTable, read_speeds

PACKING_FORMAT = "openb"
SYNTHETIC_FORMAT = "synthetic"
GAVEL_FORMAT = "gavel"
FORMATS = (PACKING_FORMAT, *QUEUEING_FORMATS, GAVEL_FORMAT, SYNTHETIC_FORMAT)
LARGEST_SEED = 2**32 - 1
PREEMPTIVE_ORDERINGS = frozenset({"default", "learned", "srtf", "srsf", "tiresias"})
"""Orderings that preempt by default."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to replay.

    Attributes:
        jobs: path of the trace; for synthetic workloads, how many jobs.
        nodes: path of a node list; or empty, then ``cluster`` says ``NxG``.
        order: path of an arrival order (packing only); or empty, then arrivals are inflated to ``until``.
        seed: of the arrival order, of synthetic workloads, and of policies that draw lots.
        settings: the policy; ``replay`` fills in the seed and, for packing, the mix.
        load: offered load of a synthetic workload.
        suspends: work may be asked to leave its cards without ending.
        consolidates: work is moved so that whole nodes come free.
        packs_jobs: jobs share the cards of others where that was measured to pay.
        speeds: path of a table of how fast jobs are on which cards; empty: all are as fast on all.
    """

    trace_format: str
    jobs: str
    nodes: str = ""
    cluster: str = ""
    order: str = ""
    until: float = 1.3
    seed: int = 0
    settings: Settings = Settings()
    durations: str = "none"
    costs: Costs = Costs()
    skip_bad_rows: bool = False
    load: float = 0.9
    suspends: bool = False
    speeds: str = ""
    consolidates: bool = False
    packs_jobs: bool = False

    def __post_init__(self) -> None:
        if self.trace_format not in FORMATS:
            raise InvalidInputError(
                f"unknown trace format {self.trace_format!r}", f"choose one of {', '.join(FORMATS)}"
            )
        if bool(self.nodes) == bool(self.cluster):
            raise InvalidInputError(
                "no cluster is given" if not self.nodes else "two clusters are given",
                "give either --cluster NxG, such as 30x8, or --nodes FILE",
            )
        if self.trace_format == GAVEL_FORMAT and not self.speeds:
            raise InvalidInputError(
                "a Gavel trace has steps, whose lengths are not known",
                "give the table of their speeds: --speeds simulation_throughputs.json",
            )
        if self.packs_jobs and not self.speeds:
            raise InvalidInputError(
                "jobs share cards by what is measured, and nothing is of jobs without speeds",
                "give a table of them (--speeds), or leave --packs out",
            )
        if self.packs_jobs and self.suspends:
            raise InvalidInputError("a pool that suspends shares no cards", "leave one of --packs and --suspends out")
        if self.until <= 0:
            raise InvalidInputError(f"arrivals until {self.until} times the cluster", "use a number above 0")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise InvalidInputError(f"a seed of {self.seed}", f"use one from 0 to {LARGEST_SEED}")

    @property
    def packs(self) -> bool:
        """Whether this is a packing trace (pods, no durations)."""
        return self.trace_format == PACKING_FORMAT

    @property
    def seed_matters(self) -> bool:
        """Whether another seed can change anything."""
        drawn = self.packs and not self.order
        return drawn or self.trace_format == SYNTHETIC_FORMAT or self.settings.placement == "random"

    def seeded(self) -> Settings:
        """The policy with this scenario's seed."""
        return replace(self.settings, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Packing:
    """A packing trace that was read: who arrives on which cluster, in which order."""

    nodes: tuple[Node, ...]
    pods: Workload
    order: tuple[int, ...]

    def run(
        self, settings: Settings, *, mix_known: bool = True, progress: Callable[[int], None] | None = None
    ) -> packing.PackingResult:
        """Let the pods arrive; with ``mix_known`` the policy knows their shapes beforehand."""
        settings = packing.packing_settings(settings, self.pods, mix_known=mix_known)
        return packing.pack(self.nodes, self.pods, self.order, settings, progress)


def read_packing(scenario: Scenario) -> Packing:
    """Read the pods and draw their order.

    Raises:
        InvalidInputError: a file is wrong, or a pod could run on no node.
    """
    nodes = _nodes(scenario)
    pods = openb.read_pods(Path(scenario.jobs), skip_bad_rows=scenario.skip_bad_rows)
    pods = packing.admissible_pods(nodes, pods, skip_bad_rows=scenario.skip_bad_rows)
    if scenario.order:
        order = openb.read_order(Path(scenario.order), pods)
    else:
        gpu_milli = [entry.job.gpu_milli for entry in pods.jobs]
        order = packing.inflate(gpu_milli, capacity_milli(nodes), scenario.until, scenario.seed)
    return Packing(nodes, pods, tuple(order))


def read_world(scenario: Scenario) -> World:
    """Read or make the jobs of a queueing trace.

    Raises:
        InvalidInputError: a file is wrong, or a job could never run on this cluster.
    """
    nodes = _nodes(scenario)
    if not capacity_milli(nodes):
        raise InvalidInputError(f"the nodes of {scenario.nodes} have no cards", "give nodes with at least one card")
    speeds = read_speeds(Path(scenario.speeds)) if scenario.speeds else None
    workload = _workload(scenario, nodes, speeds)
    world = World(nodes, workload, scenario.durations, scenario.costs, scenario.suspends, speeds=speeds)
    world = replace(world, consolidates=scenario.consolidates, packs=scenario.packs_jobs)
    _require_speeds(world)
    return queueing.admissible_world(world, skip_bad_rows=scenario.skip_bad_rows)


def _nodes(scenario: Scenario) -> tuple[Node, ...]:
    return openb.read_nodes(Path(scenario.nodes)) if scenario.nodes else uniform_cluster(scenario.cluster)


def _require_speeds(world: World) -> None:
    """Refuse a table that lacks the speed of a job on one of the models of cards before anything is played."""
    models = {device.model for node in world.nodes for device in node.devices}
    for job in {truth.job: truth for truth in world.truths() if truth is not None}.values():
        job.rate(job.job[1], models, is_spread=False, beside=None)


def _workload(scenario: Scenario, nodes: tuple[Node, ...], speeds: SpeedTable | None) -> Workload:
    cards = cards_per_node(nodes)
    if scenario.trace_format == GAVEL_FORMAT and speeds is not None:
        return gavel.read(Path(scenario.jobs), cards, speeds, skip_bad_rows=scenario.skip_bad_rows)
    if scenario.trace_format != SYNTHETIC_FORMAT:
        return read_workload(scenario.trace_format, Path(scenario.jobs), cards, skip_bad_rows=scenario.skip_bad_rows)
    if not scenario.jobs.isdigit():
        raise InvalidInputError(
            f"--jobs {scenario.jobs!r} for a synthetic workload", "give the number of jobs, such as --jobs 2000"
        )
    options = SyntheticOptions(jobs=int(scenario.jobs), load=scenario.load)
    return synthesise(options, capacity_milli(nodes) // 1000, cards, scenario.seed)
