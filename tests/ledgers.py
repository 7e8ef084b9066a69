"""The ledger counted anew: what should be free if everybody holds exactly what was asked for."""

from __future__ import annotations

from collections import Counter

from millpond.model.decisions import Migrate, Resume, Suspend
from millpond.model.resources import SHARE_OF_CARD
from millpond.model.states import JobState, TaskState
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.state import ACTIVE
from queue_sums import check_queue_sums

_HOLDS = {
    TaskState.STARTING: {"RUNNING"},
    TaskState.RUNNING: {"RUNNING"},
    TaskState.FROZEN: {"FROZEN"},
    TaskState.SWAPPED: {"SWAPPED"},
    TaskState.STOPPING: {"RUNNING", "FROZEN", "SWAPPED"},
}


def check_everything(core: Scheduler) -> None:
    """All invariants of a scheduler's state that hold between any two calls."""
    check_ledger(core)
    check_queues(core)
    check_queue_sums(core)
    check_limits(core)
    check_states(core)
    check_roster(core)
    check_pairs(core)


def overdrawn(cluster: Cluster) -> str:
    """The first ledger entry below zero, in words; empty when there is none."""
    arrays = cluster.arrays
    checks = (
        ("CPU", arrays.cpu_free_milli[: arrays.node_count]),
        ("memory", arrays.memory_free_mib[: arrays.node_count]),
        ("swap space", arrays.swap_free_mib[: arrays.node_count]),
        ("extra resource", arrays.extra_free[: arrays.node_count]),
        ("device compute", arrays.compute_free_milli[: arrays.device_count]),
        ("device compute limit", arrays.limit_free_milli[: arrays.device_count]),
        ("device memory", arrays.device_memory_free_mib[: arrays.device_count]),
    )
    for what, values in checks:
        if (values < 0).any():
            return f"{what} at {int(values.argmin())} is {int(values.min())}"
    return ""


def check_ledger(core: Scheduler) -> None:
    """Free amounts are what the nodes have less what the tasks asked for, and nothing is below zero."""
    cluster = core._state.cluster
    assert overdrawn(cluster) == ""
    nodes: dict[int, dict[str, int]] = {}
    devices: dict[int, list[int]] = {}
    for index, node in enumerate(cluster.nodes):
        if node is None:
            continue
        nodes[index] = {
            "cpu": cluster.pools[node.pool].cpu_capacity_milli(node),
            "memory": node.memory_mib,
            "swap": node.swap_mib,
            **{f"extra {name}": amount for name, amount in node.extras},
        }
        for device in node.devices:
            room = cluster.pools[node.pool].limit_capacity_milli
            devices[cluster.device_index[device.uuid]] = [1000, room, device.memory_mib]
    swapped: dict[int, int] = {}
    shared: set[tuple[int, str]] = set()
    for record, task in holders(core):
        assert task.holding is not None
        assert task.placement is not None
        if task.holding.hold.name == "SWAPPED":
            for device, mib in zip(task.holding.devices, task.holding.memory_mib, strict=True):
                if mib:
                    swapped[device] = swapped.get(device, 0) + mib
        assert task.holding.node in nodes, "a task holds something of a node that is gone"
        _take(record, task, nodes[task.holding.node], devices if not task.holding.is_shared else {}, core)
        if task.holding.is_shared and task.holding.hold.name != "SWAPPED":
            _take_once(task, devices, shared)
        _take_vacating(record, task, devices)
    assert cluster.swapped.mib == swapped
    for device, mib in swapped.items():
        devices[device][2] -= _kept(core, device, mib, devices[device][2])
    arrays = cluster.arrays
    for index, free in nodes.items():
        seen = {
            "cpu": arrays.cpu_free_milli[index],
            "memory": arrays.memory_free_mib[index],
            "swap": arrays.swap_free_mib[index],
        }
        names = cluster.words.plain()["extras"]
        seen |= {f"extra {name}": arrays.extra_free[index, column] for column, name in enumerate(names)}
        assert {what: int(seen[what]) for what in free} == free, f"node {cluster.node_name(index)}"
    for index, amounts in devices.items():
        found = [arrays.compute_free_milli[index], arrays.limit_free_milli[index], arrays.device_memory_free_mib[index]]
        assert [int(amount) for amount in found] == amounts, f"device {cluster.device_ids[index]}"
    is_open = {card: arrays.node_usable[cluster.node_of(card)] and arrays.device_usable[card] for card in devices}
    assert cluster.free_gpu_milli == sum(devices[card][0] for card in devices if is_open[card])


