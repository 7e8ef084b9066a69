"""Whether a reservation can be agreed upon, or from when on: by amounts and by nodes, against all that was promised.

By amounts: at each instant of the span, all reservations together stay within the limits of their queues and groups,
and within what the queues are guaranteed, beside their work that cannot be asked to leave. So they leave every other
queue its own. Only what may go beyond the guarantee is held against what no queue is guaranteed instead. Where the
number of running jobs is limited, each reservation counts as one. Limits of users are not asked: who will use it is not
known.

By nodes: the cards can be had at the begin, whole nodes as such, beside what other reservations have and beside work
that cannot have left by then. Nodes of reservations far ahead are not chosen yet; for this they are, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from millpond.model.amounts import card_memory_text, count_text, memory_text, seconds_text
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.states import JobState
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import ROOT_QUEUE, Limit
from millpond.model.units import DAY_S, HOUR_S
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.own_orderings import Orderings
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.choosing import choose, usable_cards
from millpond.scheduling.reserving.parts import leaves_at, parts_of
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.bounds import NO_BOUND, OTHER_MODELS
from millpond.scheduling.tenancy.card_models import choices_of_reserved
from millpond.scheduling.tenancy.limits import Account, AccountLimitUsage, AccountUsage
from millpond.scheduling.tenancy.queue_node import QueueNode
from millpond.scheduling.tenancy.queues import QueueTree

_TAKEN = "reserved then, or held by work that cannot be asked to leave"

MOST_TRIES = 200
"""So many later begins are tried: a bound on work."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a reservation does not fit.

    Attributes:
        why: a clause.
        fits_from: the nearest later begin at which one of its length fits; None where none was found.
        remedy: what helps where it fits at no time that was found.
    """

    why: str
    fits_from: float | None = None
    remedy: str = "reserve fewer cards, or for a shorter time"


def misfit(state: State, wanted: AdvanceReservation) -> Misfit | None:
    """Why a reservation cannot be agreed upon, and from when on it could; None if it can.

    Raises:
        NotFoundError, InvalidInputError, ConflictError: it could at no time: as ``require_sound``.
    """
    require_sound(state, wanted)
    if _first_that_fits(state, wanted) is not None:
        return None
    judged, length_s = _by_model(state, wanted)[0], wanted.until - wanted.begin
    why = _why_not(state, judged)
    for begin in _later_begins(state, wanted)[:MOST_TRIES]:
        if _first_that_fits(state, replace(wanted, begin=begin, until=begin + length_s)) is not None:
            return Misfit(why, begin)
    if wanted.beyond_guarantee or _guarantors(state.queues, judged):
        return Misfit(why)
    return Misfit(why, remedy="ask an admin for a guarantee, or to reserve beyond it: `--beyond-guarantee`")


def require_sound(state: State, wanted: AdvanceReservation) -> None:
    """Refuse what could be agreed upon at no time.

    Raises:
        NotFoundError: there is no such queue or pool.
        InvalidInputError: its span is past, or has begun; no card is of its models; its nodes have other numbers of
            cards; the queue takes no jobs.
        ConflictError: the ordering keeps no room.
    """
    if wanted.queue not in state.queues.by_name:
        raise NotFoundError(f"no queue {wanted.queue!r}", "`pond queue show` lists them")
    if not state.queues.is_leaf(wanted.queue):
        raise InvalidInputError(f"queue {wanted.queue!r} takes no jobs", "name a leaf of the queue tree")
    if wanted.pool not in state.cluster.pools:
        raise NotFoundError(f"no pool {wanted.pool!r}", f"there are {', '.join(state.cluster.pools)}")
    before = state.reserved.by_name.get(wanted.name)
    has_begun = before is not None and before.wanted.begin == wanted.begin
    if wanted.until <= state.now or (wanted.begin < state.now and not has_begun):
        past_s = state.now - wanted.begin
        unit_s = next((unit for unit in (DAY_S, HOUR_S, 60.0) if past_s >= 2 * unit), 1)
        ago = seconds_text(round(past_s / unit_s) * unit_s)
        raise InvalidInputError(
            f"reservation {wanted.name!r} is to begin {ago} in the past by the scheduler's time", "name a later begin"
        )
    if before is not None and (before.wanted.queue, before.wanted.pool) != (wanted.queue, wanted.pool):
        raise ConflictError(
            f"reservation {wanted.name!r} is one of queue {before.wanted.queue!r} in pool {before.wanted.pool!r}",
            "choose another name, or cancel it first",
        )
    if state.ordering.replans and state.settings.preempt:
        raise ConflictError(f"the ordering {state.orderings.base_name!r} keeps no room for anyone", "use another")
    _require_cards(state, wanted)


def require_room_kept(state: State, settings: Settings) -> None:
    """Refuse policies that keep room for nobody while a reservation is agreed upon.

    Raises:
        InvalidInputError: there is no such ordering.
        ConflictError: they do.
    """
    orderings, name = Orderings(settings), next(iter(state.reserved.by_name), None)
    if name is not None and orderings.base.replans and settings.preempt:
        raise ConflictError(
            f"reservation {name!r} is agreed upon, and the ordering {orderings.base_name!r} keeps no room for anyone",
            f"use another ordering, or cancel it first: `pond reservations cancel {name}`",
        )


def _require_cards(state: State, wanted: AdvanceReservation) -> None:
    index = state.cluster.hardware_index
    nodes, known = index.nodes_of(wanted.pool), index.models_in(wanted.pool)
    if not nodes and (pools := sorted({node.pool for node in state.cluster.nodes if node is not None})):
        raise InvalidInputError(f"pool {wanted.pool!r} has no nodes", f"set `pool` to one of: {', '.join(pools)}")
    unknown = [model for model in wanted.models if model not in known]
    if unknown:
        raise InvalidInputError(
            f"pool {wanted.pool!r} has no card of model {unknown[0]!r}", f"its models are {', '.join(known) or 'none'}"
        )
    counts = [count for node in nodes if (count := usable_cards(state, node, wanted))]
    if wanted.cards > sum(counts):
        raise InvalidInputError(
            f"{count_text(wanted.cards, 'card')} of {sum(counts)} in pool {wanted.pool!r}"
            + (f" of model {' or '.join(wanted.models)}" if wanted.models else ""),
            "reserve fewer, or wait until more are usable",
        )
    sizes = {len(node.devices) for node in nodes if usable_cards(state, node, wanted)}
    if wanted.whole_nodes and len(sizes) == 1 and wanted.cards % (size := next(iter(sizes))):
        more = wanted.cards + size - wanted.cards % size
        raise InvalidInputError(
            f"{count_text(wanted.cards, 'card')} cannot be had as whole nodes: each has {size}",
            f"reserve {more}, or leave whole nodes out",
        )


def agreed(state: State, wanted: AdvanceReservation) -> AdvanceReservation:
    """The reservation as it is agreed upon: where limits or guarantees name models, for cards of one of those it takes.

    Raises:
        NotFoundError, InvalidInputError, ConflictError: see ``misfit``.
    """
    found = misfit(state, wanted)
    if found is not None:
        remedy = found.remedy
        if found.fits_from is not None:
            remedy = f"it fits {found.fits_from - wanted.begin:.0f} s later"
        raise ConflictError(f"reservation {wanted.name!r} does not fit: {found.why}", remedy)
    return _first_that_fits(state, wanted) or wanted


def _first_that_fits(state: State, wanted: AdvanceReservation) -> AdvanceReservation | None:
    return next((each for each in _by_model(state, wanted) if not _why_not(state, each)), None)


def _by_model(state: State, wanted: AdvanceReservation) -> list[AdvanceReservation]:
    """The same for each model of cards that it takes, where a limit of its queues or any guarantee names models."""
    tree = state.queues
    limits = (node.limit for node in tree.by_name[wanted.queue].path)
    names_cards = any(limit is not None and (limit.models or limit.card_mib != NO_BOUND) for limit in limits)
    if not (tree.guarantees_by_card or names_cards):
        return [wanted]
    choices = choices_of_reserved(state.cluster, wanted)
    return [replace(wanted, models=(model,)) for choice in choices for model, _ in choice.models] or [wanted]


def _why_not(state: State, wanted: AdvanceReservation) -> str:
    """Why a reservation does not fit into its span; empty if it does."""
    return _beyond_amounts(state, wanted) or _beyond_nodes(state, wanted)


def require_kept(state: State, queues: QueueTree, changed: Limit | None = None) -> None:
    """Refuse limits and guarantees by which a reservation that is agreed would be beyond them, and now is not.

    Args:
        queues: as they would be.
        changed: a limit as it would be, of a user or of a group.

    Raises:
        ConflictError: a reservation would no longer fit.
    """
    before = state.limits.by_account
    after = before if changed is None else {**before, (changed.user, changed.queue): changed}
    for wanted in [room.wanted for room in state.reserved.by_name.values()]:
        why = _beyond_promises(state, _Bounds(queues, after), wanted)
        if why and not _beyond_promises(state, _Bounds(state.queues, before), wanted):
            raise ConflictError(
                f"reservation {wanted.name!r} of {count_text(wanted.cards, 'card')} would no longer fit: {why}",
                f"leave queue {wanted.queue} so much, or cancel it first: `pond reservations cancel {wanted.name}`",
            )


def counts_on_rest_of(state: State, record: JobRecord) -> str:
    """The first reservation that fits now, and would not if a gang of which a minimum stays were suspended; or empty.

    Suspended, it gives up nothing.
    """
    fit = [room.wanted for room in state.reserved.by_name.values() if not _why_not(state, room.wanted)]
    before, record.state = record.state, JobState.SUSPENDED
    found = next((wanted.name for wanted in fit if _why_not(state, wanted)), "")
    record.state = before
    return found


class _Bounds(NamedTuple):
    """Queues with their limits and guarantees, and the limits of groups."""

    queues: QueueTree
    limits: Mapping[Account, Limit]


def _beyond_promises(state: State, bounds: _Bounds, wanted: AdvanceReservation) -> str:
    """What limits or guarantees say against a reservation, whatever runs; empty where they leave it room."""
    for _, held in _reserved_beside(state, bounds, wanted):
        if why := _beyond_limit(state, held, wanted) or _beyond_guarantee(state, held.queues, wanted):
            return why
    return ""


def _beyond_amounts(state: State, wanted: AdvanceReservation) -> str:
    own = state.reserved.by_name.get(wanted.name) or ReservedRoom(wanted)
    staying = [record for record in state.running.values() if not record.job.preemptible]
    for instant, held in _reserved_beside(state, _Bounds(state.queues, state.limits.by_account), wanted):
        for record in staying:
            is_there = stays_until(record, state.ordering.time_left, state.now) > instant
            if is_there and not state.reserved.uses_at(record, instant, own):
                stays = [task for part in parts_of(record) if not part.may_be_asked for task in part.tasks]
                held.charge(record.queue, state.amounts.held(record, stays))
        if why := _beyond_limit(state, held, wanted) or _beyond_guarantee(state, held.queues, wanted):
            return why
    return ""


class _PromisedAmounts(NamedTuple):
    """Queues, and the limits of groups, by what is held at an instant."""

    queues: QueueTree
    limits: AccountLimitUsage

    def charge(self, queue: str, amount: Amount) -> None:
        """One job of a queue, or one reservation, holds so much."""
        self.queues.charge(queue, amount, 1)
        self.limits.charge_reserved(queue, amount, 1, 1)


def _reserved_beside(
    state: State, bounds: _Bounds, wanted: AdvanceReservation
) -> Iterator[tuple[float, _PromisedAmounts]]:
    """The instants within a reservation at which most is reserved beside it, with just that as held; it may be charged
    until the next is asked for."""
    others = [
        room.wanted
        for room in state.reserved.by_name.values()
        if room.wanted.name != wanted.name and room.wanted.overlaps(wanted.begin, wanted.until)
    ]
    for instant in sorted({wanted.begin, *(each.begin for each in others if each.begin > wanted.begin)}):
        tree = QueueTree(Journal())
        tree.copy_from(bounds.queues)
        for node in tree.by_name.values():
            node.gpu_milli = node.cpu_milli = node.memory_mib = node.card_mib = 0
            node.models.clear()
        limits = AccountLimitUsage(tree.journal, tree)
        limits.by_account = dict(bounds.limits)
        limits.renew(())
        held = _PromisedAmounts(tree, limits)
        with tree.journal:
            for other in others:
                if other.covers(instant):
                    held.charge(other.queue, state.amounts.of_reservation(other))
            yield instant, held


def _beyond_limit(state: State, held: _PromisedAmounts, wanted: AdvanceReservation) -> str:
    asked = state.amounts.of_reservation(wanted)
    limiting = held.queues.limiting(wanted.queue, asked)
    if limiting is None:
        return _beyond_limit_of_group(held.limits, wanted, asked)
    beyond = None if limiting.limit is None else limiting.first_beyond(limiting.limit, asked)
    if beyond is None:
        return f"queue {wanted.queue} may not borrow beyond what {limiting.queue.name} is guaranteed"
    if beyond.field == "card_memory":
        text = f"{card_memory_text(beyond.most)}, of which {memory_text(beyond.held)} are {_TAKEN}"
        return f"queue {limiting.queue.name} may have {text}"
    reserved, most = beyond.held // CARD_MILLI, count_text(beyond.most // CARD_MILLI, "card")
    return f"queue {limiting.queue.name} may have {most}{beyond.of_model}, of which {reserved} are {_TAKEN}"


def _beyond_limit_of_group(limits: AccountLimitUsage, wanted: AdvanceReservation, asked: Amount) -> str:
    limit = limits.exceeded_as_reserved(wanted.queue, asked, 1)
    if limit is None:
        return ""
    held, who = limits.held.get(("", limit.queue)) or AccountUsage(), f"the group of queue {limit.queue}"
    if limit.jobs is not None and held.jobs >= limit.jobs:
        others = "other reservations, or work that cannot be asked to leave,"
        jobs = count_text(limit.jobs, "job")
        return f"queue {limit.queue} runs at most {jobs} at once, and {others} are {held.jobs} of them then"
    if limit.gpu_milli is not None and held.gpu_milli + asked.gpu_milli > limit.gpu_milli:
        most, reserved = limit.gpu_milli // CARD_MILLI, held.gpu_milli // CARD_MILLI
        return f"{who} may have {count_text(most, 'card')}, of which {reserved} are {_TAKEN}"
    text = f"{card_memory_text(limit.card_mib or 0)}, of which {memory_text(held.card_mib)} are {_TAKEN}"
    return f"{who} may have {text}"


def _beyond_guarantee(state: State, tree: QueueTree, wanted: AdvanceReservation) -> str:
    """Why the guarantee of the queue does not cover it beside what the queues of a tree hold; empty if it does."""
    asked, model = state.amounts.of_reservation(wanted), _judged_model(tree, wanted)
    of_models = f" of model {model}" if model != OTHER_MODELS else " of other models" if tree.guaranteed_models else ""
    if wanted.beyond_guarantee:
        tree.charge(wanted.queue, asked, 1)
        free = _capacity_milli(state, model) - sum(
            max(_guaranteed(child, model), child.cards_held(model)) for child in tree.by_name[ROOT_QUEUE].children
        )
        short = -(free // CARD_MILLI)
        return f"{short} of its cards are guaranteed to other queues, or reserved then" if free < 0 else ""

    def covers(cards: int) -> bool:
        asked = state.amounts.of_reservation(replace(wanted, cards=cards))
        return tree.has_guarantees and not tree.blocks_guarantees(wanted.queue, asked)

    if covers(wanted.cards):
        return ""
    guarantors = _guarantors(tree, wanted)
    if not guarantors:
        return f"queue {wanted.queue} is guaranteed no cards{of_models}"
    node = max(guarantors, key=lambda each: each.cards_left(model))
    if asked.card_mib > node.card_mib_left:
        return (
            f"it would have {card_memory_text(asked.card_mib)}, and of what queue {node.queue.name} is guaranteed "
            f"{memory_text(max(node.card_mib_left, 0))} are left then"
        )
    given, left = node.cards_guaranteed(model) // CARD_MILLI, max(node.cards_left(model), 0) // CARD_MILLI
    guaranteed = f"of the {count_text(given, 'card')}{of_models} that queue {node.queue.name} is guaranteed"
    if left >= wanted.cards:
        most = next(cards for cards in range(wanted.cards - 1, -1, -1) if not cards or covers(cards))
        return f"{guaranteed}, {most} are left beside what is guaranteed to other queues below it"
    return f"{guaranteed}, {left} are neither reserved then nor held by work that cannot be asked to leave"


def _guarantors(tree: QueueTree, wanted: AdvanceReservation) -> list[QueueNode]:
    """The queues that guarantee a reservation any cards."""
    model = _judged_model(tree, wanted)
    return [node for node in tree.by_name[wanted.queue].guarantors if node.cards_guaranteed(model)]


def _judged_model(tree: QueueTree, wanted: AdvanceReservation) -> str:
    """The model by which guarantees judge a reservation, or all that they do not name."""
    return next((model for model in wanted.models[:1] if model in tree.guaranteed_models), OTHER_MODELS)


def _capacity_milli(state: State, model: str) -> int:
    """The compute of all cards that guarantees judge together with those of a model."""
    named = state.queues.guaranteed_models
    if not named:
        return state.cluster.capacity.gpu_milli
    devices = (device for node in state.cluster.nodes if node is not None for device in node.devices)
    usable = (device.model for device in devices if state.cluster.hardware.is_usable(device))
    return CARD_MILLI * sum(each == model if model in named else each not in named for each in usable)


def _guaranteed(node: QueueNode, model: str) -> int:
    """What a queue or those below it are guaranteed of a model, in milli."""
    return max(node.cards_guaranteed(model), sum(_guaranteed(child, model) for child in node.children))


def _beyond_nodes(state: State, wanted: AdvanceReservation) -> str:
    rooms = state.reserved.beside(wanted.name)
    for number, room in enumerate(rooms):
        if not room.cards_on and room.wanted.overlaps(wanted.begin, wanted.until):
            others = [*rooms[:number], *rooms[number + 1 :]]
            chosen = choose(state, room, others)
            rooms[number] = ReservedRoom(room.wanted, chosen)
    before = state.reserved.by_name.get(wanted.name)
    room = ReservedRoom(wanted, users={} if before is None else before.users)
    found = sum(choose(state, room, rooms, patient=wanted.begin < state.now).values())
    if found >= wanted.cards:
        return ""
    shape = " as whole nodes" if wanted.whole_nodes else ""
    cards = f"{found} of {count_text(wanted.cards, 'card')}"
    return f"{cards} can be had then{shape}, beside other reservations and work that stays"


def _later_begins(state: State, wanted: AdvanceReservation) -> list[float]:
    """The instants after its begin at which something ends that is in the way."""
    return sorted({instant for instant in _ends(state) if wanted.begin < instant < NEVER})


def _ends(state: State) -> Iterator[float]:
    yield state.now
    for room in state.reserved.by_name.values():
        yield room.wanted.until
    for closures in state.cordons.by_node.values():
        yield from (each.until for each in closures if each.until is not None)
    for record in state.running.values():
        yield from (leaves_at(state, record, may_be_asked=part.may_be_asked) for part in parts_of(record))
