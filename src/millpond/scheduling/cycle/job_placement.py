"""Where a job goes: all its tasks or none, tried on the ledger.

Single tasks take the best node by the chosen score. Gangs go largest task first; gangs of whole nodes take the tightest
single rack, else the fewest racks; a gang that must or should lie together is tried rack by rack or node by node first.
A node mask keeps out what reservations, quotas or cells forbid, without touching the cached scores.

Each kind of job, and each queue, may have a placement of its own: a selector with other tables over the same arrays.
With ``auto`` services spread by load, and large gangs try to lie within one rack; everything else goes by the
default score, which packs slices (``docs/architecture/placement.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millpond.model.hardware.topology import Level
from millpond.model.policies import BY_LOAD, FOR_ALL_KINDS, PLACEMENTS, own_placements_of, placements_of
from millpond.model.workloads import Job, Kind
from millpond.scheduling.elastic.gang_sizes import least_tasks, most_tasks
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.placement.gangs import place_gang
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.mix import LearntMix, TypicalMix
from millpond.scheduling.placement.nearest_contents import nearest_first
from millpond.scheduling.placement.selector import Choice, Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.spaced_gangs import SpacedMembers
from millpond.scheduling.placement.spacing import Spacing
from millpond.scheduling.placement.tables import Scorer, ScoreTables, Weights, build_tables
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.suspension.affinity import Affinities
from millpond.scheduling.suspension.host_memory import nodes_that_swap
from millpond.scheduling.tenancy.queues import QueueTree

Placed = list[tuple[TaskRecord, Holding]]

_SCORERS = {
    "default": Scorer.DEFAULT,
    "fgd": Scorer.FGD,
    "best-fit": Scorer.BEST_FIT,
    "dot-product": Scorer.DOT_PRODUCT,
    "random": Scorer.RANDOM,
    "gandiva": Scorer.BEST_FIT,
    "spread": Scorer.DEFAULT,
    "auto": Scorer.DEFAULT,
}

SPREAD_LOAD = 400.0
"""With ``spread`` a card at full use counts as much worse as if two cards of value were destroyed there."""

LARGE_GANG_MILLI = 16_000
"""With ``auto`` a gang of so much compute should lie within a rack, where it asks for nothing else."""


class Placer:
    """Finds room for jobs on one cluster.

    Attributes:
        mix: the request shapes that scores are built on; learnt from what is submitted unless given.
        held_twice_milli: compute that a trial ledger counts as held twice, so that more is free than its sum says.
    """

    def __init__(self, cluster: Cluster, settings: Settings, queues: QueueTree) -> None:
        self.cluster = cluster
        self._queues = queues
        self.settings = settings
        self.affinities = Affinities(cluster) if settings.placement == "gandiva" else None
        self._placements = placements_of(settings.placement)
        named = set(self._placements.values())
        self._is_for_all = not named.isdisjoint(FOR_ALL_KINDS)
        self._main = named.pop() if len(named) == 1 else PLACEMENTS[0]
        self._others: dict[str, Selector] = {}
        """Of placements other than the main one, made when they are first asked for."""
        self.kernels = interpreted()
        self.mix = LearntMix()
        if settings.typical_mix:
            for request, _ in settings.typical_mix:
                cluster.words.expect_models(request.models)
            counts = [(cluster.words.shape_of(request, ""), count) for request, count in settings.typical_mix]
            self.mix.current = TypicalMix.from_counts(counts)
        self._built_for = self.mix.current, cluster.capacity.by_model()
        """What the tables follow from."""
        self.selector = Selector(cluster.arrays, self._tables(self._main), links=cluster.links)
        self.tables_stale = False
        self.held_twice_milli = 0
        self.allowed_nodes: Callable[[JobRecord, Sequence[TaskRecord]], NodeMask | None] | None = None
        """(nodes,), 0 for those that tasks of a job may not have now; see ``Entitlements.allowed_nodes``."""

    # ---- the mix of requests ------------------------------------------------------------------------------------

    def observe(self, record: JobRecord, now: float) -> None:
        """Count a submitted job's shapes towards the learnt mix."""
        if self.settings.typical_mix:
            return
        for role, shape in zip(record.job.roles, self.cluster.words.shapes_of(record.demand), strict=True):
            if self.mix.observe(shape, now, role.desired):
                self.tables_stale = True

    def capacity_changed(self) -> None:
        """Nodes came, went or changed: what is scarce may be another."""
        self.tables_stale = True

    def _tables(self, placement: str) -> Any:
        settings = self.settings
        weights = Weights(load=SPREAD_LOAD if placement == "spread" else 0.0)
        return build_tables(
            self.mix.current,
            _SCORERS[placement],
            weights,
            capacity_milli=self.cluster.capacity.by_model(),
            seed=settings.seed,
        )

    def rebuild(self, *, stale: bool) -> None:
        """Build the tables for a mix that was just restored; ``stale`` as it was when the mix was saved."""
        self._use_new_tables()
        self.tables_stale = stale

    def refresh(self) -> None:
        """Rebuild the score tables if the mix or the cards of the cluster are others since."""
        if self.tables_stale:
            mix, capacity_milli = self._built_for
            if self.mix.current is not mix or self.cluster.capacity.by_model() != capacity_milli:
                self._use_new_tables()
            self.tables_stale = False

    def _use_new_tables(self) -> None:
        self._built_for = self.mix.current, self.cluster.capacity.by_model()
        self.selector.use_tables(self._tables(self._main))
        self._others.clear()

    def use_tables_of(self, other: Placer) -> None:
        """Score as another placer of the same settings does."""
        self._built_for = other._built_for
        self.selector.use_tables(other.selector.tables)
        for placement, selector in other._others.items():
            self._others[placement] = self._selector(selector.tables)

    def _selector(self, tables: ScoreTables) -> Selector:
        return Selector(self.cluster.arrays, tables, links=self.cluster.links, kernels=self.kernels)

    def draws_lots(self, job: Job) -> bool:
        """Whether each look for a place for tasks of a job draws a lot."""
        return self._selector_of(job).is_random

    def _selector_of(self, job: Job) -> Selector:
        """Who knows the best node for tasks of a job."""
        placement = self._score_of(job)
        if placement in (self._main, "auto"):
            return self.selector
        found = self._others.get(placement)
        if found is None:
            found = self._others[placement] = self._selector(self._tables(placement))
        return found

    def _score_of(self, job: Job) -> str:
        """The placement of a job, with that which ``auto`` has for its services."""
        placement = self._placement_of(job)
        return "spread" if placement == "auto" and job.kind is Kind.SERVICE else placement

    def _placement_of(self, job: Job) -> str:
        """The placement of a job by name: of its queue, or the nearest above, for its kind; else the cluster's."""
        if not self._is_for_all:
            for node in self._queues.by_name[job.queue].path:
                if node.queue.placement and (name := own_placements_of(node.queue.placement).get(job.kind)):
                    return name
        return self._placements[job.kind]

    def load_of(self, job: Job, placed: Placed) -> int | None:
        """What others use of the busiest card of a place that is taken; None where load does not decide about a job."""
        if self._score_of(job) != "spread" or not any(holding.devices for _, holding in placed):
            return None
        return max(self.cluster.loads.beside_milli(holding) for _, holding in placed)

    @property
    def counts_any_load(self) -> bool:
        """Whether measured load decides where jobs of any kind or queue go."""
        own = (own_placements_of(node.queue.placement).values() for node in self._queues.by_name.values())
        return any(not BY_LOAD.isdisjoint(names) for names in (self._placements.values(), *own))

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; decisions are the same."""
        self.kernels = kernels
        for selector in (self.selector, *self._others.values()):
            selector.use_kernels(kernels)

    # ---- placing ------------------------------------------------------------------------------------------------

    def place(
        self,
        record: JobRecord,
        mask: NodeMask | None = None,
        tasks: Sequence[TaskRecord] | None = None,
    ) -> Placed | None:
        """Take holdings for a job's tasks, in the open transaction; None, and nothing taken, if they do not fit.

        An elastic role may get fewer than are asked for, not fewer than its minimum.

        Args:
            mask: (nodes,), 0 keeps a node out.
            tasks: which of its tasks; all that wait unless given.
        """
        if tasks is None:
            tasks = record.tasks if len(record.tasks) == 1 else record.queued()
        mask = self.within_allowed(record, least_tasks(record.job, tasks), mask)
        swapping = nodes_that_swap(self.cluster, record, mask)
        if swapping is None:
            return self._place_by_affinity(record, tasks, mask)
        for step in (swapping, mask):
            placed = self._place_by_affinity(record, tasks, step)
            if placed is not None:
                return placed
        return None

    def within_allowed(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> NodeMask | None:
        """A mask without nodes that tasks of a job may not have now, by its own choice or for their models."""
        allowed = None if self.allowed_nodes is None else self.allowed_nodes(record, tasks)
        if allowed is None or mask is None:
            return mask if allowed is None else allowed
        within: NodeMask = mask & allowed[: len(mask)]
        return within

    def _place_by_affinity(
        self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None
    ) -> Placed | None:
        if self.affinities is None:
            return self._place(record, tasks, mask)
        for step in self.affinities.masks(record, mask):
            placed = self._place(record, tasks, step)
            if placed is not None:
                return placed
        return None

    def _place(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Placed | None:
        """On the nodes that fetch what it lacks soonest, all of these tasks; else on any."""
        times = self.cluster.contents.fetch_times(record.job.contents) if record.job.contents else None
        if times is not None:
            for step in nearest_first(times, record.expected_s or 0.0, mask):
                near = self.within_allowed(record, tasks, step) if record.elastic else step
                placed = self._place_all_of(record, tasks, near)
                if placed is not None:
                    return placed
        return self._place_anywhere(record, tasks, mask)

    def _place_anywhere(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Placed | None:
        job = record.job
        if not record.elastic or len(record.tasks) == 1:
            return self._place_all_of(record, tasks, mask)

        def place(some: Sequence[TaskRecord]) -> Placed | None:
            # Fewer tasks may be allowed on models of cards that more of them are not.
            return self.place_all(job, some, self.within_allowed(record, some, mask))

        def fits(some: list[TaskRecord]) -> bool:
            mark = journal.begin()
            trial = place(some)
            journal.rollback(mark)
            return trial is not None

        journal = self.cluster.journal
        return place(tasks) or place(most_tasks(job, tasks, fits))

    def place_some(
        self,
        record: JobRecord,
        tasks: Sequence[TaskRecord],
        mask: NodeMask | None = None,
        beside: Sequence[tuple[TaskRecord, Holding]] = (),
    ) -> Placed:
        """Take holdings for as many of these tasks of a job as fit, first to last.

        Args:
            beside: others of its tasks, and what was taken for them.
        """
        job, mask = record.job, self.within_allowed(record, tasks, mask)
        spacing = spacing_of(self.cluster, job, record.tasks)
        if spacing is not None:
            for task, holding in beside:
                spacing.take(task.role_index, holding.node)
        placed: Placed = []
        for task in tasks:
            shape = self.cluster.words.shape_of(job.roles[task.role_index].request, job.pool)
            allowed = mask if spacing is None else spacing.within(task.role_index, mask)
            choice = self._selector_of(job).place(shape, allowed)
            if choice is None:
                break
            placed.append((task, self.take(shape, choice)))
            if spacing is not None:
                spacing.take(task.role_index, choice.node)
        return placed

    def _place_all_of(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Placed | None:
        """``place_all``, for a job of one task without what only gangs need."""
        if len(record.tasks) != 1 or len(tasks) != 1 or record.job.spacing:
            return self.place_all(record.job, tasks, mask)
        shape = self.cluster.words.shapes_of(record.demand)[0]
        choice = self.choose(record.job, shape, mask)
        return None if choice is None else [(tasks[0], self.take(shape, choice))]

    def place_all(self, job: Job, tasks: Sequence[TaskRecord], mask: NodeMask | None = None) -> Placed | None:
        """Take holdings for all of these tasks, as near to each other as the job asks; None, and nothing taken, if not.

        ``mask`` is as in ``place``.
        """
        shapes = [self.cluster.words.shape_of(role.request, job.pool) for role in job.roles]
        members = [shapes[task.role_index] for task in tasks]
        if not members or self._exceeds_all(sum(shape.total_compute_milli for shape in members)):
            return None
        transaction, spacing = _Taking(self), spacing_of(self.cluster, job)
        found = place_gang(
            self._selector_of(job),
            members,
            transaction,
            level=self._level_of(job, members),
            required=job.together_required,
            node_mask=mask,
            spaced=None if spacing is None else SpacedMembers(tuple(task.role_index for task in tasks), spacing),
        )
        transaction.close(keep=found is not None)
        if found is None:
            return None
        chosen = zip(tasks, members, found.choices, strict=True)
        return [(task, transaction.pop(shape, choice)) for task, shape, choice in chosen]

    def _level_of(self, job: Job, members: Sequence[Shape]) -> Level:
        """Within what a gang must or should lie."""
        level = max(job.together, Level.NODE)
        if job.together_required:
            return level
        if level >= Level.ZONE and len(members) > 1 and self._placement_of(job) == "auto":
            is_large = sum(shape.total_compute_milli for shape in members) >= LARGE_GANG_MILLI
            return Level.RACK if is_large else level
        return level

    def choose(self, job: Job, shape: Shape, mask: NodeMask | None) -> Choice | None:
        """The best place for one task of a job; None if there is none, at once where too little is free in all."""
        if self._exceeds_all(shape.total_compute_milli):
            return None
        return self._selector_of(job).place(shape, mask)

    def _exceeds_all(self, milli: int) -> bool:
        """Whether so much compute is more than is free in all."""
        return milli > self.cluster.free_gpu_milli + self.held_twice_milli

    def may_fit(self, shapes: Sequence[Shape], mask: NodeMask | None) -> list[bool]:
        """(shapes,) whether there would be room for one task of each on some node of a mask, were it alone."""
        if self.selector.is_random:
            return [True] * len(shapes)  # to look is to draw a lot
        if mask is None:
            return self.selector.fit_anywhere(shapes)
        return [self.selector.place(shape, mask) is not None for shape in shapes]

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


def spacing_of(cluster: Cluster, job: Job, tasks: Sequence[TaskRecord] = ()) -> Spacing | None:
    """What tasks of a job must keep between them; None: nothing.

    Args:
        tasks: those that hold something of these count as lying where they are.
    """
    if not job.spacing:
        return None
    lying = [(task.role_index, task.holding.node) for task in tasks if task.holding is not None]
    return Spacing(job.spacing, [role.name for role in job.roles], cluster.hardware_index.places_by, lying)
