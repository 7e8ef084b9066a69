"""Machines and their devices: they come and go, fail and are measured, and what becomes of the work on them."""

from __future__ import annotations

from dataclasses import replace

from millpond.model import events
from millpond.model.errors import ConflictError, NotFoundError
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NEXT_STATES, NodePower, NodePowerState
from millpond.model.hardware.nodes import Node
from millpond.model.states import Outcome
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.event_handling.task_completion import TaskCompletion
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.drain import follow_cordons
from millpond.scheduling.prefetching.kept_places import give_up
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State


class Nodes:
    """Applies what is seen of machines to a state, within the open transaction."""

    def __init__(self, state: State, placer: Placer, migrations: Migrations, task_completion: TaskCompletion) -> None:
        self._state = state
        self._placer = placer
        self._migrations = migrations
        self._task_completion = task_completion

    def node_joined(self, event: events.NodeJoined) -> None:
        """A machine is there, for the first time, again, or with something about it changed."""
        node = event.node
        power = self._state.cordons.power.get(node.name)
        if power is not None and power.is_gone and not node.is_silent:  # a machine that is off may still be listed
            self._state.cordons.set_power(node.name, None)
            follow_cordons(self._state)
        elif power is not None and power.is_closed:
            self._state.cordons.set_power(node.name, replace(power, seen=node))
            return
        self._describe(node)

    def _describe(self, node: Node) -> None:
        cluster = self._state.cluster
        index = cluster.node_index.get(node.name)
        for device in node.devices:
            self._state.card_cordons.hear(node.name, device, self._state.now)
        if index is None:
            cluster.add_node(node)
            self._placer.capacity_changed()
            return
        old = cluster.nodes[index]
        if old is not None and _kinds(old) == _kinds(node):
            cluster.update_node(node)
        else:
            self._replace_node(node, index)
        self._placer.capacity_changed()
        self._leave_faulty_devices(node.name)

    def node_lost(self, event: events.NodeLost) -> None:
        """A machine is gone, and all that ran on it.

        Raises:
            ConflictError: somebody says that it does not come back, and it is there.
        """
        cluster = self._state.cluster
        index = cluster.node_index.get(event.node)
        power = self._state.cordons.power.get(event.node)
        if event.by:
            _require_gone(event.node, power)
            power = None
        if index is None:
            return
        give_up(self._state, event.node)
        if power is not None and power.is_closed:  # it stays known, so that what would fit there wakes it
            self._state.cordons.set_power(event.node, replace(power, is_gone=True, seen=None))
        elif power is not None and power.failed_lately(event.at):  # it went down all the same, only late
            self._state.cordons.set_power(event.node, NodePower(NodePowerState.OFF, event.at, is_gone=True))
            follow_cordons(self._state)
            if (node := cluster.node_named(event.node)) is not None:  # why it was closed before is over once it boots
                cluster.update_node(replace(node, schedulable=True, unschedulable_reason="", is_silent=False))
        else:
            self._state.cordons.set_power(event.node, None)
            cluster.remove_node(event.node)
            cluster.contents.forget(event.node)
        self._placer.capacity_changed()
        for record, tasks in _by_job(self._tasks_on(event.node, index)):
            self._task_completion.end(record, tasks, Outcome.NODE_LOST, None, f"node {event.node} was lost", None)

    def power_changed(self, event: events.NodePowerChanged) -> None:
        """A node is switched, or that has come to something.

        Raises:
            NotFoundError: there is no such node.
            ConflictError: it is in another state, or it is to be switched off and has work.
        """
        cordons = self._state.cordons
        index = self._state.cluster.node_index.get(event.node)
        if index is None:
            raise NotFoundError(f"no node {event.node!r}", "`pond nodes` lists them")
        before = cordons.power.get(event.node, NodePower(NodePowerState.ON, event.at))
        if event.state not in NEXT_STATES[before.state]:
            raise ConflictError(
                f"node {event.node!r} is {before.state.value} and cannot become {event.state.value}",
                "`pond nodes` shows its state",
            )
        if event.state is NodePowerState.ON and before.is_gone:
            raise ConflictError(f"node {event.node!r} is gone", "it is on once it joins")
        if event.state is NodePowerState.DRAINING and self._tasks_on(event.node, index):
            raise ConflictError(f"node {event.node!r} has work", "it is switched off once it is empty")
        closed = event.state is not NodePowerState.ON
        seen, known = before.seen, self._state.cluster.node_named(event.node)
        power = NodePower(event.state, event.at, event.detail, event.ready_at, before.is_gone, seen if closed else None)
        cordons.set_power(event.node, power)
        if not closed and seen is not None and known is not None:
            if not seen.is_silent:  # what drained it for the switch is no order to it
                seen = replace(seen, schedulable=known.schedulable, unschedulable_reason=known.unschedulable_reason)
            self._describe(seen)
        follow_cordons(self._state)
        self._placer.capacity_changed()

    def device_health_changed(self, event: events.DeviceHealthChanged) -> None:
        """A device has failed or works again; one of a node that is gone is ignored."""
        cluster = self._state.cluster
        node = cluster.node_named(event.node)
        if node is None:
            return
        devices = tuple(
            replace(device, health=event.health, health_detail=event.detail) if device.uuid == event.device else device
            for device in node.devices
        )
        cluster.update_node(replace(node, devices=devices))
        for device in devices:
            if device.uuid == event.device:
                self._state.card_cordons.hear(node.name, device, event.at, needs_person=event.needs_person)
        self._placer.capacity_changed()
        self._leave_faulty_devices(event.node)

    def load_sampled(self, event: events.LoadSampled) -> None:
        """How busy a machine is; one that is gone is ignored."""
        self._state.journal.require_no_trial()
        self._state.cluster.loads.note(event)

    def contents_reported(self, event: events.NodeContents) -> None:
        """What a machine holds; one that is gone is ignored."""
        self._state.journal.require_no_trial()
        if event.node in self._state.cluster.node_index:
            self._state.cluster.contents.note(event)

    def leave_failed_place(self, record: JobRecord) -> None:
        """Ask work to end that came, or stayed, where a device has failed meanwhile."""
        for node in {task.placement.node for task in record.tasks if task.placement is not None}:
            if node in self._state.cluster.node_index:
                self._leave_faulty_devices(node)

    def _leave_faulty_devices(self, node_name: str) -> None:
        """Ask work to end that still runs on failed devices of the node."""
        cluster = self._state.cluster
        index = cluster.node_index[node_name]
        node, first = cluster.nodes[index], int(cluster.arrays.first_device[index])
        devices = () if node is None else node.devices
        faulty = {first + i: device for i, device in enumerate(devices) if device.health is DeviceHealth.FAULTY}
        if not faulty:
            return
        for record, tasks in _by_job(self._tasks_on(node_name, index)):
            hit: dict[TaskRecord, str] = {}
            for task in tasks:
                broken = [
                    faulty[device] for device in (task.holding.devices if task.holding else ()) if device in faulty
                ]
                if broken:
                    hit[task] = broken[0].health_detail
            if hit and not self._migrations.leave_failed(record):
                self._task_completion.devices_failed(record, hit)

    def _replace_node(self, node: Node, old_index: int) -> None:
        """A node came back with other devices: move what still has its devices, the rest has lost them."""
        cluster = self._state.cluster
        cluster.words.enter_extras(name for name, _ in node.extras)
        moving = self._tasks_on(node.name, old_index)
        uuids = {id(task): [cluster.device_ids[d] for d in task.holding.devices] for _, task in moving if task.holding}
        left = {id(task): [cluster.device_ids[d] for d in task.vacating.devices] for _, task in moving if task.vacating}
        cluster.remove_node(node.name)
        new_index = cluster.add_node(node)
        lost = []
        for _, task in moving:
            holding = task.holding
            if holding is None:
                continue
            found = [cluster.device_index.get(uuid) for uuid in uuids[id(task)]]
            if None in found:
                lost.append(task)
            else:
                cluster.rebase(holding, new_index, [device for device in found if device is not None])
                self._rebase_vacating(task, left.get(id(task), []), new_index)
        for record, tasks in _by_job(moving):
            if record.slot >= 0:
                self._state.enroll(record)
            gone = [task for task in tasks if task in lost]
            if gone:
                self._task_completion.end(
                    record, gone, Outcome.DEVICE_LOST, None, "the device is gone from its node", None
                )

    def _rebase_vacating(self, task: TaskRecord, uuids: list[str], node: int) -> None:
        """What a task that is being moved comes from may be gone from its node, or be known under another index."""
        cluster = self._state.cluster
        found = [cluster.device_index[uuid] for uuid in uuids if uuid in cluster.device_index]
        if task.vacating is not None and len(found) == len(uuids):
            cluster.rebase(task.vacating, node, found)
        elif task.vacating is not None:
            cluster.change(task.vacating, HoldState.NOTHING)
            task.vacating = None

    def _tasks_on(self, name: str, index: int) -> list[tuple[JobRecord, TaskRecord]]:
        """What holds something on a node, jobs in the order of their start. What it leaves lies on that node too."""
        running, placed = self._state.running, self._state.placed.on(name)
        records = [running[job] for job in placed if job in running]
        if len(records) > 1:
            records = [record for job, record in running.items() if job in placed]
        return [
            (record, task)
            for record in records
            for task in record.tasks
            if task.holding is not None and task.holding.node == index
        ]


def _require_gone(node: str, power: NodePower | None) -> None:
    if power is None or not power.is_gone:
        message = f"node {node!r} is not a node that is switched off and gone"
        raise ConflictError(message, "take others out of the cluster: they are forgotten then")


def _kinds(node: Node) -> list[tuple[str, str, int]]:
    """What the ledger keeps of its devices for as long as they are there: instances of a card (MIG) that is divided
    anew can have the UUIDs of those before."""
    return [(device.uuid, device.model, device.memory_mib) for device in node.devices]


def _by_job(tasks: list[tuple[JobRecord, TaskRecord]]) -> list[tuple[JobRecord, list[TaskRecord]]]:
    """The same tasks, together by job, in the same order."""
    found: dict[str, tuple[JobRecord, list[TaskRecord]]] = {}
    for record, task in tasks:
        found.setdefault(record.id, (record, []))[1].append(task)
    return list(found.values())
