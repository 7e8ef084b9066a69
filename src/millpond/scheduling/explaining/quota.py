"""Which limit, guarantee or hour of lending keeps a job waiting, with the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from millpond.model import windows
from millpond.model.amounts import card_memory_text, count_text, cpus_text, gpus_text, memory_text
from millpond.model.reasons import Cause, Reason, StartEstimate
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Job
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import counts_in_turn_of
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import is_held_for_good, limit_in_the_way
from millpond.scheduling.tenancy.bounds import NO_BOUND, Beyond
from millpond.scheduling.tenancy.card_models import on_models_alone
from millpond.scheduling.tenancy.limits import AccountUsage
from millpond.scheduling.tenancy.queue_node import QueueNode
from millpond.scheduling.tenancy.windows import lending_ends, outlasts_lending


def quota_in_the_way(state: State, claims: Claims, record: JobRecord) -> Reason | None:
    """Why its queue, its user or the hour does not admit a job; None where they do.

    Asked in the turn of the job: what is claimed counts as held.
    """
    amount = record.demand.least_amount
    limiting = limit_in_the_way(state, record)
    if (reason := _limit_in_the_way(state, claims, record, limiting)) is not None:
        return reason
    if limiting is not None:
        return _not_borrowing(state, record, limiting)
    if not state.entitlements.lends(record, amount):
        hours = state.cluster.pools[record.job.pool].lending
        why = f"{gpus_text(amount.gpu_milli)} more would exceed {_nearest_guarantee(state, record)}"
        if record.job.is_background:
            why = "background work has no guarantee"
        elif not state.queues.by_name[record.queue].guarantors:
            why = f"queue {record.queue} has no guarantee"
        return Reason(
            Cause.LENDING_OVER,
            f"{why}, and pool {record.job.pool} lends only in its hours ({' and '.join(map(str, hours))})",
            (("asked_milli", amount.gpu_milli),),
            blocked_by=record.job.queue,
            opens_at=windows.opens_at(hours, state.now),
        )
    if is_held_for_good(state, record):
        return _not_for_good(state, record)
    end = lending_ends(state).get(record.job.pool)
    return _beyond_the_hours(state, record, end) if end is not None and outlasts_lending(state, record, end) else None


def until_lent(state: State, record: JobRecord, found: StartEstimate) -> StartEstimate:
    """An estimate of a start, in which nothing is said before the pool of a job that would borrow lends to it again.

    It may start sooner, once its queue's own work leaves it room within the guarantee.
    """
    pool, least = record.job.pool, record.demand.least_amount
    hours, end = state.cluster.pools[pool].lending, lending_ends(state).get(pool)
    if not state.entitlements.lends(record, least):
        limiting = limit_in_the_way(state, record)
        if limiting is not None and not any(map(limiting.exceeds_limit, state.entitlements.choices(record, least))):
            return found  # its queue never borrows
        end = state.now
    elif end is None or not outlasts_lending(state, record, end):
        return found
    if not found.unknown and found.earliest_at >= windows.opens_at(hours, end):
        return found
    why = "it starts when its pool lends again, or when the guarantee of its queue covers it"
    return StartEstimate(state.now, None, "", unknown=why)


def bounds_in_the_way(state: State, claims: Claims, record: JobRecord) -> Reason | None:
    """The same for work on cards that its queue has reserved: limits, and whether the queue borrows, bind it alone."""
    limiting = limit_in_the_way(state, record)
    reason = _limit_in_the_way(state, claims, record, limiting)
    return reason if reason is not None or limiting is None else _not_borrowing(state, record, limiting)


def _limit_in_the_way(state: State, claims: Claims, record: JobRecord, limiting: QueueNode | None) -> Reason | None:
    amount = record.demand.least_amount
    if limiting is not None and any(map(limiting.exceeds_limit, state.entitlements.choices(record, amount))):
        return _queue_limit(state, claims, limiting, record)
    exceeded = state.entitlements.exceeded(record, amount)
    return None if exceeded is None else _limited(state, exceeded, record, claimed=bool(claims.by_job))


def _beyond_the_hours(state: State, record: JobRecord, end: float) -> Reason:
    pool = record.job.pool
    hours = state.cluster.pools[pool].lending
    return Reason(
        Cause.LENDING_OVER,
        f"it would borrow beyond the hours in which pool {pool} lends ({' and '.join(map(str, hours))}), and lose its "
        "work then: it neither saves that on notice nor can it be swapped",
        blocked_by=record.job.queue,
        opens_at=windows.opens_at(hours, end),
    )


def _not_for_good(state: State, record: JobRecord) -> Reason:
    amount = record.demand.least_amount
    guarantor = state.entitlements.guarantor(record, amount)
    if guarantor is None:
        exceeded = f"exceed {_nearest_guarantee(state, record)}{_held_by_preemptible(state, record)}"
    else:
        exceeded = (
            f"exceed what the guarantee of queue {guarantor.queue.name} leaves beside those of the queues below it"
        )
    return Reason(
        Cause.GUARANTEE_OF_OTHERS,
        f"the job is not preemptible, so it borrows nothing, and {gpus_text(amount.gpu_milli)} more would {exceeded}",
        (("asked_milli", amount.gpu_milli),),
    )


def _nearest_guarantee(state: State, record: JobRecord) -> str:
    """The first guarantee that a job lives on, and that what is reserved counts there."""
    nearest = state.queues.by_name[record.queue].guarantors[:1]
    owner = nearest[0].queue.name if nearest else record.queue
    return f"the guarantee of queue {owner}{_with_reserved(state, record, owner)}"


def _not_borrowing(state: State, record: JobRecord, confining: QueueNode) -> Reason:
    amount = record.demand.least_amount
    path = state.queues.by_name[record.queue].path
    who = next(
        node.queue.name
        for node in path
        if not node.queue.borrows and (node is confining or node.queue.guarantee == Amount())
    )
    found = [confining.first_beyond(confining.guarantee, each) for each in state.entitlements.choices(record, amount)]
    beyond = max(filter(None, found), key=lambda each: each.most, default=None)
    guarantee = "no guarantee stands behind it"
    if beyond is not None and beyond.most:
        whose = "its guarantee" if confining.queue.name == who else f"the guarantee of queue {confining.queue.name}"
        kept = _with_reserved(state, record, confining.queue.name)
        guarantee = f"{_TEXTS[beyond.field](beyond.asked)}{beyond.of_model} more would exceed {whose}{kept}"
    return Reason(
        Cause.GUARANTEE_OF_OTHERS,
        f"queue {who} may not borrow, and {guarantee}",
        (("asked_milli", amount.gpu_milli),),
        blocked_by=who,
    )


def quota_on_larger_models(
    state: State, claims: Claims, record: JobRecord, could_run: Callable[[Job], bool]
) -> Reason | None:
    """Why a job is not admitted on those models of cards of which there are enough; None where others would do.

    Args:
        could_run: whether the pool, were it empty, would take a job.
    """
    choices = state.entitlements.choices(record, record.demand.least_amount)
    open_ones = state.entitlements.open_choices(record, record.demand.least_amount) if len(choices) > 1 else choices
    if not open_ones or len(open_ones) == len(choices):
        return None
    left = [each.models[0][0] for each in open_ones]
    if could_run(on_models_alone(record.job, left)):
        return None
    closed = [number for number, each in enumerate(choices) if each not in open_ones]
    enough = (n for n in closed if could_run(on_models_alone(record.job, [*left, choices[n].models[0][0]])))
    with state.entitlements.on_choice(record, next(enough, closed[0])):
        reason = quota_in_the_way(state, claims, record)
    if reason is None:
        return None
    return replace(reason, summary=f"{reason.summary}; cards of {' and '.join(left)} alone could never take it")


def closed_models(state: State, record: JobRecord) -> list[str]:
    """The models of cards of which limits leave a job too few, while they leave it enough of others; with why."""
    if not state.queues.counts_cards:
        return []
    choices = state.entitlements.choices(record, record.demand.least_amount)
    found = [state.queues.cards_limit(record.queue, each) for each in choices]
    return list(dict.fromkeys(f"queue {each[0]} holds {_of_cards(each[1])}" for each in found if each is not None))


def _of_cards(beyond: Beyond) -> str:
    text = _TEXTS[beyond.field]
    return f"{text(beyond.held)}{beyond.of_model}, of at most {_most(beyond)}"


def _most(beyond: Beyond) -> str:
    """The bound itself, where it has been said of what."""
    return memory_text(beyond.most) if beyond.field == "card_memory" else _TEXTS[beyond.field](beyond.most)


def _queue_limit(state: State, claims: Claims, node: QueueNode, record: JobRecord) -> Reason:
    """A queue is at its limit, of cards or else of CPUs or of memory, or on each model of cards that would do."""
    limit, asked = node.limit, record.demand.least_amount
    assert limit is not None, "a queue without a limit limits nothing"
    counted = [
        what
        for is_counted, what in (
            (_counts_claims(state, claims, node), "what is claimed for jobs that are about to start"),
            (counts_in_turn_of(state, record, node.queue.name), "what is reserved"),
        )
        if is_counted
    ]
    about = f" (with {' and '.join(counted)})" if counted else ""
    beyond = node.first_beyond(limit, asked)
    if beyond is None:
        choices = state.entitlements.choices(record, asked)
        takes = [gpus_text(asked.gpu_milli)] if asked.gpu_milli else []
        if limit.card_mib != NO_BOUND:
            takes.append(card_memory_text(min(each.card_mib for each in choices)))
        return Reason(
            Cause.QUEUE_LIMIT,
            f"{'; '.join(closed_models(state, record))}{about}; the job asks for {' with '.join(takes)}",
            (("held_milli", node.gpu_milli), ("limit_milli", limit.gpu_milli), ("asked_milli", asked.gpu_milli)),
            blocked_by=node.queue.name,
        )
    text = _TEXTS[beyond.field]
    return Reason(
        Cause.QUEUE_LIMIT,
        f"queue {node.queue.name} holds {text(beyond.held)} of at most {_most(beyond)}{about}; the job asks for "
        f"{text(beyond.asked)}",
        (
            ("held_milli", node.gpu_milli),
            ("limit_milli", limit.gpu_milli),
            ("asked_milli", asked.gpu_milli),
        ),
        blocked_by=node.queue.name,
    )


def _with_reserved(state: State, record: JobRecord, queue: str) -> str:
    """What is said where some of what counts against the guarantee of a queue is not held yet."""
    return " with what is reserved" if counts_in_turn_of(state, record, queue) else ""


def _held_by_preemptible(state: State, record: JobRecord) -> str:
    """What of a guarantee is not held for good, and yet not borrowed as another job starts on it for good."""
    held: Counter[str] = Counter()
    for other in state.entitlements.preemptible_beside(record):
        if why := state.entitlements.keeps_guarantee(other, record.job.priority):
            held[why] += other.gpu_milli
    owner = "".join(node.queue.name for node in state.queues.by_name[record.queue].guarantors[-1:])
    return "".join(
        f"; preemptible work {why} holds {gpus_text(milli)} of the guarantee of queue {owner}"
        for why, milli in held.items()
        if milli
    )


def _of_memory(mib: int) -> str:
    return f"{memory_text(mib)} of memory"


_TEXTS: dict[str, Callable[[int], str]] = {
    "gpus": gpus_text, "cpus": cpus_text, "memory": _of_memory, "card_memory": card_memory_text,
}  # fmt: skip


def _counts_claims(state: State, claims: Claims, node: QueueNode) -> bool:
    """Whether some of what a queue holds is only claimed."""
    return any(state.queues.is_below(state.jobs[job].queue, node.queue.name) for job in claims.by_job)


def _limited(state: State, limit: Limit, record: JobRecord, *, claimed: bool) -> Reason:
    """The user, or the group whose queue it is, may not have more running work now.

    Args:
        claimed: jobs that are about to start may be among those that count.
    """
    held = state.limits.held.get((limit.user, limit.queue), AccountUsage())
    asked = record.demand.least_amount
    reserved = bool(limit.queue) and counts_in_turn_of(state, record, limit.queue)
    who = f"user {limit.user}" if limit.user else f"queue {limit.queue}"
    numbers = (
        ("running_jobs", held.jobs),
        ("held_milli", held.gpu_milli),
        ("held_cpu_milli", held.cpu_milli),
        *((("held_card_mib", held.card_mib),) if limit.card_mib is not None else ()),
        ("asked_milli", asked.gpu_milli),
        ("asked_cpu_milli", asked.cpu_milli),
    )
    bounds = [
        text
        for most, text in (
            (limit.jobs, count_text(limit.jobs or 0, "running job")),
            (limit.gpu_milli, gpus_text(limit.gpu_milli or 0)),
            (limit.cpu_milli, cpus_text(limit.cpu_milli or 0)),
            (limit.card_mib, card_memory_text(limit.card_mib or 0)),
        )
        if most is not None
    ]
    holds = [gpus_text(held.gpu_milli), cpus_text(held.cpu_milli)]
    if limit.card_mib is not None:
        holds.append(card_memory_text(held.card_mib))
    counted = f"{' running or about to start' * claimed}{' (with what is reserved)' * reserved}"
    return Reason(
        Cause.USER_LIMIT if limit.user else Cause.QUEUE_LIMIT,
        f"{who} {'has' if counted else 'runs'} {count_text(held.jobs, 'job')}{counted} with "
        f"{', '.join(holds[:-1])} and {holds[-1]}, and may have at most {', '.join(bounds)}",
        numbers,
        blocked_by=limit.queue,
    )
