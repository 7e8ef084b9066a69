"""The effects of a change of queues on running work, in sentences. Nothing is ended by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from millpond.model.amounts import card_memory_text, cards_text, cpus_text, gpus_text, memory_text, milli_text
from millpond.model.resources import CARD_MILLI, Amount
from millpond.scheduling.tenancy.bounds import of_model
from millpond.scheduling.tenancy.queue_shares import QueueShare
from millpond.scheduling.tenancy.queue_views import QueueStatus
from millpond.specs.api.pool.queues import QueueRoom, QueueRoomChange
from millpond.specs.config.queues import UNLIMITED


def effects_of(before: Sequence[QueueStatus], after: Sequence[QueueStatus]) -> Iterator[str]:
    """Where work has become borrowed or is beyond a limit, a sentence for each queue that takes jobs; and a shortage.

    Args:
        before, after: all queues with the same work.
    """
    borrowed = {status.queue.name: _borrowed(status) for status in before}
    limits = {status.queue.name: status.queue.limit for status in before}
    for status in after:
        name, used = status.queue.name, status.share.used
        now = _borrowed(status)
        if status.takes_jobs and now != borrowed.get(name, 0):
            was = f", {milli_text(borrowed.get(name, 0))} before" if borrowed.get(name) else ""
            verb = "is" if now == CARD_MILLI else "are"
            yield f"{milli_text(now)} of {cards_text(used)} that {name} holds {verb} borrowed now{was}"
        limit = status.queue.limit
        if limit is not None and limit != limits.get(name):
            for beyond in _beyond(limit, status.work.held):
                yield f"{name} holds {beyond} beyond its limit: nothing more of it starts, and nothing is ended"

    shortage = shortage_of(after)
    if shortage and shortage != shortage_of(before):
        yield shortage


def changed_rooms(before: Sequence[QueueStatus], after: Sequence[QueueStatus]) -> Iterator[QueueRoomChange]:
    """Every queue that has other room than before; arguments as for ``effects_of``."""
    had = {status.queue.name: _room(status) for status in before}
    for status in after:
        name, room = status.queue.name, _room(status)
        if had.get(name) != room:
            yield QueueRoomChange(queue=name, before=had.get(name), after=room)


def _room(status: QueueStatus) -> QueueRoom:
    share, limit = status.share, status.queue.limit
    return QueueRoom(
        promised_gpu_milli=share.guaranteed,
        limit_gpu_milli=None if limit is None or limit.gpu_milli >= UNLIMITED else limit.gpu_milli,
        borrowed_gpu_milli=share.borrowed if status.has_guarantee else None,
        lent_gpu_milli=share.lent if status.has_guarantee else None,
        free_gpu_milli=share.free if status.has_guarantee else None,
    )


def shortage_of(statuses: Sequence[QueueStatus]) -> str:
    """That more cards, or card memory, are guaranteed than machines have, in a sentence; empty where they have them."""
    shares = statuses[0].shares  # the root's, which all others are below
    found = [
        _shortage(share, "" if len(shares) == 1 else of_model(model))
        for model, share in shares.items()
        if share.guaranteed - share.within - share.lent - share.free > 0
    ]
    guaranteed, there = _guaranteed_card_mib(statuses), statuses[0].open_card_mib
    if guaranteed > there:
        missing = f"{memory_text(guaranteed - there)} of {card_memory_text(guaranteed)}"
        found.append(f"{missing} that are guaranteed are on no machine that is open")
    return "; ".join(found)


def _guaranteed_card_mib(statuses: Sequence[QueueStatus]) -> int:
    """What all queues together are guaranteed of card memory; what those below a queue are is part of its own."""
    owed: Counter[str] = Counter()
    for status in reversed(statuses):
        owed[status.queue.parent] += max(status.queue.guarantee.card_mib, owed[status.queue.name])
    return owed[""]


def _shortage(share: QueueShare, of_models: str) -> str:
    missing = share.guaranteed - share.within - share.lent - share.free
    verb = "is" if missing == CARD_MILLI else "are"
    guaranteed = f"{gpus_text(share.guaranteed)}{of_models}"
    return f"{milli_text(missing)} of {guaranteed} that are guaranteed {verb} on no machine that is open"


def _beyond(limit: Amount, held: Amount) -> Iterator[str]:
    """Of what more is held than a limit allows, and how much more; what it does not name is not bounded."""
    if held.gpu_milli > limit.gpu_milli:
        yield f"{gpus_text(held.gpu_milli)}, {milli_text(held.gpu_milli - limit.gpu_milli)}"
    if 0 < limit.cpu_milli < held.cpu_milli:
        yield f"{cpus_text(held.cpu_milli)}, {milli_text(held.cpu_milli - limit.cpu_milli)}"
    if 0 < limit.memory_mib < held.memory_mib:
        yield f"{memory_text(held.memory_mib)} of memory, {memory_text(held.memory_mib - limit.memory_mib)}"
    if 0 < limit.card_mib < held.card_mib:
        yield f"{card_memory_text(held.card_mib)}, {memory_text(held.card_mib - limit.card_mib)}"
    of_models = dict(held.models)
    for model, most in limit.models:
        if of_models.get(model, 0) > most:
            yield f"{gpus_text(of_models[model])} of model {model}, {milli_text(of_models[model] - most)}"


def _borrowed(status: QueueStatus) -> int:
    return status.share.borrowed if status.has_guarantee else 0
