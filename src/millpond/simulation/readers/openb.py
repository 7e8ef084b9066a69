"""Alibaba's openb trace of 2023: a list of nodes and a list of pods, each pod one task (FGD, ATC'23)."""

from __future__ import annotations

from pathlib import Path

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI, SliceRequest, TaskRequest
from millpond.model.workloads import Job, Role
from millpond.simulation.readers.rows import Row, Table, read_jobs
from millpond.simulation.trace import TraceJob, Workload

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
ORDER_COLUMNS = ("seq", "source_pod")
VENDOR = "trace"


def read_nodes(path: Path) -> tuple[Node, ...]:
    """Nodes of an openb node list. The memory of their cards is not recorded and stays unknown.

    Raises:
        InvalidInputError: a row is wrong; a cluster with a hole in it is never taken.
    """
    table = Table(path)
    table.require(NODE_COLUMNS)
    nodes: dict[str, Node] = {}
    for row in table.right_rows():
        node = _node(row)
        if node.name in nodes:
            raise InvalidInputError(f"{row.where}: node {node.name!r} is there twice", "name each node once")
        nodes[node.name] = node
    if not nodes:
        raise InvalidInputError(f"{path} holds no node", "give a file with at least one node")
    return tuple(nodes.values())


def read_pods(path: Path, *, skip_bad_rows: bool) -> Workload:
    """Pods of an openb pod list as jobs of one task each, in the order of the file. Their times are not used."""
    table = Table(path)
    table.require(POD_COLUMNS)

    def trace_job(row: Row) -> TraceJob:
        return TraceJob(Job(row.text("name"), (Role.rigid(_request(row), 1),)), 0.0, 0.0, row.where)

    return read_jobs(table, trace_job, skip_bad_rows=skip_bad_rows)


def read_order(path: Path, pods: Workload) -> list[int]:
    """Arrival order from a ``seq,source_pod`` file, as indices into ``pods``; a name that repeats is a clone.

    Raises:
        InvalidInputError: a row names a pod that is not in the list.
    """
    table = Table(path)
    table.require(ORDER_COLUMNS)
    index_of = {entry.job.id: index for index, entry in enumerate(pods.jobs)}
    order: list[tuple[int, int]] = []
    for row in table.right_rows():
        name = row.text("source_pod")
        if name not in index_of:
            complaint = row.error("source_pod", f"the name of a pod in {pods.source}")
            raise InvalidInputError(complaint.cause, "give the pod list that the order was made from")
        order.append((row.integer("seq", least=0), index_of[name]))
    return [index for _, index in sorted(order, key=lambda pair: pair[0])]


def _node(row: Row) -> Node:
    name, model = row.text("sn"), row.text("model")
    count = row.integer("gpu", least=0)
    if not name or (count and not model):
        column = "model" if name else "sn"
        raise InvalidInputError(row.error(column, "a name").cause, "correct the row")
    devices = tuple(Device(f"{name}/{index}", index, VENDOR, model) for index in range(count))
    return Node(name, row.integer("cpu_milli", least=0), row.integer("memory_mib", least=0), devices)


def _request(row: Row) -> TaskRequest:
    gpus = row.integer("num_gpu", least=0)
    share = row.integer("gpu_milli", least=0, default=CARD_MILLI if gpus else 0)
    if gpus == 1 and not 0 < share <= CARD_MILLI:
        raise row.error("gpu_milli", f"a share of 1 to {CARD_MILLI} milli")
    if gpus > 1 and share != CARD_MILLI:
        raise InvalidInputError(
            f"{row.where}: {share} milli of each of {gpus} cards",
            "a fraction is taken of one card; ask for one card or for whole cards",
        )
    models = tuple(part for part in row.text("gpu_spec").split("|") if part)
    piece = SliceRequest(share, limit_milli=share) if gpus == 1 else SliceRequest()
    return TaskRequest(
        row.integer("cpu_milli", least=0), row.integer("memory_mib", least=0), gpus, piece, models if gpus else ()
    )
