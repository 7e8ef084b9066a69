"""What a change of queues means for what runs, in sentences. Nothing is ended by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.model.amounts import milli_text
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.explaining.wording import gpus_text
from millpond.scheduling.tenancy.queue_views import QueueStatus


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
            yield f"{milli_text(now)} of {_cards(used)} that {name} holds {verb} borrowed now{was}"
        limit = status.queue.limit
        if limit is not None and limit != limits.get(name) and used > limit.gpu_milli:
            beyond = f"{name} holds {gpus_text(used)}, {milli_text(used - limit.gpu_milli)} beyond its limit"
            yield f"{beyond}: nothing more of it starts, and nothing is ended"

    shortage = shortage_of(after)
    if shortage and shortage != shortage_of(before):
        yield shortage


def shortage_of(statuses: Sequence[QueueStatus]) -> str:
    """That more cards are guaranteed than machines have, in a sentence; empty where they have them."""
    share = statuses[0].share  # the root's, which all others are below
    missing = share.guaranteed - share.within - share.lent - share.free
    if missing <= 0:
        return ""
    verb = "is" if missing == CARD_MILLI else "are"
    return (
        f"{milli_text(missing)} of {gpus_text(share.guaranteed)} that are guaranteed {verb} on no machine that is open"
    )


def _borrowed(status: QueueStatus) -> int:
    return status.share.borrowed if status.has_guarantee else 0


def _cards(milli: int) -> str:
    return f"{milli_text(milli)} {'card' if milli == CARD_MILLI else 'cards'}"
