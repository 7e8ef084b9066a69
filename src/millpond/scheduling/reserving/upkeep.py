"""Reservations follow the clock: their nodes are chosen and replaced, others are asked to leave in time, they end.

Nodes are chosen a day before the begin (``CHOSEN_AHEAD_S``): early enough that hardly any work runs so long, late
enough that it is known which nodes there are. They are chosen for the last time when the first of their work has to be
asked, ``cordon.MARGIN_S`` and its grace before the begin: by then it is known who is really in the way. Nodes that
fail, close or go are replaced at any time.

As before a planned drain, neither the minimum run time of work nor its budget of preemptions stands against that: both
protect it from work that comes, and a reservation was there before. No failure and no preemption is counted. What is
borrowed is asked first, the youngest of it before the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millpond.model.amounts import cards_text
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, TaskState
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.workloads import Job
from millpond.scheduling import runs
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.nodes.cordon import MARGIN_S
from millpond.scheduling.nodes.drain import follow_cordons, goes_on_without
from millpond.scheduling.ordering.queueing import enqueue, is_in_window, watch_window
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.agreement import agreed, counts_on_rest_of
from millpond.scheduling.reserving.cells_of_others import cells_of_others
from millpond.scheduling.reserving.choosing import choose, usable_cards
from millpond.scheduling.reserving.counted_reservations import charge_others_at_begin, covered_at_begin
from millpond.scheduling.reserving.parts import Part, is_gone_by, parts_of
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.state import State

CHOSEN_AHEAD_S = 86_400.0


def make(state: State, wanted: AdvanceReservation) -> None:
    """Agree upon a reservation, or upon a change of one.

    Raises:
        NotFoundError, InvalidInputError, ConflictError: see ``agreement.misfit``.
    """
    found = state.verdicts.agreed_before(wanted.name) or agreed(state, wanted)
    state.verdicts.agree(found)
    state.reserved.put(found)
    _turn_waiting(state, wanted.name)


def cancel(state: State, name: str) -> None:
    """Give a reservation up.

    Raises:
        NotFoundError: there is none of that name.
    """
    state.reserved.require(name)
    _end(state, name)


def require_usable(state: State, job: Job) -> None:
    """Refuse a job that requires a reservation that it could not use.

    Raises:
        NotFoundError: there is none of that name for its queue and in its pool.
        InvalidInputError: it is too small.
    """
    if not job.reservation:
        return
    room = state.reserved.required_by(job)
    if room is None:  # whether another queue has one of that name is not for everybody to know
        raise NotFoundError(
            f"no reservation {job.reservation!r} for queue {job.queue!r} in pool {job.pool!r}",
            "`pond reservations` lists them",
        )
    wanted = room.wanted
    least = sum(role.minimum * role.request.gpu_milli for role in job.roles)
    if not 0 < least <= wanted.gpu_milli:
        raise InvalidInputError(
            f"the job needs {cards_text(least)}, and reservation {wanted.name!r} has {wanted.cards}",
            "leave reservation out, or ask for 1 card to as many as it has",
        )


def refuse_to_hold_rest(state: State, record: JobRecord) -> None:
    """Refuse to suspend a gang of which a minimum stays, if a reservation needs the rest of its cards.

    Raises:
        ConflictError: one does.
    """
    name = needs_rest_of(state, record)
    if name:
        raise ConflictError(
            f"job {record.id!r} would keep all of its cards while it is suspended, and reservation {name!r} was "
            "agreed upon beside its minimum alone",
            f"stop the job, or cancel the reservation first: `pond reservations cancel {name}`",
        )


def needs_rest_of(state: State, record: JobRecord) -> str:
    """The first reservation that needs what a running gang has beyond a minimum that stays; empty if none does."""
    if not record.job.rest_preemptible or not state.reserved.by_name:
        return ""
    settled = [room for room in state.reserved.by_name.values() if room.is_settled]
    names = [room.wanted.name for room in settled if any(each is record for each, _, _ in _in_the_way(state, room))]
    return names[0] if names else counts_on_rest_of(state, record)


def follow_ends(state: State) -> None:
    """End the reservations that are over: work on them is as any other from now on."""
    for name, room in list(state.reserved.by_name.items()):
        if room.wanted.until <= state.now:
            _end(state, name)
        else:
            room.users = {job: run for job, run in room.users.items() if _runs(state, job, run)}


def _end(state: State, name: str) -> None:
    state.reserved.drop(name)
    state.cluster.releases += 1
    _turn_waiting(state, name)


def _runs(state: State, job: str, run: int) -> bool:
    record = state.running.get(job)
    return record is not None and record.attempt == run


def _turn_waiting(state: State, name: str) -> None:
    """Jobs that require a reservation wait for its begin in no line, and join one if it is over."""
    for record in state.jobs.values():
        if record.job.reservation != name or record.state is not JobState.QUEUED:
            continue
        if record.line and not is_in_window(state, record):
            state.waiting.remove(record)
            record.line = ()
        elif not record.line and not record.scaled_to_zero and record.retry_at <= state.now:
            enqueue(state, record)
        watch_window(state, record)


def follow_reservations(state: State) -> None:
    """What is due by now: ends, nodes, and who has to leave them."""
    reserved = state.reserved
    if not reserved.by_name:
        return
    follow_ends(state)
    version = reserved.version
    for room in reserved.by_name.values():
        _choose_nodes(state, room)
    if reserved.version != version:
        follow_cordons(state)
    for room in reserved.by_name.values():
        if room.is_settled:
            for record, tasks, asked_at in list(_in_the_way(state, room)):
                if asked_at <= state.now:
                    part = tasks if goes_on_without(record, tasks) else ()
                    runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.RESERVATION, tasks=part)


def leaving_for_reservations(state: State) -> dict[str, float]:
    """Who has to leave as a whole for a reservation, by id, and when the first of these begins."""
    found: dict[str, float] = {}
    for room in state.reserved.by_name.values():
        if room.wanted.begin > state.now:
            for record, tasks, _ in _in_the_way(state, room) if room.cards_on else ():
                if not goes_on_without(record, tasks):
                    found[record.id] = min(room.wanted.begin, found.get(record.id, room.wanted.begin))
    return found


def next_due(state: State) -> float | None:
    """When nodes have to be chosen, or work to be asked, next; None when there are no reservations."""
    instants = []
    for room in state.reserved.by_name.values():
        instants.append(room.wanted.until)
        if room.wanted.begin > state.now:
            instants.append(room.wanted.begin)
        if not room.cards_on and room.wanted.begin - CHOSEN_AHEAD_S > state.now:
            instants.append(room.wanted.begin - CHOSEN_AHEAD_S)
        elif not room.is_settled:
            instants.append(_last_choice_at(state, room))
        else:
            instants += [asked_at for _, _, asked_at in _in_the_way(state, room)]
    return min(instants, default=None)


def _choose_nodes(state: State, room: ReservedRoom) -> None:
    """Choose nodes if that is due, or if those that are kept do not do any more."""
    wanted = room.wanted
    if wanted.begin - state.now > CHOSEN_AHEAD_S:
        return
    is_last = not room.is_settled and _last_choice_at(state, room) <= state.now
    if not (is_last or _falls_short(state, room)):
        return
    others, is_settled = state.reserved.beside(wanted.name), room.is_settled or is_last
    chosen = choose(state, room, others, patient=is_settled)
    if room.is_settled and sum(chosen.values()) <= sum((left := _still_there(state, room)).values()):
        # What can be had of other cells differs once work has left: who was asked to must not come back, and be asked
        # again.
        chosen = left
    if is_settled and sum(chosen.values()) < wanted.cards:
        settled = [other for other in others if other.is_settled]
        alone = choose(state, room, settled, patient=True)
        if sum(alone.values()) > sum(chosen.values()):
            _keep(state, room, alone, is_settled=True)
            _choose_again(state, [room, *settled], [other for other in others if not other.is_settled])
            return
    _keep(state, room, chosen, is_settled=is_settled)


def _choose_again(state: State, fixed: list[ReservedRoom], rooms: list[ReservedRoom]) -> None:
    """Nodes that are not chosen for the last time make way for one that is."""
    for room in sorted(rooms, key=lambda each: each.wanted.begin):
        if room.cards_on:
            _keep(state, room, choose(state, room, fixed), is_settled=False)
        fixed.append(room)


def _keep(state: State, room: ReservedRoom, chosen: dict[str, int], *, is_settled: bool) -> None:
    if chosen != room.cards_on or is_settled != room.is_settled:
        state.reserved.keep(room, chosen, is_settled=is_settled)


def _falls_short(state: State, room: ReservedRoom) -> bool:
    """Whether fewer cards are kept than were agreed, or any on a node that cannot give them."""
    return sum(_still_there(state, room).values()) < room.wanted.cards


def _still_there(state: State, room: ReservedRoom) -> dict[str, int]:
    """The cards that are kept on nodes that can give them."""
    cluster, closed = state.cluster, state.cordons.by_node
    there: dict[str, int] = {}
    for name, cards in room.cards_on.items():
        node = cluster.node_named(name)
        if node is None or not node.schedulable or usable_cards(state, node, room.wanted) < cards:
            continue
        if (power := state.cordons.power.get(name)) is not None and power.state is NodePowerState.FAILED:
            continue
        if not any(each.begin < room.wanted.until and not each.is_over(state.now) for each in closed.get(name, ())):
            there[name] = cards
    return there


def _last_choice_at(state: State, room: ReservedRoom) -> float:
    """When the first of the work on its nodes has to be asked to leave."""
    there = {state.cluster.node_index[name] for name in room.cards_on if name in state.cluster.node_index}
    graces = [
        part.record.job.checkpoint.grace_s
        for record in state.running.values()
        for part in parts_of(record)
        if part.may_be_asked and any(task.holding and task.holding.node in there for task in part.tasks)
    ]
    return room.wanted.begin - MARGIN_S - max(graces, default=0.0)


# ---- who is in the way ------------------------------------------------------------------------------------------


def _in_the_way(state: State, room: ReservedRoom) -> Iterator[tuple[JobRecord, list[TaskRecord], float]]:
    """Who has to leave for a reservation, with the tasks that do, and when each is asked: an instant."""
    begin = room.wanted.begin
    for record, tasks in (*_on_its_cards(state, room), *_beyond_limits(state, room)):
        yield record, tasks, begin - MARGIN_S - record.job.checkpoint.grace_s


def _on_its_cards(state: State, room: ReservedRoom) -> Iterator[tuple[JobRecord, list[TaskRecord]]]:
    cluster = state.cluster
    unused = state.reserved.unused(room, state.running, cluster)
    # Where all that is kept is in use, as parts of more cards perhaps, what is left belongs to nobody.
    names = {cluster.node_index[name]: name for name, milli in unused.items() if milli}
    spare = {index: _spare_cards(state, room, index, name) for index, name in names.items()}
    there = [
        record for record in state.running.values() if _is_on(record, names) and not state.reserved.has_user(record)
    ]
    owed = cells_of_others(state, room).staying
    # Who stays is found first: what cannot leave, then what is guaranteed; the oldest before the youngest.
    queues = covered_at_begin(state, room)
    covered = {each.id for each in there if not each.job.is_background and each.queue in queues}
    order = sorted(
        [part for record in there for part in parts_of(record)],
        key=lambda part: (
            part.may_be_asked and part.record.id not in owed,
            part.record.id not in covered,
            began_at(state, part.record),
            part.record.sequence,
        ),
    )
    taken: set[int] = set()
    for record, tasks, may_be_asked in order:
        if is_gone_by(state, record, room.wanted.begin):
            continue
        staying = []
        by_node: dict[int, set[int]] = {}
        for task in tasks:
            holding = task.holding
            if holding is not None and holding.node in names and task.state is not TaskState.STOPPING:
                staying.append(task)
                by_node.setdefault(holding.node, set()).update(holding.devices)
        fits = all(
            spare[node] >= len(found - taken) and (found or not _is_whole(state, room, node))
            for node, found in by_node.items()
        )
        if fits or not may_be_asked:
            for index, found in by_node.items():
                spare[index] -= len(found - taken)
                taken |= found
        elif staying:
            yield record, staying


def _spare_cards(state: State, room: ReservedRoom, index: int, name: str) -> int:
    """How many cards of a node are for others than those for whom cards of it are kept when a reservation begins."""
    node = state.cluster.nodes[index]
    cards = 0 if node is None else usable_cards(state, node, room.wanted)
    others = sum(
        other.cards_on.get(name, 0)
        for other in state.reserved.by_name.values()
        if other is not room and other.wanted.begin <= room.wanted.begin < other.wanted.until
    )
    return cards - room.cards_on[name] - others


def _is_on(record: JobRecord, nodes: dict[int, str]) -> bool:
    return any(task.holding is not None and task.holding.node in nodes for task in record.tasks)


def began_at(state: State, record: JobRecord) -> float:
    """When running work started; work that is starting is the youngest."""
    return state.now if record.started_at is None else record.started_at


def _is_whole(state: State, room: ReservedRoom, index: int) -> bool:
    """Whether all cards of a node are kept: then work without cards leaves it too."""
    node = state.cluster.nodes[index]
    return node is not None and room.cards_on.get(node.name, 0) >= len(node.devices)


def _beyond_limits(state: State, room: ReservedRoom) -> list[tuple[JobRecord, list[TaskRecord]]]:
    """The youngest work that holds what its bounds do not leave to the queue beside the reservation."""
    amount = state.unused_of(room)
    if not amount.gpu_milli or not state.has_bounds:
        return []
    found: list[tuple[JobRecord, list[TaskRecord]]] = []
    mark = state.journal.begin()
    there = _charge_as_at_begin(state, room)
    while (in_the_way := _bound_of(state, room, amount)) is not None:
        below = [
            part
            for record in there
            if state.queues.is_below(record.queue, in_the_way.queue)
            for part in parts_of(record)
            if part.may_be_asked and _frees(state, part, in_the_way)
            and not any(record is other and part.tasks == tasks for other, tasks in found)
        ]  # fmt: skip
        if not below:
            break
        *_, last = sorted(below, key=lambda part: (began_at(state, part.record), part.record.sequence))
        _let_go(state, last)
        found.append((last.record, last.tasks))
    state.journal.rollback(mark)
    return [(record, tasks) for record, tasks in found if any(task.state is not TaskState.STOPPING for task in tasks)]


def _charge_as_at_begin(state: State, room: ReservedRoom) -> list[JobRecord]:
    """Let queues hold what they will beside a reservation as it begins; returns the work then that reserved nothing."""
    charge_others_at_begin(state, room)
    there: list[JobRecord] = []
    for record in state.running.values():
        if state.reserved.has_user(record):
            continue
        if is_gone_by(state, record, room.wanted.begin):
            _let_go(state, Part(record, record.holding_tasks(), may_be_asked=True))
        else:
            there.append(record)
    return there


class _Hindrance(NamedTuple):
    """The queue of whose limit or guarantee too little is left; ``of_jobs``: it bounds how many of its jobs run."""

    queue: str
    of_jobs: bool = False


def _frees(state: State, part: Part, bound: _Hindrance) -> bool:
    """Whether it leaves more of a bound if a part of running work goes."""
    if bound.of_jobs:
        return part.record.id in state.limits.counted and len(part.tasks) == len(part.record.holding_tasks())
    return state.amounts.held(part.record, part.tasks).gpu_milli > 0


def _let_go(state: State, part: Part) -> None:
    """Count a part of running work as gone, in the open transaction."""
    record = part.record
    state.charge(record, state.amounts.held(record, part.tasks), -1)
    if len(part.tasks) == len(record.holding_tasks()):
        state.limits.count(record, -1)


def _bound_of(state: State, room: ReservedRoom, amount: Amount) -> _Hindrance | None:
    """Whose limit, or guarantee where the pool lends nothing, leaves it less; None where none does."""
    queues, wanted = state.queues, room.wanted
    limiting = queues.limiting(wanted.queue, amount)
    if limiting is not None and not (limiting.exceeds_limit(amount) or limiting.queue.guarantee.gpu_milli):
        return None  # it may not borrow, and no guarantee stands behind it any more: nobody who left would change that
    if limiting is not None:
        return _Hindrance(limiting.queue.name)
    limit = state.limits.exceeded_as_reserved(wanted.queue, amount, 0)
    if limit is not None:
        return _Hindrance(limit.queue)
    limit = state.limits.exceeded_as_reserved(wanted.queue, Amount(), state.reserved.awaited_jobs(room, state.running))
    if limit is not None:
        return _Hindrance(limit.queue, of_jobs=True)
    is_lent = wanted.pool not in state.entitlements.unlent
    if is_lent or wanted.beyond_guarantee or queues.guarantor(wanted.queue, amount) is not None:
        return None
    guarantor = next(iter(queues.by_name[wanted.queue].guarantors), None)
    return None if guarantor is None else _Hindrance(guarantor.queue.name)
