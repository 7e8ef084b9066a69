"""Requested targets of a migration: nodes and cards by name, looked up and compared with what the job has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.hardware.devices import DeviceHealth
from millpond.scheduling.elastic.gang_sizes import tasks_of_next_run
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.records import JobRecord, TaskRecord


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """The requested target of a job.

    Attributes:
        node: on any cards of this one, by index; None: wherever there is room.
        devices: on exactly these, task by task; none: on any.
    """

    node: int | None = None
    devices: tuple[int, ...] = ()


def resolve(cluster: Cluster, record: JobRecord, names: Sequence[str]) -> MigrationTarget:
    """The named nodes or cards, looked up and checked as far as it does not depend on the way of moving.

    Raises:
        NotFoundError: no such node or card.
        InvalidInputError: another number of cards than the job has.
        ConflictError: the job has one of them, or may not have it.
    """
    if len(names) == 1 and names[0] in cluster.node_index:
        _require_open(cluster, record, cluster.node_index[names[0]], names[0])
        return MigrationTarget(cluster.node_index[names[0]])
    devices = tuple(_device(cluster, name) for name in names)
    own = devices_of(record)
    wanted = sum(record.job.roles[task.role_index].request.devices for task in tasks_of_next_run(record))
    if devices and len(set(devices)) != wanted:
        raise InvalidInputError(
            f"{len(set(devices))} cards named for a job that has {wanted}", "name as many cards as it has, or none"
        )
    for name, device in zip(names, devices, strict=True):
        _require_open(cluster, record, cluster.node_of(device), name)
        if device in own:
            raise ConflictError(f"job {record.id!r} has card {name} already", "name cards that it does not have")
        pair = cluster.device(device)
        if pair is not None and not cluster.hardware.is_usable(pair[1]):
            state = "closed" if pair[1].health is DeviceHealth.OK else pair[1].health.value
            raise ConflictError(f"card {name} is {state}", "name another card; see `pond nodes`")
    return MigrationTarget(devices=devices)


def _device(cluster: Cluster, name: str) -> int:
    """The device of a UUID, or of ``NODE/INDEX``."""
    if name in cluster.device_index:
        return cluster.device_index[name]
    node, _, index = name.rpartition("/")
    described = cluster.node_named(node)
    if described is None:
        raise NotFoundError(f"no node or card {name!r}", "write NODE, NODE/CARD or a UUID; `pond nodes` lists them")
    found = [device for device in described.devices if str(device.index) == index]
    if not found:
        raise NotFoundError(f"node {node!r} has no card {index!r}", "`pond nodes` lists them")
    if len(found) > 1:
        raise ConflictError(f"card {name} is divided into instances", "name one of them by its UUID")
    return cluster.device_index[found[0].uuid]


def _require_open(cluster: Cluster, record: JobRecord, node: int, name: str) -> None:
    if cluster.arrays.node_usable_cells[node] == 0:
        raise ConflictError(f"nothing starts on node {cluster.node_name(node)} now", "name another node")
    if not cluster.is_of_pool(node, record.job.pool):
        raise ConflictError(
            f"{name} is not of pool {record.job.pool!r}", "a job stays in its pool; submit a new one for another pool"
        )


def holders(record: JobRecord) -> list[TaskRecord]:
    """The tasks of a job that hold something."""
    return [task for task in record.wanted() if task.holding is not None]


def devices_of(record: JobRecord) -> list[int]:
    """All devices of a job, task by task."""
    return [device for task in holders(record) if task.holding is not None for device in task.holding.devices]