def _kept(core: Scheduler, device: int, swapped_mib: int, unheld_mib: int) -> int:
    """What nobody else gets of a device, as work that was swapped off it makes up what its pool's factor allows."""
    found = core._state.cluster.device(device)
    assert found is not None
    factor = core._state.cluster.pools[found[0].pool].memory_factor_milli
    room = found[1].memory_mib * factor // 1000 - swapped_mib - (found[1].memory_mib - unheld_mib)
    return unheld_mib - max(min(room, unheld_mib), 0) if factor else 0


def holders(core: Scheduler) -> list[tuple[JobRecord, TaskRecord]]:
    """Every task that holds something."""
    return [(record, task) for record in core.jobs.values() for task in record.tasks if task.holding is not None]


def _take(
    record: JobRecord, task: TaskRecord, node: dict[str, int], devices: dict[int, list[int]], core: Scheduler
) -> None:
    request, holding, cluster = record.job.roles[task.role_index].request, task.holding, core._state.cluster
    assert holding is not None
    piece = request.slice
    memory = []
    for device in holding.devices:
        capacity = int(cluster.arrays.device_memory_mib[device])
        if piece.compute_milli == 1000:
            memory.append(capacity)
        elif piece.memory_mib == SHARE_OF_CARD:
            memory.append(capacity * piece.compute_milli // 1000)
        else:
            memory.append(piece.memory_mib if capacity else 0)
    assert len(holding.devices) == request.devices
    node["memory"] -= request.memory_mib
    if holding.hold.name == "SWAPPED":
        node["swap"] -= sum(memory)
        return
    for device, mib in zip(holding.devices, memory, strict=True) if devices else ():
        devices[device][2] -= mib
        if holding.hold.name == "RUNNING":
            devices[device][0] -= piece.compute_milli
            devices[device][1] -= piece.limit_milli
    if holding.hold.name == "RUNNING":
        node["cpu"] -= request.cpu_milli
        for name, amount in request.extras:
            node[f"extra {name}"] -= amount


def _take_once(task: TaskRecord, devices: dict[int, list[int]], taken: set[tuple[int, str]]) -> None:
    """Whole cards that several may hold together: they are taken once."""
    assert task.holding is not None
    for device in task.holding.devices:
        if (device, "memory") not in taken:
            devices[device][2] = 0
        taken.add((device, "memory"))
        if task.holding.hold.name == "RUNNING":
            if (device, "compute") not in taken:
                devices[device][0] -= 1000
                devices[device][1] -= 1000
            taken.add((device, "compute"))


def _take_vacating(record: JobRecord, task: TaskRecord, devices: dict[int, list[int]]) -> None:
    """What a task has where it comes from: its devices, or nothing where they had been given to others."""
    left, piece = task.vacating, record.job.roles[task.role_index].request.slice
    if left is None or left.hold.name == "NOTHING":
        return
    assert task.holding is not None
    assert left.hold.name == "RUNNING"
    assert (left.node, len(left.devices)) == (task.holding.node, len(task.holding.devices))
    assert not set(left.devices) & set(task.holding.devices)
    for device, mib in zip(left.devices, left.memory_mib, strict=True):
        amounts = devices[device]
        devices[device] = [amounts[0] - piece.compute_milli, amounts[1] - piece.limit_milli, amounts[2] - mib]


def check_queues(core: Scheduler) -> None:
    """A queue's usage is the sum of what its jobs hold: frozen work no CPU, swapped work no card either."""
    tree = core._state.queues
    used = {name: [0, 0, 0] for name in tree.by_name}
    of_models = {name: Counter[str]() for name in tree.by_name}
    card_mib = Counter[str]()
    for record, task in holders(core):
        request = record.job.roles[task.role_index].request
        for node in tree.by_name[record.queue].path:
            amounts = used[node.queue.name]
            hold = task.holding.hold.name if task.holding is not None else "NOTHING"
            amounts[0] += request.gpu_milli if hold != "SWAPPED" else 0
            amounts[1] += request.cpu_milli if hold == "RUNNING" else 0
            amounts[2] += request.memory_mib
            for device in task.holding.devices if task.holding is not None and hold != "SWAPPED" else ():
                model = core._state.cluster.words.models.names[core._state.cluster.arrays.device_model[device]]
                of_models[node.queue.name][model] += request.slice.compute_milli
            card_mib[node.queue.name] += _card_mib(task)
    for name, amounts in used.items():
        node = tree.by_name[name]
        assert [node.gpu_milli, node.cpu_milli, node.memory_mib] == amounts, f"queue {name}"
        if tree.counts_cards:
            found = {model: milli for model, milli in node.models.items() if milli}
            assert found == {model: milli for model, milli in of_models[name].items() if milli}, f"models of {name}"
            assert node.card_mib == card_mib[name], f"card memory of {name}"


def _card_mib(task: TaskRecord) -> int:
    """The memory of its cards that a task takes, as it was told."""
    if task.holding is None or task.holding.hold.name == "SWAPPED":
        return 0
    assert task.placement is not None
    return sum(grant.memory_mib for grant in task.placement.grants)


def check_limits(core: Scheduler) -> None:
    """Where there are limits, what an account holds is the sum of what its jobs hold, and how many they are."""
    limits = core._state.limits
    if not limits.in_force:
        return
    held: dict[tuple[str, str], list[int]] = {}
    for record, task in holders(core):
        request = record.job.roles[task.role_index].request
        for account in _accounts(core, record):
            amounts = held.setdefault(account, [0, 0, 0, 0])
            hold = task.holding.hold.name if task.holding is not None else "NOTHING"
            amounts[1] += request.gpu_milli if hold != "SWAPPED" else 0
            amounts[2] += request.cpu_milli if hold == "RUNNING" else 0
            amounts[3] += _card_mib(task) if core._state.queues.counts_cards else 0
    for record in core._state.running.values():
        for account in _accounts(core, record):
            held.setdefault(account, [0, 0, 0, 0])[0] += 1
    for account, known in limits.held.items():
        found = [known.jobs, known.gpu_milli, known.cpu_milli, known.card_mib]
        assert found == held.get(account, [0, 0, 0, 0]), f"account {account}"


def _accounts(core: Scheduler, record: JobRecord) -> list[tuple[str, str]]:
    """Its user, its queue and those above it, without the root."""
    accounts, node = [(record.job.user, "")], core._state.queues.by_name[record.job.queue]
    while node.parent is not None:
        accounts.append(("", node.queue.name))
        node = node.parent
    return [] if record.job.is_background else accounts


def check_states(core: Scheduler) -> None:
    """What a task holds follows its state, and every job stands exactly where its state says.

    Work that was told to leave its devices holds them until the engine confirms that it did.
    """
    state = core._state
    state.journal.require_no_trial()
    waiting = [record.id for record in state.waiting]
    leaving = {decision.job for decision in state.pending.values() if isinstance(decision, Suspend)}
    assert len(waiting) == len(set(waiting)) == state.waiting.count
    for record in core.jobs.values():
        for task in record.tasks:
            held = "NOTHING" if task.holding is None else task.holding.hold.name
            allowed = _HOLDS.get(task.state, {"NOTHING"})
            if record.id in leaving:
                allowed = allowed | {"RUNNING", "FROZEN"}
            assert held in allowed, f"{record.id}/{task.number} {task.state}"
            moves = any(type(each) in (Migrate, Resume) and each.job == record.id for each in state.pending.values())
            assert (task.vacating is not None) <= (moves and task.holding is not None), record.id
        active = any(task.state in ACTIVE for task in record.tasks)
        assert (record.id in state.running) == active, record.id
        assert (record.id in state.held.jobs) == bool(record.held_until), record.id
        if (record.job.windows or record.held_until) and not record.state.ended:
            assert record.id in {each.id for _, _, each in state.window_changes}, (
                f"nobody watches the hours of {record.id}"
            )
        shut = record.id not in waiting and bool(record.job.windows or record.job.reservation or record.held_until)
        paused = record.id in {each.id for _, _, each in state.paused} and record.id not in waiting
        shut = shut or bool(record.scaled_to_zero) or record.is_parked
        in_line = record.state is JobState.QUEUED and not active and not paused and not shut
        assert (record.id in waiting) == in_line, record.id
        assert bool(record.line) == (record.id in waiting), record.id
        assert (record.ended_at is not None) == record.state.ended, record.id
        told_to_end = record.stop_trigger is not None
        assert told_to_end <= active, f"{record.id} ends although nothing of it is left"
        for place in (state.suspended, state.growing):
            assert (record.id in place) <= (active and not told_to_end), record.id
        assert (record.id in state.growing) <= any(task.state is TaskState.QUEUED for task in record.tasks), record.id
        runs = active and not told_to_end and record.started_at is not None
        runs = runs and record.id not in state.guests
        assert (record.slot >= 0) == runs, f"{record.id} {'is not' if runs else 'is'} on the roster"
        assert all(task.state.ended or task.state is TaskState.STOPPING for task in record.tasks if task.surplus)


def check_roster(core: Scheduler) -> None:
    """What victim rules look at is what runs now."""
    roster = core._state.roster
    for slot, record in enumerate(roster.records):
        if record is None:
            continue
        rows = sorted(
            (int(roster.rows[0, row]), tuple(roster.row_devices[row, : int(roster.rows[6, row])].tolist()))
            for row in roster._slot_rows[slot]
        )
        held = sorted((t.holding.node, t.holding.devices) for t in record.tasks if t.holding is not None)
        joining = sorted(
            (t.holding.node, t.holding.devices)
            for t in record.tasks
            if t.holding is not None and t.state is TaskState.STARTING
        )
        assert record.slot == slot
        for place in rows:
            assert place in held, f"the roster believes {record.id} where it is not"
            held.remove(place)
        assert held in ([], joining), f"the roster misses a place of {record.id}"


def check_pairs(core: Scheduler) -> None:
    """Who shares cards does so with one other, who shares them with it; one of the two is the guest."""
    state = core._state
    for record in core.jobs.values():
        if not record.packed_with:
            assert record.id not in state.guests, record.id
            continue
        other = core.jobs[record.packed_with]
        assert other.packed_with == record.id
        assert (record.id in state.guests) != (other.id in state.guests)
        assert record.id in state.running
        held = [each.tasks[0].holding for each in (record, other)]
        assert all(holding is not None and holding.is_shared for holding in held), record.id
        assert held[0] is not None
        assert held[1] is not None
        assert held[0].devices == held[1].devices
    users = sum((_running_cards(task) for _, task in holders(core)), Counter[int]())
    paired = {device for guest in state.guests.values() for device in _running_cards(guest.tasks[0])}
    crowded = {device for device, milli in users.items() if milli > 1000}
    assert crowded <= paired, "two hold the same card and are no pair"


def _running_cards(task: TaskRecord) -> Counter[int]:
    """Compute that a task has of each of its devices."""
    if task.holding is None or task.holding.hold.name != "RUNNING" or task.placement is None:
        return Counter()
    return Counter(dict.fromkeys(task.holding.devices, task.holding.shape.compute_milli))
