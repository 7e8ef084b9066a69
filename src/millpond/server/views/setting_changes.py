"""Changes of configuration and accounts, and measurements, as the log keeps them; each as one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.model import events
from millpond.model.amounts import card_memory_text, count_text, cpus_text, gpus_text, memory_text, milli_text
from millpond.model.energy import RateMeasure
from millpond.model.errors import InconsistentStateError
from millpond.model.hardware.nodes import Pool
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Priority
from millpond.server.wording import lasting, local_time
from millpond.specs.config.queues import UNLIMITED


def settings_text(event: events.Event) -> str:
    """A sentence about an event that concerns no job and no closure of a node."""
    match event:
        case events.PolicyChanged(why=why) if why:
            return why
        case events.PolicyChanged(ordering=ordering, placement=placement, preempt=preempt, reserve=reserve):
            preempts = "running work may be ended for its equals" if preempt else "running work is not ended for equals"
            keeps = "room is kept for the first that waits" if reserve else "no room is kept for those that wait"
            return f"from now on ordering {ordering} and placement {placement} decide; {preempts}, {keeps}"
        case events.UsageHalfLifeChanged(half_life_s=half_life_s):
            return f"past usage counts half after {lasting(round(half_life_s))}"
        case events.PoolChanged(pool=pool):
            return f"pool {pool.name}: {_pool_text(pool)}"
        case events.QueueChanged(queue=queue):
            return f"queue {queue.name} below {queue.parent}: {_queue_text(queue)}"
        case events.QueueRemoved(queue=name):
            return f"queue {name} was deleted"
        case events.LimitChanged(limit=limit):
            return f"{_limited(limit)} may run {_limit_text(limit)}"
        case events.ReservationMade(reservation=made):
            span = f"from {local_time(made.begin)} to {local_time(made.until)}"
            who, what = made.by or "somebody", count_text(made.cards, "card")
            return f"{who} reserved {what} for queue {made.queue} {span} ({made.name})"
        case events.ReservationCancelled(name=name, by=by):
            return f"{by or 'somebody'} gave reservation {name} up"
        case events.ClockJumped(seconds=seconds):
            return f"the clock was set forward by {lasting(round(seconds))}; time limits and usage do not count them"
        case events.LoadSampled(node=node, load_milli=load):
            return f"devices of {node} used to {load / 10:g} %"
        case events.NodeContents(node=node, contents=contents):
            return f"{node} reports what it holds, by {count_text(len(contents), 'name')}"
        case events.EnergyRatePredicted():
            return _rates_text(event)
        case events.Tick():
            return "the scheduler looked at everything"
        case _:
            raise InconsistentStateError(f"no words for {type(event).__name__}")


def _rates_text(event: events.EnergyRatePredicted) -> str:
    known = [value for value in event.values if value is not None]
    if not known:
        return f"flexible jobs start as all others: {event.missing}"
    what = "costs" if event.measure is RateMeasure.PRICE else "emits (g CO2)"
    return f"a kWh {what} {known[0]:g} in this hour, {min(known):g} to {max(known):g} in those to come, as expected"


def _pool_text(pool: Pool) -> str:
    parts = [f"cards are {pool.sharing.value}"]
    if pool.cpu_factor_milli != 1000:
        parts.append(f"CPUs handed out up to {milli_text(pool.cpu_factor_milli)} times")
    if pool.suspends:
        parts.append("work may be suspended" + (f", turns of {lasting(pool.turn_s)}" if pool.turn_s else ""))
    if pool.measured_growth:
        parts.append("elastic jobs grow by what was measured")
    if pool.consolidates:
        parts.append("work is moved so that whole nodes come free")
    if pool.balances:
        parts.append("work is moved off busy cards")
    if pool.packs:
        parts.append("jobs that find no room share the cards of others")
    if pool.longest_boot_s != Pool().longest_boot_s:
        parts.append(f"nodes boot within {lasting(pool.longest_boot_s)}")
    if pool.lending:
        parts.append(f"borrowing at {', '.join(map(str, pool.lending))} only")
    return "; ".join(parts)


def _queue_text(queue: Queue) -> str:
    limit = "no limit" if queue.limit is None else f"limit {_amount_text(queue.limit, UNLIMITED)}"
    borrows = "" if queue.borrows else ", borrows nothing"
    cells = "".join(f", {cell.count} x {cell.level}" for cell in queue.cells)
    pinned = f", pinned {', '.join(queue.pinned)}" if queue.pinned else ""
    rules = "".join(f", {text}" for text in _rules_of(queue))
    guarantee = f"guarantee {_amount_text(queue.guarantee, 0)}{cells}{pinned}"
    return f"{guarantee}, {limit}, weight {queue.weight:g}{borrows}{rules}"


def _rules_of(queue: Queue) -> Iterator[str]:
    """What holds for its jobs: their order and their places, what bounds them one by one, or protects them."""
    yield from (
        f"{name} {text}" for name, text in (("ordering", queue.ordering), ("placement", queue.placement)) if text
    )
    if queue.running_jobs is not None:
        yield f"at most {count_text(queue.running_jobs, 'job')} at once"
    if queue.priorities:
        yield f"priority {' or '.join(Priority(number).name.lower() for number in queue.priorities)}"
    if queue.minimum_run_s is not None:
        yield f"runs last {lasting(round(queue.minimum_run_s))} before they may be asked to leave"


def _limited(limit: Limit) -> str:
    return f"user {limit.user}" if limit.user else f"queue {limit.queue}"


def _limit_text(limit: Limit) -> str:
    bounds = [
        None if limit.jobs is None else count_text(limit.jobs, "job"),
        None if limit.gpu_milli is None else gpus_text(limit.gpu_milli),
        None if limit.cpu_milli is None else cpus_text(limit.cpu_milli),
        None if limit.card_mib is None else card_memory_text(limit.card_mib),
    ]
    given = [bound for bound in bounds if bound is not None]
    return f"at most {', '.join(given)} at once" if given else "as much as its queues allow"


def _amount_text(amount: Amount, unsaid: int) -> str:
    """What is named of an amount.

    Args:
        unsaid: the number that stands for a resource that was not named.
    """
    parts = [
        (amount.gpu_milli, gpus_text(amount.gpu_milli)),
        (amount.cpu_milli, cpus_text(amount.cpu_milli)),
        (amount.memory_mib, memory_text(amount.memory_mib)),
    ]
    cards = [f"{gpus_text(milli)} of model {model}" for model, milli in amount.models]
    cards += [card_memory_text(amount.card_mib)] if amount.card_mib else []
    return ", ".join([*(text for number, text in parts if number != unsaid), *cards]) or "none"
