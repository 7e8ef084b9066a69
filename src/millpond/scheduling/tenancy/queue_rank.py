"""Where a job's queue and user stand: the part of the order that changes with what others hold.

Queues within their guarantee go before those that borrow; then the class of priority; then, for orderings that share
fairly, recent use. The fair ordering lets the share decide outright; the default one lets it stretch the key: after
four times as much recent use a job waits as if it were half as long again.
"""

from __future__ import annotations

from millpond.model.resources import Amount
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State, user_account
from millpond.scheduling.tenancy.admission import is_guaranteed

SHARE_POWER = 0.3
SHARE_FLOOR = 0.05
"""Added to every share, so that a newcomer does not go before everything."""

Rank = tuple[float, ...]


class QueueRank:
    """Ranks of waiting jobs for one cycle; shares are looked up once per account."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_share = state.ordering.needs_usage and state.usage.accounts > 1
        self._strict = state.ordering.share_decides
        self._capacity = state.capacity() if self._by_share else Amount()
        self._stretch: dict[str, float] = {}
        self._has_guarantees = state.queues.has_guarantees

    def rank(self, record: JobRecord) -> Rank:
        """The lower, the earlier: borrowing or not, class of priority, share, key."""
        job = record.job
        tier = float(not (self._has_guarantees and is_guaranteed(self._state, record)))
        key = record.key[0]
        if not self._by_share:
            return (tier, -float(job.priority), key)
        stretch = self._share(record)
        return (
            (tier, -float(job.priority), stretch, key) if self._strict else (tier, -float(job.priority), key * stretch)
        )

    def rank_of_growth(self, record: JobRecord) -> Rank:
        """The beginning of the rank of a running gang when one of its missing tasks joins it: the key is left out."""
        tier = 1.0
        if self._has_guarantees:
            state = self._state
            tier = float(state.queues.borrows(record.queue, record.amount_of(record.queued()[:1])))
        rank = (tier, -float(record.job.priority))
        return (*rank, self._share(record)) if self._by_share and self._strict else rank

    def _share(self, record: JobRecord) -> float:
        account = user_account(record)
        stretch = self._stretch.get(account)
        if stretch is None:
            state = self._state
            part = max(state.queues.fraction(record.queue), 1e-9)
            queue = state.usage.dominant_share(record.queue, self._capacity, state.now) / part
            user = state.usage.dominant_share(account, self._capacity, state.now)
            stretch = ((SHARE_FLOOR + queue) * (SHARE_FLOOR + user)) ** SHARE_POWER
            self._stretch[account] = stretch
        return stretch
