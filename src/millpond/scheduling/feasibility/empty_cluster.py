"""What the cluster could take if it were empty and healthy: the impossible is refused before it waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from millpond.model.amounts import count_text, memory_text
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_selection import NodeSelection, selection_text
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.task_spacing import spacing_text
from millpond.model.workloads import Job, Role, Suspendable
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.feasibility.cell_infeasibility import cell_infeasibility
from millpond.scheduling.feasibility.quota_infeasibility import infeasibility_on_open_models, quota_infeasibility
from millpond.scheduling.feasibility.single_tasks import device_memory_mib, holds, task_infeasibility
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.nodes.layout_planner import in_layout
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.gangs import by_place
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.records import TaskRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queues import QueueTree

MOST_TRIALS = 32
"""Smaller gangs that are tried in search of one that would be possible."""


MOST_POOLS = 50
"""Empty twins of pools that are kept: one for each choice of nodes in it, and how many are left of these."""
_LABELS = "see the labels of the nodes, and change them or what it asks for"


MOST_VERDICTS = 1_000
"""Answers kept about one pool."""


class EmptyPool:
    """The nodes of one pool, empty and healthy: whether a gang could be placed if it had the pool for itself."""

    def __init__(
        self, pool: Pool, nodes: tuple[Node, ...], settings: Settings, queues: QueueTree, kernels: KernelSet
    ) -> None:
        self._pool = pool
        self._nodes = nodes
        cluster = Cluster(Journal())
        cluster.set_pool(pool)
        for node in nodes:
            devices = tuple(replace(device, health=DeviceHealth.OK) for device in node.devices)
            cluster.add_node(replace(node, schedulable=True, devices=devices))
        self._placer = Placer(cluster, settings, queues)
        self._placer.use_kernels(kernels)
        self._verdicts: dict[tuple[object, ...], bool] = {}
        self._rooms: dict[Shape, Int64Array] = {}

    def is_of(self, pool: Pool, nodes: tuple[Node, ...]) -> bool:
        """Whether the pool and its nodes are still those it was made of."""
        return pool == self._pool and nodes == self._nodes

    def takes(self, job: Job, counts: Sequence[int]) -> bool:
        """Whether so many tasks of each role can be placed, as near to each other as the job requires."""
        if len(counts) == 1 and not job.spacing:
            return counts[0] <= self.most(job)
        requests = tuple(role.request for role in job.roles)
        key = (requests, tuple(counts), job.together, job.together_required, job.spacing)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= MOST_VERDICTS:
                self._verdicts.clear()
            paired = zip(job.roles, counts, strict=True)
            roles = tuple(Role.rigid(role.request, count, role.name) for role, count in paired)
            verdict = self._verdicts[key] = self._place(replace(job, roles=roles))
        return verdict

    def most(self, job: Job) -> int:
        """How many tasks of a job of one role can be placed: equal tasks are placed wherever counting says they fit."""
        cluster = self._placer.cluster
        shape = cluster.words.shape_of(job.roles[0].request, job.pool)
        room = self._rooms.get(shape)
        if room is None:
            if len(self._rooms) >= MOST_VERDICTS:
                self._rooms.clear()
            everywhere = np.ones(cluster.arrays.node_count, dtype=np.uint8)
            room = self._rooms[shape] = self._placer.selector.member_room(shape, everywhere)
        if job.together_required and job.together <= Level.NODE:
            return int(room.max())
        if job.together_required:
            places = cluster.arrays.rack if job.together is Level.RACK else cluster.arrays.zone
            return int(by_place(places[: len(room)], room).max())
        return int(room.sum())

    def _place(self, job: Job) -> bool:
        indices = [index for index, role in enumerate(job.roles) for _ in range(role.desired)]
        tasks = [TaskRecord(number, job.roles[index].name, index) for number, index in enumerate(indices)]
        journal = self._placer.cluster.journal
        self._placer.selector.rounds = 0  # the answer must not depend on what was asked before
        mark = journal.begin()
        placed = self._placer.place_all(job, tasks)
        journal.rollback(mark)
        return placed is not None


class EmptyCluster:
    """Judges jobs against the cluster of one state as it would be if it were empty and healthy.

    A single task is held against each node. A gang is placed, on an empty twin of its pool, by the placer that will
    place it when its turn comes: what is accepted is what can be started, not what would fit in theory.
    """

    def __init__(self, state: State, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self._pools: dict[tuple[str, NodeSelection, int], EmptyPool] = {}

    def infeasibility(self, job: Job) -> Infeasibility | None:
        """The first thing that makes the job impossible on this cluster; None if it could run on it empty."""
        state = self._state
        if not state.queues.is_leaf(job.queue):
            return _no_such_queue(state, job.queue)
        pool = state.cluster.pools.get(job.pool)
        if pool is None:
            pools = list(state.cluster.pools)
            return Infeasibility(f"there is no pool {job.pool!r}", f"use one of: {', '.join(pools)}", "pool", pools[0])
        nodes = self._nodes_of(pool)
        if not nodes:
            return _no_nodes(pool, sorted({node.pool for node in state.cluster.nodes if node is not None}))
        if job.only_on:
            nodes = self._nodes_of(pool, job.only_on)
            if not nodes:
                asked = selection_text(job.only_on)
                return Infeasibility(f"no node of pool {job.pool!r} is as it asks: {asked}", _LABELS)
        return (
            self._room_infeasibility_in_any_layout(job, pool, nodes)
            or quota_infeasibility(state, job)
            or infeasibility_on_open_models(
                state, job, lambda less: self._room_infeasibility_in_any_layout(less, pool, nodes)
            )
            or cell_infeasibility(
                state, job, nodes, lambda some: self._room_infeasibility_in_any_layout(job, pool, some)
            )
        )

    def swap_infeasibility(self, job: Job) -> Infeasibility | None:
        """Why a possible job that wants to be swapped, not ended, never could be: no node's host memory takes a task.

        It could run all the same, so an accepted job waits as others do when such nodes leave.
        """
        pool = self._state.cluster.pools[job.pool]
        if job.suspendable is not Suspendable.SWAP or not pool.suspends:
            return None
        nodes = self._nodes_of(pool, job.only_on)
        for role in job.roles:
            shape = self._state.cluster.words.shape_of(role.request, job.pool)
            able = [node for node in nodes if holds(node, role.request)]
            needs = [device_memory_mib(node, role.request, shape) for node in able]
            if able and all(node.swap_mib < need for node, need in zip(able, needs, strict=True)):
                return _too_large_to_swap(min(needs), max(node.swap_mib for node in able))
        return None

    def _nodes_of(self, pool: Pool, selection: NodeSelection = ()) -> tuple[Node, ...]:
        return self._state.cluster.hardware_index.nodes_of(pool.name, selection)

    def _room_infeasibility_in_any_layout(self, job: Job, pool: Pool, nodes: tuple[Node, ...]) -> Infeasibility | None:
        """The same where cards may be divided otherwise: as they are, or all that may have a layout in it."""
        infeasibility = self._room_infeasibility(job, pool, nodes)
        if infeasibility is None or not any(node.divisible for node in nodes):
            return infeasibility
        layouts = dict.fromkeys(layout for node in nodes for card in node.divisible for layout in card.layouts)
        for instances in dict.fromkeys(layout.instances for layout in layouts):
            divided = tuple([_divided(node, instances) for node in nodes])
            if self._room_infeasibility(job, pool, divided) is None:
                return None
        return infeasibility

    def _room_infeasibility(self, job: Job, pool: Pool, nodes: tuple[Node, ...]) -> Infeasibility | None:
        """Whether each task fits on a node, and the least of the gang on all."""
        for role in job.roles:
            infeasibility = task_infeasibility(role.request, nodes, exclusive=pool.sharing is SharingPolicy.EXCLUSIVE)
            if infeasibility is not None:
                return infeasibility
        return self._gang_infeasibility(job, pool, nodes)

    def _gang_infeasibility(self, job: Job, pool: Pool, nodes: tuple[Node, ...]) -> Infeasibility | None:
        """Whether the least of the gang fits side by side on the empty pool, together where that is required."""
        counts = tuple(role.minimum for role in job.roles)
        if sum(counts) == 1:
            return None
        job = replace(job, spacing=tuple(rule.of_its_own for rule in job.spacing))
        key = pool.name, job.only_on, len(nodes)
        empty = self._pools.get(key)
        if empty is None or not empty.is_of(pool, nodes):
            state = self._state
            empty = EmptyPool(pool, nodes, state.settings, state.queues, self._placer.kernels)
            if len(self._pools) >= MOST_POOLS:
                self._pools.clear()
            self._pools[key] = empty
        if empty.takes(job, counts):
            return None
        asked = sum(counts)
        if job.together_required:
            apart = replace(job, together=Level.CLUSTER, together_required=False)
            if empty.takes(apart, counts):
                where = "in one zone" if job.together is Level.ZONE else f"on one {job.together.name.lower()}"
                return Infeasibility(
                    f"the gang asks for {asked} tasks {where}; none takes them even when empty",
                    "let them lie apart (topology: any), or ask for fewer tasks",
                    "topology",
                    "any",
                    (("asked", asked),),
                )
        if job.spacing and empty.takes(replace(job, spacing=()), counts):
            return Infeasibility(
                f"the gang asks for {asked} tasks that must {spacing_text(job.spacing)}; this pool has no room for "
                "them so, even when empty",
                "ask for fewer tasks, or add nodes",
                numbers=(("asked", asked),),
            )
        return _too_many(replace(job, spacing=()), counts, empty)


def _divided(node: Node, instances: tuple[str, ...]) -> Node:
    """A node with all of its cards that may have a layout in it."""
    for card in node.divisible:
        for layout in card.layouts:
            if layout.instances == instances:
                node = in_layout(node, (card.card,), layout)
    return node


def _no_such_queue(state: State, queue: str) -> Infeasibility:
    tree = state.queues
    leaves = [node.queue.name for node in tree.leaves()]
    what = f"no queue {queue!r}"
    if queue in tree.by_name:
        leaves = [name for name in leaves if tree.is_below(name, queue)]
        what = f"queue {queue!r} takes no jobs: the queues below it do"
    near = get_close_matches(queue, leaves, 1)
    return Infeasibility(what, f"use one of: {', '.join(leaves)}", "queue", near[0] if near else leaves[0])


def _no_nodes(pool: Pool, others: Sequence[str]) -> Infeasibility:
    """For a pool without nodes, where ``others`` have some."""
    what = f"pool {pool.name!r} has no nodes"
    if not others:
        return Infeasibility(what, "add a node to it")
    return Infeasibility(what, f"add a node to it, or set `pool` to one of: {', '.join(others)}", "pool", others[0])


def _too_large_to_swap(needed_mib: int, most_mib: int) -> Infeasibility:
    return Infeasibility(
        f"it wants to be swapped (suspend: swap, or rest: swap), and the {memory_text(needed_mib)} of device memory of "
        f"a task fit into no node's host memory: the most that one sets aside for that is {memory_text(most_mib)}",
        "ask for less device memory, or have it ended instead (suspend: never)",
        "suspend",
        "never",
        (("asked_mib", needed_mib), ("largest_mib", most_mib)),
    )


def _too_many(job: Job, counts: tuple[int, ...], empty: EmptyPool) -> Infeasibility:
    """The gang as a whole is too much: name the role of which fewer tasks would do, and how many."""
    asked = sum(counts)
    if len(counts) == 1:
        most = empty.most(job)
        return Infeasibility(
            f"the gang asks for {asked} tasks together; this pool holds at most {most} of them even when empty",
            f"ask for at most {count_text(most, 'task')}",
            "tasks",
            str(most),
            (("asked", asked), ("largest", most)),
        )
    trials = MOST_TRIALS
    for index, role in enumerate(job.roles):
        best, too_many = 0, counts[index]
        while best + 1 < too_many and trials:
            trials -= 1
            count = (best + too_many) // 2
            if empty.takes(job, (*counts[:index], count, *counts[index + 1 :])):
                best = count
            else:
                too_many = count
        if best:
            return Infeasibility(
                f"the gang asks for {asked} tasks together, {counts[index]} of them of role {role.name!r}; "
                "no way was found to place them all even on the empty pool",
                f"ask for at most {count_text(best, 'task')} of role {role.name!r}",
                "tasks",
                str(best),
                (("asked", asked), ("largest", asked - counts[index] + best)),
            )
    return Infeasibility(
        f"the gang asks for {asked} tasks together; no way was found to place its roles beside each other "
        "even on the empty pool",
        "use fewer roles, or ask for less in each",
        "roles",
        "",
        (("asked", asked),),
    )
