"""Where a job goes: all its tasks or none, tried on the ledger.

Single tasks take the best node by the chosen score. Gangs go largest task first; gangs of whole nodes take the tightest
single rack, else the fewest racks; a gang that must or should lie together is tried rack by rack or node by node first.
A node mask keeps out what reservations, quotas or cells forbid, without touching the cached scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millpond.model.topology import Level
from millpond.model.workloads import Job
from millpond.scheduling.elastic.gang_sizes import most_tasks
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.gangs import place_gang
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.mix import LearntMix, TypicalMix
from millpond.scheduling.placement.selector import Choice, Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import Scorer, Weights, build_tables
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.suspension.affinity import Affinities
from millpond.scheduling.suspension.host_memory import nodes_that_swap

NodeMask = NDArray[np.uint8]
Placed = list[tuple[TaskRecord, Holding]]

_SCORERS = {
    "default": Scorer.DEFAULT,
    "fgd": Scorer.FGD,
    "best-fit": Scorer.BEST_FIT,
    "dot-product": Scorer.DOT_PRODUCT,
    "random": Scorer.RANDOM,
    "gandiva": Scorer.BEST_FIT,
}


class Placer:
    """Finds room for jobs on one cluster.

    Attributes:
        mix: the request shapes that scores are built on; learnt from what is submitted unless given.
    """

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster = cluster
        self.settings = settings
        self.affinities = Affinities(cluster) if settings.placement == "gandiva" else None
        self.kernels = interpreted()
        self.mix = LearntMix()
        if settings.typical_mix:
            for request, _ in settings.typical_mix:
                cluster.words.expect_models(request.models)
            counts = [(cluster.words.shape_of(request, ""), count) for request, count in settings.typical_mix]
            self.mix.current = TypicalMix.from_counts(counts)
        self.selector = Selector(cluster.arrays, self._tables(), links=cluster.links)
        self.tables_stale = False

    # ---- the mix of requests ------------------------------------------------------------------------------------

    def observe(self, record: JobRecord, now: float) -> None:
        """Count a submitted job's shapes towards the learnt mix."""
        if self.settings.typical_mix:
            return
        for role, shape in zip(record.job.roles, self.cluster.words.shapes_of(record.demand), strict=True):
            if self.mix.observe(shape, now, role.desired):
                self.tables_stale = True

    def capacity_changed(self) -> None:
        """Nodes came or went: what is scarce may have changed."""
        self.tables_stale = True

    def _tables(self) -> Any:
        settings = self.settings
        weights = Weights(load=float(settings.load_weight))
        return build_tables(
            self.mix.current,
            _SCORERS[settings.placement],
            weights,
            capacity_milli=self.cluster.capacity_by_model(),
            seed=settings.seed,
        )

    def rebuild(self, *, stale: bool) -> None:
        """Build the tables for a mix that was just restored; ``stale`` as it was when the mix was saved."""
        self.selector.use_tables(self._tables())
        self.tables_stale = stale

    def refresh(self) -> None:
        """Rebuild the score tables if the mix or the cluster has changed since."""
        if self.tables_stale:
            self.selector.use_tables(self._tables())
            self.tables_stale = False

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; decisions are the same."""
        self.kernels = kernels
        self.selector.use_kernels(kernels)

    # ---- placing ------------------------------------------------------------------------------------------------

    def place(
        self,
        record: JobRecord,
        mask: NodeMask | None = None,
        spare: Int64Array | None = None,
        tasks: Sequence[TaskRecord] | None = None,
    ) -> Placed | None:
        """Take holdings for a job's tasks, in the open transaction; None, and nothing taken, if they do not fit.

        An elastic role may get fewer than are asked for, not fewer than its minimum.

        Args:
            mask: (nodes,), 0 keeps a node out.
            spare: (4,), wholly free cells that may still be broken, by switch, socket, node and rack.
            tasks: which of its tasks; all that wait unless given.
        """
        if tasks is None:
            tasks = record.tasks if len(record.tasks) == 1 else record.queued()
        swapping = nodes_that_swap(self.cluster, record, mask)
        if swapping is None:
            return self._place_by_affinity(record, tasks, mask, spare)
        for step in (swapping, mask):
            placed = self._place_by_affinity(record, tasks, step, spare)
            if placed is not None:
                return placed
        return None

    def _place_by_affinity(
        self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None, spare: Int64Array | None
    ) -> Placed | None:
        if self.affinities is None:
            return self._place(record, tasks, mask, spare)
        for step in self.affinities.masks(record, mask):
            placed = self._place(record, tasks, step, spare)
            if placed is not None:
                return placed
        return None

    def _place(
        self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None, spare: Int64Array | None
    ) -> Placed | None:
        job = record.job
        if len(record.tasks) == 1 and len(tasks) == 1:
            shape = self.cluster.words.shapes_of(record.demand)[0]
            choice = self.choose(shape, mask, spare)
            return None if choice is None else [(tasks[0], self.take(shape, choice))]
        placed = self.place_all(job, tasks, mask, spare)
        if placed is not None or not record.elastic:
            return placed
        journal = self.cluster.journal

        def fits(some: list[TaskRecord]) -> bool:
            mark = journal.begin()
            trial = self.place_all(job, some, mask, spare)
            journal.rollback(mark)
            return trial is not None

        return self.place_all(job, most_tasks(job, tasks, fits), mask, spare)

    def place_some(self, job: Job, tasks: Sequence[TaskRecord], mask: NodeMask | None = None) -> Placed:
        """Take holdings for as many of these tasks as fit, first to last."""
        placed: Placed = []
        for task in tasks:
            shape = self.cluster.words.shape_of(job.roles[task.role_index].request, job.pool)
            choice = self.selector.place(shape, mask)
            if choice is None:
                break
            placed.append((task, self.take(shape, choice)))
        return placed

    def place_all(
        self, job: Job, tasks: Sequence[TaskRecord], mask: NodeMask | None = None, spare: Int64Array | None = None
    ) -> Placed | None:
        """Take holdings for all of these tasks, as near to each other as the job asks; None, and nothing taken, if not.

        ``mask`` and ``spare`` are as in ``place``.
        """
        shapes = [self.cluster.words.shape_of(role.request, job.pool) for role in job.roles]
        members = [shapes[task.role_index] for task in tasks]
        if not members or sum(shape.total_compute_milli for shape in members) > self.cluster.free_gpu_milli:
            return None
        transaction = _Taking(self)
        found = place_gang(
            self.selector,
            members,
            transaction,
            level=min(max(job.together, Level.NODE), Level.ZONE),
            required=job.together_required,
            node_mask=mask,
            level_spare=spare,
        )
        transaction.close(keep=found is not None)
        if found is None:
            return None
        chosen = zip(tasks, members, found.choices, strict=True)
        return [(task, transaction.pop(shape, choice)) for task, shape, choice in chosen]

    def choose(self, shape: Shape, mask: NodeMask | None, spare: Int64Array | None = None) -> Choice | None:
        """The best place for one task now; None if there is none, at once where too little is free in all."""
        if shape.total_compute_milli > self.cluster.free_gpu_milli:
            return None
        return self.selector.place(shape, mask, spare)

    def may_fit(self, demand: RequestClass, mask: NodeMask | None) -> bool:
        """Whether each of the fewest tasks that can start would have room on some node of a mask, were it alone."""
        if self.selector.is_random:
            return True  # to look is to draw a lot
        if demand.least_amount.gpu_milli > self.cluster.free_gpu_milli:
            return False
        shapes = self.cluster.words.shapes_of(demand)
        return all(
            self.selector.may_fit(shape) if mask is None else self.choose(shape, mask) is not None
            for role, shape in zip(demand.roles, shapes, strict=True)
            if role.minimum
        )

    def take(self, shape: Shape, choice: Choice) -> Holding:
        """Hold what a choice says."""
        cluster = self.cluster
        first = cluster.arrays.first_device_cells[choice.node]
        holding = cluster.holding(choice.node, shape, [first + device for device in choice.devices])
        cluster.change(holding, HoldState.RUNNING)
        return holding

    def take_on(self, node: int, shape: Shape) -> Holding | None:
        """Hold room for the shape on this very node; None if there is none."""
        devices = self.selector.choose_devices(node, shape)
        return None if devices is None else self.take(shape, Choice(node, 0, devices))


class _Taking:
    """A gang's trial: what it takes."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._journal = placer.cluster.journal
        self._mark = self._journal.begin()
        self._taken: dict[tuple[int, tuple[int, ...], Shape], list[Holding]] = {}

    def apply(self, node: int, shape: Shape, devices: tuple[int, ...]) -> None:
        """Hold the shape on the devices (by index on the node)."""
        holding = self._placer.take(shape, Choice(node, 0, devices))
        self._taken.setdefault((node, devices, shape), []).append(holding)

    def rollback(self) -> None:
        """Give back everything taken so far."""
        self._journal.rollback(self._mark)
        self._mark = self._journal.begin()
        self._taken.clear()

    def close(self, *, keep: bool) -> None:
        """End the trial."""
        if keep:
            self._journal.commit()
        else:
            self._journal.rollback(self._mark)

    def pop(self, shape: Shape, choice: Choice) -> Holding:
        """The holding that realises a choice; each is returned once."""
        return self._taken[choice.node, choice.devices, shape].pop(0)
