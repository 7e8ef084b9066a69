"""What the cluster could take if it were empty and healthy: the impossible is refused before it waits for ever."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from millpond.model.nodes import Node, SharingPolicy
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, Amount, TaskRequest
from millpond.model.topology import Level
from millpond.model.workloads import Job, Role
from millpond.scheduling.state import State


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a job can never run here, and what would mend it: a field of the job and a value for it."""

    what: str
    remedy: str = ""
    field: str = ""
    value: str = ""
    numbers: tuple[tuple[str, int], ...] = ()


def largest_possible(state: State, job: Job) -> Obstacle | None:
    """The first thing that makes the job impossible on this cluster; None if it could run on it empty."""
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
    return _gang_obstacle(job, nodes) or _limit_obstacle(state, job)


def _role_obstacle(role: Role, nodes: list[Node], *, exclusive: bool) -> Obstacle | None:
    request = role.request
    known = sorted({device.model for node in nodes for device in node.devices})
    for model in request.models:
        if model not in known:
            near = get_close_matches(model, known, 1, cutoff=0.4)
            offer = f"this pool has {', '.join(known)}" if known else "this pool has no GPUs"
            return Obstacle(f"no node has a GPU model {model!r}", offer, "gpu_models", near[0] if near else "")
    if exclusive and 0 < request.gpu_milli < CARD_MILLI:
        return Obstacle(
            f"{request.gpu_milli} milli of a card in a pool of whole cards", "ask for whole GPUs", "gpus", "1"
        )
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
        if request.slice.memory_mib != SHARE_OF_CARD:
            kind += f" with {request.slice.memory_mib} MiB each"
        remedy = f"ask for at most {most_cards} a task and use more tasks" if most_cards else "ask for no GPUs"
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


def _gang_obstacle(job: Job, nodes: list[Node]) -> Obstacle | None:
    """Whether all tasks fit side by side on the empty pool, or on one node or rack of it where that is required."""
    groups, where = [nodes], "this pool"
    if job.together_required and job.together <= Level.NODE:
        groups, where = [[node] for node in nodes], "one node"
    elif job.together_required and job.together is Level.RACK:
        racks: dict[tuple[str, str], list[Node]] = {}
        for node in nodes:
            racks.setdefault((node.zone_name, node.rack_name), []).append(node)
        groups, where = list(racks.values()), "one rack"
    total = sum(role.minimum for role in job.roles)
    most = max(_placeable(job, group) for group in groups)
    if most >= total:
        return None
    return Obstacle(
        f"the gang asks for {total} tasks together; {where} holds at most {most} of them even when empty",
        f"ask for at most {most} tasks" if where == "this pool" else "ask for fewer tasks, or let them lie apart",
        "tasks" if where == "this pool" else "topology",
        str(most) if where == "this pool" else "any",
        (("asked", total), ("largest", most)),
    )


def _placeable(job: Job, nodes: list[Node]) -> int:
    """How many of the gang's least number of tasks fit on these nodes when they are empty, largest first."""
    room = [[node.cpu_milli, node.memory_mib, CARD_MILLI * len(node.devices)] for node in nodes]
    placed = 0
    for role in sorted(job.roles, key=lambda role: (-role.request.gpu_milli, -role.request.cpu_milli)):
        request, left = role.request, role.minimum
        for node, free in zip(nodes, room, strict=True):
            if left == 0:
                break
            if not _holds(node, request):
                continue
            copies = min(left, _copies(request, free))
            free[0] -= copies * request.cpu_milli
            free[1] -= copies * request.memory_mib
            free[2] -= copies * request.gpu_milli
            left -= copies
            placed += copies
        if left:
            return placed
    return placed


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
    return None


def _holds(node: Node, request: TaskRequest) -> bool:
    extras = dict(node.extras)
    return (
        node.cpu_milli >= request.cpu_milli
        and node.memory_mib >= request.memory_mib
        and _cards_of(node, request) >= request.devices
        and all(extras.get(name, 0) >= amount for name, amount in request.extras)
    )


def _cards_of(node: Node, request: TaskRequest) -> int:
    """Devices of the node that could hold one device's part of the request."""
    memory = request.slice.memory_mib
    return sum(
        (not request.models or device.model in request.models)
        and (memory == SHARE_OF_CARD or device.memory_mib == 0 or device.memory_mib >= memory)
        for device in node.devices
    )


def _copies(request: TaskRequest, free: list[int]) -> int:
    """How many tasks fit into what is left of a node; shares of a card do not cross cards."""
    copies = 1 << 30
    if request.cpu_milli:
        copies = min(copies, free[0] // request.cpu_milli)
    if request.memory_mib:
        copies = min(copies, free[1] // request.memory_mib)
    if request.gpu_milli >= CARD_MILLI:
        copies = min(copies, free[2] // request.gpu_milli)
    elif request.gpu_milli:
        # Rather too many than too few: what is left of half-used cards may lie together.
        whole, rest = divmod(free[2], CARD_MILLI)
        copies = min(copies, whole * (CARD_MILLI // request.gpu_milli) + rest // request.gpu_milli)
    return max(copies, 0)
