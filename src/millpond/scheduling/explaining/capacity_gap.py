"""What is missing where a job finds no room: for which role, in sum, side by side or close together; node by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millpond.model.amounts import card_memory_text, count_text, cpus_text, gpus_text, memory_text
from millpond.model.hardware.devices import Device
from millpond.model.hardware.node_selection import selects
from millpond.model.hardware.nodes import CLUSTER_LABEL, Node
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause, Filter, Reason
from millpond.model.resources import CARD_MILLI
from millpond.model.task_spacing import spacing_text
from millpond.model.workloads import Role
from millpond.scheduling.cycle.claims import Claims, both
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.elastic.gang_sizes import least_tasks
from millpond.scheduling.explaining.cordon_reasons import closure_text, name_closed
from millpond.scheduling.explaining.node_names import MOST_NAMES
from millpond.scheduling.nodes.layout_planner import could_use
from millpond.scheduling.placement.arrays import Int64Array, NodeMask
from millpond.scheduling.placement.filters import FilterStep as KernelFilter
from millpond.scheduling.placement.gangs import by_place
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

_FILTERS = {
    KernelFilter.FITS: Filter.FITS,
    KernelFilter.UNUSABLE: Filter.UNSCHEDULABLE,
    KernelFilter.WRONG_POOL: Filter.OTHER_POOL,
    KernelFilter.MASKED: Filter.KEPT_FOR_OTHERS,
    KernelFilter.CPU: Filter.CPU,
    KernelFilter.MEMORY: Filter.MEMORY,
    KernelFilter.EXTRAS: Filter.EXTRA_RESOURCE,
    KernelFilter.DEVICE_COUNT: Filter.DEVICE_COUNT,
    KernelFilter.MODEL: Filter.DEVICE_MODEL,
    KernelFilter.DEVICE_HEALTH: Filter.DEVICE_UNUSABLE,
    KernelFilter.DEVICE_COMPUTE: Filter.DEVICE_COMPUTE,
    KernelFilter.FRAGMENTED: Filter.FRAGMENTED,
    KernelFilter.DEVICE_LIMIT: Filter.DEVICE_COMPUTE,
    KernelFilter.DEVICE_MEMORY: Filter.DEVICE_MEMORY,
}


_LACKING = {
    Filter.CPU: "enough free CPUs",
    Filter.MEMORY: "enough free memory",
    Filter.EXTRA_RESOURCE: "enough of the other resources it asks for",
    Filter.DEVICE_MEMORY: "enough free device memory on a card",
}
"""What is said to be missing where all nodes fail on the same."""

FilterCounts = tuple[tuple[Filter, int], ...]


@dataclass(frozen=True, slots=True)
class RoleNeed:
    """What one role needs now, and for how many of its tasks there is room if the other roles take none."""

    role: Role
    shape: Shape
    tasks: int
    total: int


@dataclass(frozen=True, slots=True)
class _Free:
    """(nodes,) what a job could use of what is free, in milli of cards or else of CPUs."""

    milli: Int64Array
    of_cards: bool

    @property
    def name(self) -> str:
        return "free_milli" if self.of_cards else "free_cpu_milli"

    def text(self, milli: int | None = None) -> str:
        """``2 GPUs are free``: so much of it, or all."""
        amount = int(self.milli.sum()) if milli is None else milli
        what = gpus_text(amount) if self.of_cards else cpus_text(amount)
        return f"{what} {'is' if amount == CARD_MILLI else 'are'} free"


class CapacityGap:
    """Counts what there is of what jobs need, on nodes that are not kept for others."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims

    def needs(self, record: JobRecord) -> list[RoleNeed]:
        """What each role needs at least, and the room for it, on nodes that are not kept for others."""
        return self._needs(record, self._mask(record))

    def _needs(self, record: JobRecord, mask: NodeMask | None) -> list[RoleNeed]:
        count = self._state.cluster.arrays.node_count
        base = np.ones(count, dtype=np.uint8) if mask is None else mask[:count]
        needs = []
        for role in record.job.roles:
            shape = self._state.cluster.words.shape_of(role.request, record.job.pool)
            total = int(self._placer.selector.member_room(shape, base).sum())
            needs.append(RoleNeed(role, shape, role.minimum, total))
        return needs

    def _mask(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where room is kept for others, or cards are of models that limits close to the job."""
        least = least_tasks(record.job, record.queued())
        return both(self._claims.mask(record), self._state.entitlements.allowed_nodes(record, least))

    def filters(self, record: JobRecord) -> FilterCounts:
        """How many nodes fail first on what, the most frequent first."""
        mask = self._mask(record)
        return self._histogram(record, self._needs(record, mask), mask)

    def _histogram(self, record: JobRecord, needs: list[RoleNeed], mask: NodeMask | None) -> FilterCounts:
        """How many nodes fail first on what, for one task of the role that has the least room."""
        counts = self._placer.selector.failures(_scarcest(needs).shape, mask)
        merged: dict[Filter, int] = {}
        for number, count in enumerate(counts.tolist()):
            if count:
                name = _FILTERS[KernelFilter(number)]
                merged[name] = merged.get(name, 0) + count
        if Filter.KEPT_FOR_OTHERS in merged:
            self._name_masked(record, needs[0].shape.pool, merged)
        cluster = self._state.cluster
        gone = len(cluster.nodes) - len(cluster.node_index)
        if gone and Filter.UNSCHEDULABLE in merged:
            merged[Filter.UNSCHEDULABLE] -= gone
        if self._state.cordons.by_node or self._state.cordons.power:
            name_closed(self._state, self._claims, record, merged)
        return tuple(sorted(((f, n) for f, n in merged.items() if n), key=lambda pair: (-pair[1], pair[0].value)))

    def _name_masked(self, record: JobRecord, pool: int, merged: dict[Filter, int]) -> None:
        """Of the nodes that a mask keeps off, those count apart that the job does not want, or may not have."""
        left = self._usable(pool)
        selected = self._state.cluster.hardware_index.nodes_selected(record.job.only_on) if record.job.only_on else None
        least = least_tasks(record.job, record.queued())
        for name, allowed in (
            (Filter.NOT_SELECTED, selected),
            (Filter.MODEL_LIMIT, self._state.entitlements.model_mask(record, least)),
        ):
            if allowed is not None:
                merged[name] = min(int((left & (allowed[: len(left)] == 0)).sum()), merged[Filter.KEPT_FOR_OTHERS])
                merged[Filter.KEPT_FOR_OTHERS] -= merged[name]
                left &= allowed[: len(left)] != 0

    def no_room(self, record: JobRecord) -> Reason:
        """Why no node, or no set of them, takes it."""
        mask = self._mask(record)
        needs = self._needs(record, mask)
        nodes = self._histogram(record, needs, mask)
        return self._too_little(record, needs, nodes, self._free(needs, mask))

    def _too_little(self, record: JobRecord, needs: list[RoleNeed], nodes: FilterCounts, free: _Free) -> Reason:
        """What is missing, in words and numbers: for which role, in sum, side by side, or close together."""
        job = record.job
        tasks, asked = (
            sum(need.tasks for need in needs),
            sum(need.tasks * need.role.request.gpu_milli for need in needs),
        )
        fitting = dict(nodes).get(Filter.FITS, 0)
        scarce = _scarcest(needs)
        of_role = f" of role {scarce.role.name!r}" if len(job.roles) > 1 else ""
        room = min(scarce.total, scarce.tasks)
        if room == 0:
            for_role = f" for a task{of_role}" if of_role else ""
            node = "none of the nodes that it asks for" if job.only_on else "no node"
            closed = self._why_all_closed(record) if _failing(nodes) == {Filter.UNSCHEDULABLE} else ""
            lacks = f"takes new work ({closed})" if closed else f"has {_lacking(nodes)}{for_role}"
            missing = f"{free.text()} for it, and {node} {lacks}"
        elif room < scarce.tasks:
            nodes_fit = count_text(fitting, "node")
            missing = f"{nodes_fit} could take {room} of its {scarce.tasks} tasks{of_role} now, not all"
        elif job.together_required:
            where = "in no one zone" if job.together is Level.ZONE else f"on no one {job.together.name.lower()}"
            missing = f"there may be room for them apart, but {where}"
        elif job.spacing:
            missing = f"there may be room for them, but not so that they {spacing_text(job.spacing)}"
        elif len(job.roles) > 1:
            missing = "each of its roles would have room by itself, not all of them together"
        else:
            missing = f"{free.text()} for it, and not where it could use them"
        numbers = (
            ("asked_milli", asked),
            (free.name, int(free.milli.sum())),
            ("nodes_that_fit_one_task", fitting),
            ("room_for_tasks", room),
            ("tasks", tasks),
        )
        missing += self._by_cluster(needs[0].shape.pool, free)
        text = f"it asks for {_asked_text(needs)}; {missing}{self._kept(record)}{self._out_of_use(record)}"
        return Reason(Cause.NO_ROOM, text, numbers, nodes)

    def _why_all_closed(self, record: JobRecord) -> str:
        """Why those that offer the nodes which a job asks for have closed them; empty where they do not say."""
        nodes = self._state.cluster.hardware_index.nodes_of(record.job.pool, record.job.only_on)
        takes_cards = any(role.request.devices for role in record.job.roles)
        asked = [node for node in nodes if not takes_cards or could_use(record, node.devices)]
        whys = dict.fromkeys(node.unschedulable_reason for node in asked)
        return ", ".join(list(filter(None, whys))[:MOST_NAMES])

    def _out_of_use(self, record: JobRecord) -> str:
        """The cards of the job's pool that would count if nothing were wrong with them, and what is."""
        closure_of, cluster = self._state.card_cordons.closure, self._state.cluster
        unusable = np.flatnonzero(cluster.arrays.device_usable[: cluster.arrays.device_count] == 0)
        found = [
            f"card {device.index} of {node.name} is "
            + (_health_text(device) if (closure := closure_of(device.card)) is None else closure_text(closure))
            for node, device in filter(None, map(cluster.device, unusable.tolist()))
            if _could_have(record, node, device)
        ]
        more = f"; and {len(found) - MOST_NAMES} cards more" if len(found) > MOST_NAMES else ""
        return "".join(f"; {each}" for each in found[:MOST_NAMES]) + more

    def _kept(self, record: JobRecord) -> str:
        """Memory of the cards that a job could use which is kept free for work that was swapped off."""
        cluster = self._state.cluster
        kept_mib = sum(
            mib
            for device, mib in cluster.swapped.kept_mib.items()
            if (found := cluster.device(device)) is not None and _could_have(record, *found)
        )
        text = f"; {memory_text(kept_mib)} of device memory are kept for work that was swapped off (memory_overcommit)"
        return text if kept_mib else ""

    def _free(self, needs: list[RoleNeed], mask: NodeMask | None) -> _Free:
        """What is free of the cards that a job could use; CPUs, if it asks for no cards."""
        arrays, shapes = self._state.cluster.arrays, [need.shape for need in needs if need.shape.devices]
        milli = (
            self._placer.selector.startable_compute(shapes) if shapes else arrays.cpu_free_milli[: arrays.node_count]
        )
        milli = milli.clip(min=0) * self._usable(needs[0].shape.pool)
        return _Free(milli if mask is None else milli * mask[: arrays.node_count], of_cards=bool(shapes))

    def _usable(self, pool: int) -> NDArray[np.bool_]:
        """(nodes,) whether something may start there now."""
        arrays = self._state.cluster.arrays
        count = arrays.node_count
        usable: NDArray[np.bool_] = (arrays.pool[:count] == pool) & (arrays.node_usable[:count] != 0)
        return usable

    def _by_cluster(self, pool: int, free: _Free) -> str:
        """What of that is free in each of several clusters in which a pool has nodes."""
        cluster = self._state.cluster
        places = cluster.hardware_index.places_by(CLUSTER_LABEL)
        if len(places.names) < 2:
            return ""
        amounts = by_place(places.of, free.milli)
        there = set(places.of[cluster.arrays.pool[: cluster.arrays.node_count] == pool].tolist())
        names = {name: place for name, place in places.names.items() if place in there}
        texts = [f"; {free.text(int(amounts[place]))} in cluster {name}" for name, place in names.items()]
        return "".join(texts) if len(texts) > 1 else ""


def _asked_text(needs: list[RoleNeed]) -> str:
    tasks = sum(need.tasks for need in needs)
    milli = sum(need.tasks * need.role.request.gpu_milli for need in needs)
    mib = sum(need.tasks * need.role.request.card_mib for need in needs)
    if not milli and not mib:
        return count_text(tasks, "CPU task")
    cards = gpus_text(milli) if milli else card_memory_text(mib)
    return f"{tasks} tasks together, {cards}" if tasks > 1 else cards


def _scarcest(needs: list[RoleNeed]) -> RoleNeed:
    """The role with the least room for what it needs; of several with enough, the most demanding one."""
    return min(
        needs,
        key=lambda need: (
            min(need.total / need.tasks, 1.0),
            -need.role.request.gpu_milli,
            -need.role.request.cpu_milli,
        ),
    )


def _failing(nodes: FilterCounts) -> set[Filter]:
    """On what the nodes fail that a job asks for."""
    return {each for each, _ in nodes} - {Filter.OTHER_POOL, Filter.NOT_SELECTED, Filter.FITS}


def _lacking(nodes: FilterCounts) -> str:
    """What no node has, in a few words: by its name if they all fail on the same."""
    failed = _failing(nodes)
    return _LACKING.get(failed.pop(), "room") if len(failed) == 1 else "room"


def _could_have(record: JobRecord, node: Node, device: Device) -> bool:
    """Whether a job could use a card if it were well and free."""
    job = record.job
    return node.pool == job.pool and selects(job.only_on, node.labels) and could_use(record, (device,))


def _health_text(device: Device) -> str:
    return device.health.value + (f" ({device.health_detail})" if device.health_detail else "")
