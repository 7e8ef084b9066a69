"""Nodes and cards are closed and opened; cordons take effect, and preemptible work leaves what is drained.

Work that leaves gets notice and grace and goes back to its queue. Neither it nor another job is the cause,
so no failure and no preemption is counted, and neither its minimum run time nor its budget of preemptions stands
against it. A gang that can go on without the tasks that leave does so, and they join it again elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import GangRule
from millpond.scheduling import runs
from millpond.scheduling.elastic.gang_sizes import is_enough, spare_tasks
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State


def close_node(state: State, name: str, closure: Cordon) -> None:
    """Close a node, now or at a time to come.

    Raises:
        NotFoundError: there is no such node.
        InvalidInputError: the closure ends before it begins, is over, or begins later and is not planned.
    """
    _known(state, name)
    if closure.begin > state.now and not closure.planned:
        raise InvalidInputError(f"node {name!r} to be closed later", "plan it: `pond nodes maintain`")
    if closure.until is not None and closure.until <= closure.begin:
        raise InvalidInputError(f"node {name!r} to be opened before it is closed", "name an end behind the begin")
    if closure.until is not None and closure.until <= state.now:
        raise InvalidInputError(f"node {name!r} to be closed in a span that is over", "name an end in the future")
    state.cordons.close(name, closure)
    follow_cordons(state)


def open_node(state: State, name: str, *, planned: bool) -> None:
    """Open a node; with ``planned``, what is planned for it is given up too.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: it is open.
    """
    if name not in state.cordons.by_node:
        _known(state, name)
    state.cordons.open(name, state.now, planned=planned)
    follow_cordons(state)


def _known(state: State, name: str) -> None:
    if name not in state.cluster.node_index:
        raise NotFoundError(f"no node {name!r}", "`pond nodes` lists them")


def follow_cordons(state: State) -> None:
    """Close and open what is due; ask preemptible work to leave the nodes that are to be emptied from now on."""
    drained = state.cordons.follow_clock(state.now)
    if not drained:
        return
    index = state.cluster.node_index
    nodes = {index[name] for name in drained if name in index}
    _ask_to_leave(state, lambda holding: holding.node in nodes)


def close_card(state: State, node: str, card: str, closure: Cordon) -> None:
    """Close a single card from now on.

    Raises:
        NotFoundError: there is no such node, or it has no such card.
        InvalidInputError: the closure is for later, or has an end.
    """
    _known(state, node)
    described = state.cluster.node_named(node)
    if described is None or all(device.card != card for device in described.devices):
        raise NotFoundError(f"node {node!r} has no card {card!r}", "`pond nodes -o wide` lists them")
    if closure.planned or closure.until is not None:
        raise InvalidInputError(
            "a single card to be closed for a span", "a card stays closed until it is opened; give its node a span"
        )
    state.card_cordons.close(node, card, closure)
    if closure.drain:
        first = int(state.cluster.arrays.first_device[state.cluster.node_index[node]])
        devices = {first + offset for offset, device in enumerate(described.devices) if device.card == card}
        _ask_to_leave(state, lambda holding: not devices.isdisjoint(holding.devices))


def _ask_to_leave(state: State, is_left: Callable[[Holding], bool]) -> None:
    """Ask preemptible work to leave the places that are to be emptied."""
    for record in list(state.running.values()):
        _ask_one_to_leave(state, record, is_left)


def leave_drained(state: State, record: JobRecord) -> None:
    """Ask what a gang has beyond a minimum that stays to leave drained places, once it runs: not while it starts."""
    if record.job.rest_preemptible:
        _ask_one_to_leave(state, record, lambda holding: _is_drained(state, holding))


def _is_drained(state: State, holding: Holding) -> bool:
    node = state.cluster.nodes[holding.node]
    if node is None or state.cordons.is_draining(node.name):
        return node is not None
    first = int(state.cluster.arrays.first_device[holding.node])
    closures = (state.card_cordons.by_card.get(node.devices[device - first].card) for device in holding.devices)
    return any(closure is not None and closure.drain for closure in closures)


def _ask_one_to_leave(state: State, record: JobRecord, is_left: Callable[[Holding], bool]) -> None:
    job = record.job
    if record.is_ending or not (job.preemptible or job.rest_preemptible or record.kept is not None):
        return
    there = [task for task in record.tasks if task.holding is not None and is_left(task.holding)]
    there = [task for task in there if task.state is not TaskState.STOPPING]
    if job.rest_preemptible and record.kept is None:
        there = _spare_there(record, there)
    if there:
        part = there if goes_on_without(record, there) else ()
        runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.DRAINED, tasks=part)


def _spare_there(record: JobRecord, there: list[TaskRecord]) -> list[TaskRecord]:
    """As many of a gang's tasks on drained places as it has beyond its minimum; none until all of them run."""
    running = [task for task in record.tasks if task.state is TaskState.RUNNING]
    last = [task for task in running if task in there]
    spare = spare_tasks(record.job, [*(task for task in running if task not in there), *last])
    return [task for task in spare if task in there]


def goes_on_without(record: JobRecord, leaving: list[TaskRecord]) -> bool:
    """Whether those of the gang that stay are enough to go on, by its bounds or by its rule for lost tasks."""
    if record.state not in (JobState.RUNNING, JobState.STOPPING):
        return False
    stay = [task for task in record.tasks if task.state is TaskState.RUNNING and task not in leaving]
    if record.job.gang_rule is GangRule.RESTART_TASK:
        return bool(stay)
    return record.elastic and is_enough(record.job, stay)
