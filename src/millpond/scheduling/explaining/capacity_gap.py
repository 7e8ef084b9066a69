"""What is missing where a job finds no room: for which role, in sum, side by side or close together; node by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millpond.model.amounts import count_text, gpus_text, memory_text
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import CLUSTER_LABEL
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause, Filter, Reason
from millpond.model.resources import CARD_MILLI
from millpond.model.task_spacing import spacing_text
from millpond.model.workloads import Role
from millpond.scheduling.cycle.claims import Claims, both
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.elastic.gang_sizes import least_tasks
from millpond.scheduling.explaining.cordon_reasons import MOST_NAMES, closure_text, name_closed
from millpond.scheduling.placement.arrays import NodeMask
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


class CapacityGap:
    """Counts what there is of what jobs need, on nodes that are not kept for others."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims

    def needs(self, record: JobRecord) -> list[RoleNeed]:
        """What each role needs at least, and the room for it, on nodes that are not kept for others."""
        mask = self._mask(record)
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
        return self._histogram(record, self.needs(record))

    def _histogram(self, record: JobRecord, needs: list[RoleNeed]) -> FilterCounts:
        """How many nodes fail first on what, for one task of the role that has the least room."""
        counts = self._placer.selector.failures(_scarcest(needs).shape, self._mask(record))
        merged: dict[Filter, int] = {}
        for number, count in enumerate(counts.tolist()):
            if count:
                name = _FILTERS[KernelFilter(number)]
                merged[name] = merged.get(name, 0) + count
        if record.job.only_on:
            self._name_unselected(record, needs[0].shape.pool, merged)
        cluster = self._state.cluster
        gone = len(cluster.nodes) - len(cluster.node_index)
        if gone and Filter.UNSCHEDULABLE in merged:
            merged[Filter.UNSCHEDULABLE] -= gone
        if self._state.cordons.by_node or self._state.cordons.power:
            name_closed(self._state, self._claims, record, merged)
        return tuple(sorted(((f, n) for f, n in merged.items() if n), key=lambda pair: (-pair[1], pair[0].value)))

    def _name_unselected(self, record: JobRecord, pool: int, merged: dict[Filter, int]) -> None:
        """Of the nodes that a mask keeps off, those that the job itself does not want count as such."""
        selected = self._state.cluster.hardware_index.nodes_selected(record.job.only_on)
        others = int((self._usable(pool) & (selected == 0)).sum())
        others = min(others, merged.get(Filter.KEPT_FOR_OTHERS, 0))
        merged[Filter.KEPT_FOR_OTHERS] = merged.get(Filter.KEPT_FOR_OTHERS, 0) - others
        merged[Filter.NOT_SELECTED] = others

    def no_room(self, record: JobRecord) -> Reason:
        """Why no node, or no set of them, takes it."""
        needs = self.needs(record)
        nodes = self._histogram(record, needs)
        return self._too_little(record, needs, nodes)

    def _too_little(self, record: JobRecord, needs: list[RoleNeed], nodes: FilterCounts) -> Reason:
        """What is missing, in words and numbers: for which role, in sum, side by side, or close together."""
        job = record.job
        tasks, asked = (
            sum(need.tasks for need in needs),
            sum(need.tasks * need.role.request.gpu_milli for need in needs),
        )
        fitting = dict(nodes).get(Filter.FITS, 0)
        free = self._free_milli(needs[0].shape.pool)
        what = f"{tasks} tasks together, {gpus_text(asked)}" if tasks > 1 else gpus_text(asked)
        if asked == 0:
            what = count_text(tasks, "CPU task")
        scarce = _scarcest(needs)
        of_role = f" of role {scarce.role.name!r}" if len(job.roles) > 1 else ""
        room = min(scarce.total, scarce.tasks)
        if room == 0:
            for_role = f" for a task{of_role}" if of_role else ""
            node = "none of the nodes that it asks for" if job.only_on else "no node"
            closed = self._why_all_closed(record) if _failing(nodes) == {Filter.UNSCHEDULABLE} else ""
            lacks = f"takes new work ({closed})" if closed else f"has {_lacking(nodes)}{for_role}"
            missing = f"{gpus_text(free)} {_is(free)} free, and {node} {lacks}"
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
            missing = f"{gpus_text(free)} {_is(free)} free, and not where it could use them"
        numbers = (
            ("asked_milli", asked),
            ("free_milli", free),
            ("nodes_that_fit_one_task", fitting),
            ("room_for_tasks", room),
            ("tasks", tasks),
        )
        missing += self._by_cluster(needs[0].shape.pool)
        text = f"it asks for {what}; {missing}{self._kept(job.pool)}{self._out_of_use(record)}"
        return Reason(Cause.NO_ROOM, text, numbers, nodes)

    def _why_all_closed(self, record: JobRecord) -> str:
        """Why those that offer the nodes which a job asks for have closed them; empty where they do not say."""
        asked = self._state.cluster.hardware_index.nodes_of(record.job.pool, record.job.only_on)
        whys = dict.fromkeys(node.unschedulable_reason for node in asked)
        return ", ".join(list(filter(None, whys))[:MOST_NAMES])

    def _out_of_use(self, record: JobRecord) -> str:
        """The cards of the job's pool that would count if nothing were wrong with them, and what is."""
        requests = [role.request for role in record.job.roles if role.request.devices]
        closure_of, cluster = self._state.card_cordons.closure, self._state.cluster
        unusable = np.flatnonzero(cluster.arrays.device_usable[: cluster.arrays.device_count] == 0)
        found = [
            f"card {device.index} of {node.name} is "
            + (_health_text(device) if (closure := closure_of(device.card)) is None else closure_text(closure))
            for node, device in filter(None, map(cluster.device, unusable.tolist()))
            if node.pool == record.job.pool
            and any(not request.models or device.model in request.models for request in requests)
        ]
        more = f"; and {len(found) - MOST_NAMES} cards more" if len(found) > MOST_NAMES else ""
        return "".join(f"; {each}" for each in found[:MOST_NAMES]) + more

    def _kept(self, pool: str) -> str:
        """Device memory of a pool that is kept free for work that was swapped off."""
        cluster = self._state.cluster
        kept_mib = sum(
            mib
            for device, mib in cluster.swapped.kept_mib.items()
            if (found := cluster.device(device)) is not None and found[0].pool == pool
        )
        text = f"; {memory_text(kept_mib)} of device memory are kept for work that was swapped off (memory_overcommit)"
        return text if kept_mib else ""

    def _free_milli(self, pool: int) -> int:
        """Free compute of the devices of a pool on which something may start."""
        return int(self._placer.selector.startable_compute()[self._usable(pool)].sum())

    def _usable(self, pool: int) -> NDArray[np.bool_]:
        """(nodes,) whether something may start there now."""
        arrays = self._state.cluster.arrays
        count = arrays.node_count
        usable: NDArray[np.bool_] = (arrays.pool[:count] == pool) & (arrays.node_usable[:count] != 0)
        return usable

    def _by_cluster(self, pool: int) -> str:
        """What is free in each of several clusters in which a pool has nodes."""
        cluster = self._state.cluster
        places = cluster.hardware_index.places_by(CLUSTER_LABEL)
        if len(places.names) < 2:
            return ""
        free = by_place(places.of, self._placer.selector.startable_compute() * self._usable(pool))
        there = set(places.of[cluster.arrays.pool[: cluster.arrays.node_count] == pool].tolist())
        amounts = {name: int(free[place]) for name, place in places.names.items() if place in there}
        texts = [f"; {gpus_text(milli)} {_is(milli)} free in cluster {name}" for name, milli in amounts.items()]
        return "".join(texts) if len(texts) > 1 else ""


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


def _health_text(device: Device) -> str:
    return device.health.value + (f" ({device.health_detail})" if device.health_detail else "")


def _is(milli: int) -> str:
    return "is" if milli == CARD_MILLI else "are"
