"""Which limit, guarantee or hour of lending keeps a job waiting, with the numbers."""

from __future__ import annotations

from millpond.model import windows
from millpond.model.reasons import Cause, Reason
from millpond.model.resources import Amount
from millpond.model.tenants import Limit
from millpond.scheduling.explaining.wording import cards_text, gpus_text
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import limit_in_the_way
from millpond.scheduling.tenancy.limits import AccountUsage


def quota_in_the_way(state: State, record: JobRecord) -> Reason | None:
    """Why its queue, its user or the hour does not admit a job; None where they do."""
    amount = record.demand.least_amount
    limiting = limit_in_the_way(state, record)
    if limiting is not None and limiting.queue.limit is not None:
        name, limit = limiting.queue.name, limiting.queue.limit
        return Reason(
            Cause.QUEUE_LIMIT,
            f"queue {name} holds {cards_text(limiting.gpu_milli)} of at most {gpus_text(limit.gpu_milli)}; "
            f"the job asks for {cards_text(amount.gpu_milli)}",
            (
                ("held_milli", limiting.gpu_milli),
                ("limit_milli", limit.gpu_milli),
                ("asked_milli", amount.gpu_milli),
            ),
            blocked_by=name,
        )
    exceeded = state.limits.exceeded(record.job, amount)
    if exceeded is not None:
        return _limited(exceeded, state.limits.held.get((exceeded.user, exceeded.queue), AccountUsage()), amount)
    if not state.lends(record, amount):
        hours = state.cluster.pools[record.job.pool].lending
        return Reason(
            Cause.LENDING_OVER,
            f"{gpus_text(amount.gpu_milli)} more would exceed the guarantee of queue {record.queue}, and pool "
            f"{record.job.pool} lends only in its hours ({' and '.join(map(str, hours))})",
            (("asked_milli", amount.gpu_milli),),
            blocked_by=record.queue,
            opens_at=windows.opens_at(hours, state.now),
        )
    if not state.queues.may_borrow(record.queue) and state.queues.borrows(record.queue, amount):
        return Reason(
            Cause.GUARANTEE_OF_OTHERS,
            f"queue {record.queue} may not borrow, and {gpus_text(amount.gpu_milli)} more would exceed its guarantee",
            (("asked_milli", amount.gpu_milli),),
            blocked_by=record.queue,
        )
    return None


def _limited(limit: Limit, held: AccountUsage, asked: Amount) -> Reason:
    """The user, or the group whose queue it is, may not have more running work now."""
    who = f"user {limit.user}" if limit.user else f"queue {limit.queue}"
    numbers = (
        ("running_jobs", held.jobs),
        ("held_milli", held.gpu_milli),
        ("held_cpu_milli", held.cpu_milli),
        ("asked_milli", asked.gpu_milli),
        ("asked_cpu_milli", asked.cpu_milli),
    )
    bounds = [
        text
        for most, text in (
            (limit.jobs, f"{limit.jobs} running jobs"),
            (limit.gpu_milli, gpus_text(limit.gpu_milli or 0)),
            (limit.cpu_milli, f"{cards_text(limit.cpu_milli or 0)} CPUs"),
        )
        if most is not None
    ]
    return Reason(
        Cause.USER_LIMIT if limit.user else Cause.QUEUE_LIMIT,
        f"{who} runs {held.jobs} job{'s' * (held.jobs != 1)} with {gpus_text(held.gpu_milli)} and "
        f"{cards_text(held.cpu_milli)} CPUs, and may have at most {', '.join(bounds)}",
        numbers,
        blocked_by=limit.queue,
    )
