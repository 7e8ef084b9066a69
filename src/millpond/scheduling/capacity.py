"""What the cluster could take if it were empty and healthy: the impossible is refused before it waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from millpond.model.devices import Device, Health
from millpond.model.nodes import Node, Pool, SharingPolicy
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, Amount, SliceRequest, TaskRequest
from millpond.model.topology import Level
from millpond.model.workloads import Job, Role, Suspendable
from millpond.scheduling.cluster import Cluster
from millpond.scheduling.journal import Journal
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.gangs import by_rack
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placing import Placer
from millpond.scheduling.records import TaskRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import State

MOST_VERDICTS = 1_000
"""Answers kept about one pool."""

_WITHOUT_CARDS = "ask for no GPUs; where there should be some, `pond doctor` says on the machine why none was found"

MOST_TRIALS = 32
"""Smaller gangs that are tried in search of one that would be possible."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a job can never run here, and what would mend it: a field of the job and a value for it."""

    what: str
    remedy: str = ""
    field: str = ""
    value: str = ""
    numbers: tuple[tuple[str, int], ...] = ()


class Capacity:
    """Judges jobs against the cluster of one state as it would be if it were empty and healthy.

    A single task is held against each node. A gang is placed, on an empty twin of its pool, by the placer that will
    place it when its turn comes: what is accepted is what can be started, not what would fit in theory.
    """

    def __init__(self, state: State, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self._pools: dict[str, EmptyPool] = {}

    def obstacle(self, job: Job) -> Obstacle | None:
        """The first thing that makes the job impossible on this cluster; None if it could run on it empty."""
        state = self._state
        if not state.queues.is_leaf(job.queue):
            leaves = [node.queue.name for node in state.queues.leaves()]
            near = get_close_matches(job.queue, leaves, 1)
            return Obstacle(
                f"queue {job.queue!r} takes no jobs",
                f"use one of: {', '.join(leaves)}",
                "queue",
                near[0] if near else leaves[0],
            )
        pool = state.cluster.pools.get(job.pool)
        if pool is None:
            pools = ", ".join(state.cluster.pools)
            return Obstacle(
                f"there is no pool {job.pool!r}", f"use one of: {pools}", "pool", next(iter(state.cluster.pools))
            )
        nodes = [node for node in state.cluster.nodes if node is not None and node.pool == job.pool]
        if not nodes:
            return Obstacle(f"pool {job.pool!r} has no nodes", "add a node to it, or use another pool", "pool", "")
        for role in job.roles:
            obstacle = _role_obstacle(role, nodes, exclusive=pool.sharing is SharingPolicy.EXCLUSIVE)
            if obstacle is not None:
                return obstacle
        return self._gang_obstacle(job, pool, nodes) or _limit_obstacle(state, job)

    def swap_obstacle(self, job: Job) -> Obstacle | None:
        """Why a possible job that wants to be swapped, not ended, never could be: no node's host memory takes a task.

        It could run all the same, so whoever was accepted waits as others do when such nodes leave.
        """
        if job.suspendable is not Suspendable.SWAP or not self._state.cluster.pools[job.pool].suspends:
            return None
        nodes = [node for node in self._state.cluster.nodes if node is not None and node.pool == job.pool]
        for role in job.roles:
            shape = self._state.cluster.words.shape_of(role.request, job.pool)
            able = [node for node in nodes if _holds(node, role.request)]
            needs = [_device_memory_mib(node, role.request, shape) for node in able]
            if all(node.swap_mib < need for node, need in zip(able, needs, strict=True)):
                return _too_large_to_swap(min(needs), max(node.swap_mib for node in able))
        return None

    def _gang_obstacle(self, job: Job, pool: Pool, nodes: list[Node]) -> Obstacle | None:
        """Whether the least of the gang fits side by side on the empty pool, together where that is required."""
        counts = tuple(role.minimum for role in job.roles)
        if sum(counts) == 1:
            return None
        empty = self._pools.get(pool.name)
        if empty is None or not empty.is_of(pool, nodes):
            empty = self._pools[pool.name] = EmptyPool(pool, nodes, self._state.settings, self._placer.kernels)
        if empty.takes(job, counts):
            return None
        asked = sum(counts)
        if job.together_required and job.together < Level.ZONE:
            apart = replace(job, together=Level.ZONE, together_required=False)
            if empty.takes(apart, counts):
                where = "rack" if job.together is Level.RACK else "node"
                return Obstacle(
                    f"the gang asks for {asked} tasks on one {where}; no {where} takes them even when empty",
                    "let them lie apart (topology: any), or ask for fewer tasks",
                    "topology",
                    "any",
                    (("asked", asked),),
                )
        return _too_many(job, counts, empty)


def _too_large_to_swap(needed_mib: int, most_mib: int) -> Obstacle:
    return Obstacle(
        f"it wants to be swapped (suspend: swap, or rest: swap), and the {needed_mib} MiB of device memory of a task "
        f"fit into no node's host memory: the most that one sets aside for that is {most_mib} MiB",
        "ask for less device memory, or have it ended instead (suspend: never)",
        "suspend",
        "never",
        (("asked_mib", needed_mib), ("largest_mib", most_mib)),
    )


def _too_many(job: Job, counts: tuple[int, ...], empty: EmptyPool) -> Obstacle:
    """The gang as a whole is too much: name the role of which fewer tasks would do, and how many."""
    asked = sum(counts)
    if len(counts) == 1:
        most = empty.most(job)
        return Obstacle(
            f"the gang asks for {asked} tasks together; this pool holds at most {most} of them even when empty",
            f"ask for at most {most} task{'s' * (most != 1)}",
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
            return Obstacle(
                f"the gang asks for {asked} tasks together, {counts[index]} of them of role {role.name!r}; "
                "no way was found to place them all even on the empty pool",
                f"ask for at most {best} task{'s' * (best != 1)} of role {role.name!r}",
                "tasks",
                str(best),
                (("asked", asked), ("largest", asked - counts[index] + best)),
            )
    return Obstacle(
        f"the gang asks for {asked} tasks together; no way was found to place its roles beside each other "
        "even on the empty pool",
        "use fewer roles, or ask for less in each",
        "roles",
        "",
        (("asked", asked),),
    )


class EmptyPool:
    """The nodes of one pool with nobody on them and nothing wrong with them."""

    def __init__(self, pool: Pool, nodes: list[Node], settings: Settings, kernels: KernelSet) -> None:
        self._pool = pool
        self._nodes = nodes
        cluster = Cluster(Journal())
        cluster.set_pool(pool)
        for node in nodes:
            devices = tuple(replace(device, health=Health.OK) for device in node.devices)
            cluster.add_node(replace(node, schedulable=True, devices=devices))
        self._placer = Placer(cluster, settings)
        self._placer.use_kernels(kernels)
        self._verdicts: dict[tuple[object, ...], bool] = {}
        self._rooms: dict[Shape, Int64Array] = {}

    def is_of(self, pool: Pool, nodes: list[Node]) -> bool:
        """Whether the pool and its nodes are still those it was made of."""
        return pool == self._pool and nodes == self._nodes

    def takes(self, job: Job, counts: Sequence[int]) -> bool:
        """Whether so many tasks of each role can be placed, as near to each other as the job requires."""
        if len(counts) == 1:
            return counts[0] <= self.most(job)
        key = (tuple(role.request for role in job.roles), tuple(counts), job.together, job.together_required)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= MOST_VERDICTS:
                self._verdicts.clear()
            roles = tuple(Role.rigid(role.request, count) for role, count in zip(job.roles, counts, strict=True))
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
        if job.together_required and job.together is Level.RACK:
            return int(by_rack(cluster.arrays.rack[: len(room)], room).max())
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


def _role_obstacle(role: Role, nodes: list[Node], *, exclusive: bool) -> Obstacle | None:
    request = role.request
    known = sorted({device.model for node in nodes for device in node.devices})
    if request.models and not set(request.models) & set(known):
        near = [model for wanted in request.models for model in get_close_matches(wanted, known, 1, cutoff=0.4)]
        offer = f"this pool has {', '.join(known)}" if known else "this pool has no GPUs"
        wanted = " or ".join(map(repr, request.models))
        return Obstacle(f"no node has a GPU model {wanted}", offer, "gpu_models", near[0] if near else "")
    if exclusive and request.devices and request.slice.compute_milli < CARD_MILLI:
        part = f"{request.gpu_milli} milli" if request.gpu_milli else f"{request.slice.memory_mib} MiB"
        return Obstacle(f"{part} of a card in a pool of whole cards", "ask for whole GPUs", "gpus", "1")
    if any(_holds(node, request) for node in nodes):
        return None
    return _largest_obstacle(request, nodes)


def _largest_obstacle(request: TaskRequest, nodes: list[Node]) -> Obstacle:
    """No node holds one task: name the amount that is too large, or say that no node has all of it together."""
    most_cpu = max(node.cpu_milli for node in nodes)
    most_memory = max(node.memory_mib for node in nodes)
    most_cards = max(_cards_of(node, request) for node in nodes)
    if request.devices > most_cards:
        wanted = f"{request.devices} GPU{'s' * (request.devices != 1)}"
        kind = f" of {' or '.join(request.models)}" if request.models else ""
        anyhow = max(_cards_of(node, replace(request, slice=SliceRequest())) for node in nodes)
        if request.devices <= anyhow:
            return _card_obstacle(request, nodes)
        remedy = f"ask for at most {most_cards} a task and use more tasks" if most_cards else _WITHOUT_CARDS
        return Obstacle(
            f"a task asks for {wanted}{kind}; the largest node has {most_cards}",
            remedy,
            "gpus",
            str(most_cards),
            (("asked", request.devices), ("largest", most_cards)),
        )
    for what, asked, most, name, value in (
        ("CPUs", request.cpu_milli / 1000, most_cpu / 1000, "cpus", f"{most_cpu / 1000:g}"),
        ("MiB of memory", request.memory_mib, most_memory, "memory", f"{most_memory}MiB"),
    ):
        if asked > most:
            return Obstacle(
                f"a task asks for {asked:g} {what}; the largest node has {most:g}",
                f"ask for at most {most:g}",
                name,
                value,
                (("asked", int(asked)), ("largest", int(most))),
            )
    for name, amount in request.extras:
        most = max(dict(node.extras).get(name, 0) for node in nodes)
        if amount > most:
            return Obstacle(
                f"a task asks for {amount} of {name!r}; the largest node has {most}", "ask for less", "extras", ""
            )
    return Obstacle(
        "no node has this much of GPUs, CPU and memory together", "ask for fewer CPUs or less memory a GPU", "cpus", ""
    )


def _card_obstacle(request: TaskRequest, nodes: list[Node]) -> Obstacle:
    """There are cards, but none with as much memory as the slice asks for, or such a slice of each is too small."""
    cards = [card for node in nodes for card in node.devices if not request.models or card.model in request.models]
    if any(_is_too_small(card, request.slice) for card in cards):
        least = 1 + min(card.context_mib for card in cards)
        return Obstacle(
            f"a task asks for a slice in which nothing can run: a program's context alone takes {least - 1} MiB of it",
            f"ask for at least {least} MiB of a card's memory",
            "gpus.memory",
            f"{least}MiB",
            (("least_mib", least),),
        )
    asked, most = request.slice.memory_mib, max(card.memory_mib for card in cards)
    if most == 0:
        return Obstacle("how much memory the cards have is unknown, so none is cut", "ask for whole cards", "gpus", "1")
    return Obstacle(
        f"a task asks for {asked} MiB of a card's memory; the largest card has {most}",
        f"ask for at most {most} MiB of memory, or for whole cards",
        "gpus.memory",
        f"{most}MiB",
        (("asked", asked), ("largest", most)),
    )


def _limit_obstacle(state: State, job: Job) -> Obstacle | None:
    asked = Amount(
        sum(role.minimum * role.request.gpu_milli for role in job.roles),
        sum(role.minimum * role.request.cpu_milli for role in job.roles),
        sum(role.minimum * role.request.memory_mib for role in job.roles),
    )
    for node in state.queues.by_name[job.queue].path:
        limit = node.queue.limit
        if limit is None:
            continue
        for what, field, wanted, most in (
            ("GPUs", "gpus", asked.gpu_milli / 1000, limit.gpu_milli / 1000),
            ("CPUs", "cpus", asked.cpu_milli / 1000, limit.cpu_milli / 1000 or float("inf")),
            ("MiB of memory", "memory", asked.memory_mib, limit.memory_mib or float("inf")),
        ):
            if wanted > most:
                return Obstacle(
                    f"the job asks for {wanted:g} {what}; queue {node.queue.name!r} never holds more than {most:g}",
                    "ask for fewer, or have the limit raised",
                    field,
                    f"{most:g}",
                    (("asked", int(wanted)), ("limit", int(most))),
                )
    return _account_obstacle(state, job, asked)


def _account_obstacle(state: State, job: Job, asked: Amount) -> Obstacle | None:
    """A limit of the job's user, or of the group whose queue it is, that the job breaks all by itself."""
    limit = state.limits.never_admits(job, asked)
    if limit is None:
        return None
    who = f"user {limit.user!r}" if limit.user else f"queue {limit.queue!r}"
    for what, field, wanted, most in (
        ("GPUs", "gpus", asked.gpu_milli, limit.gpu_milli),
        ("CPUs", "cpus", asked.cpu_milli, limit.cpu_milli),
    ):
        if most is not None and wanted > most:
            return Obstacle(
                f"the job asks for {wanted / 1000:g} {what}; {who} never holds more than {most / 1000:g}",
                "ask for fewer, or have the limit raised",
                field,
                f"{most / 1000:g}",
                (("asked", wanted), ("limit", most)),
            )
    return Obstacle(f"{who} may run no jobs", "have the limit raised")


def _holds(node: Node, request: TaskRequest) -> bool:
    extras = dict(node.extras)
    return (
        node.cpu_milli >= request.cpu_milli
        and node.memory_mib >= request.memory_mib
        and _cards_of(node, request) >= request.devices
        and all(extras.get(name, 0) >= amount for name, amount in request.extras)
    )


def _device_memory_mib(node: Node, request: TaskRequest, shape: Shape) -> int:
    """The least device memory that a task takes there, on all its devices."""
    models = (device for device in node.devices if not request.models or device.model in request.models)
    return sum(sorted(shape.memory_on(device.memory_mib) for device in models)[: request.devices])


def _cards_of(node: Node, request: TaskRequest) -> int:
    """Devices of the node that could hold one device's part of the request; of unknown memory nothing can be cut."""
    memory = request.slice.memory_mib
    by_memory_alone = request.slice.compute_milli == 0
    return sum(
        (not request.models or device.model in request.models)
        and (memory == SHARE_OF_CARD or device.memory_mib >= memory or (device.memory_mib == 0 and not by_memory_alone))
        and not _is_too_small(device, request.slice)
        for device in node.devices
    )


def _is_too_small(device: Device, part: SliceRequest) -> bool:
    """Whether a part of a device has no room for anything beside a program's context."""
    if part.compute_milli == CARD_MILLI:
        return False
    of_share = device.memory_mib * part.compute_milli // CARD_MILLI
    memory = of_share if part.memory_mib == SHARE_OF_CARD else part.memory_mib
    return 0 < memory <= device.context_mib
