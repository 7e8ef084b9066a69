"""Where a job's queue and user stand: the part of the order that changes with what others hold.

Queues within their guarantee go before those that borrow; then the class of priority; then, for orderings that share
fairly, recent use. The fair ordering lets the share decide outright; the default one lets it stretch the key: after
four times as much recent use a job waits as if it were half as long again.
"""

from __future__ import annotations

import numpy as np

from millpond.model.resources import Amount
from millpond.scheduling.ordering.line_table import (
    ACCOUNT,
    KEY,
    LEAST_MILLI,
    PRIORITY,
    BoolArray,
    FloatArray,
    LineTable,
)
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
        self._of_queue: dict[str, float] = {}
        self._stretch: dict[tuple[str, str], float] = {}
        self._has_guarantees = state.queues.has_guarantees

    def rank(self, record: JobRecord) -> Rank:
        """The lower, the earlier: borrowing or not, class of priority, share where that decides, key."""
        job = record.job
        tier = float(not (self._has_guarantees and is_guaranteed(self._state, record)))
        key = record.key[0]
        if not self._by_share:
            return (tier, -float(job.priority), 0.0, key)
        stretch = self._share(record.queue, job.user)
        share, key = (stretch, key) if self._strict else (0.0, key * stretch)
        return (tier, -float(job.priority), share, key)

    def ranks(self, table: LineTable) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The ranks of the first of each line: the parts of ``rank``, (lines,) each."""
        keys, shares = table.figure(KEY), np.zeros(len(table))
        if self._by_share:
            known = [0.0 if account is None else self._share(*account) for account in table.accounts.items]
            stretch = np.array(known)[table.number(ACCOUNT)]
            shares, keys = (stretch, keys) if self._strict else (shares, keys * stretch)
        return (~self.guaranteed(table)).astype(np.float64), -table.figure(PRIORITY), shares, keys

    def guaranteed(self, table: LineTable) -> BoolArray:
        """(lines,) whether the first of the line is within the guarantee of its queue."""
        if not self._has_guarantees:
            return np.zeros(len(table), dtype=np.bool_)
        queues = self._state.queues
        left = [-1 if account is None else queues.guaranteed_left(account[0]) for account in table.accounts.items]
        guaranteed: BoolArray = table.figure(LEAST_MILLI) <= np.array(left)[table.number(ACCOUNT)]
        return guaranteed

    def rank_of_growth(self, record: JobRecord) -> Rank:
        """The beginning of the rank of a running gang when one of its missing tasks joins it: the key is left out."""
        tier = 1.0
        if self._has_guarantees:
            state = self._state
            tier = float(state.queues.borrows(record.queue, record.amount_of(record.queued()[:1])))
        rank = (tier, -float(record.job.priority))
        return (*rank, self._share(record.queue, record.job.user)) if self._by_share and self._strict else rank

    def _share(self, queue: str, user: str) -> float:
        stretch = self._stretch.get((queue, user))
        if stretch is None:
            state = self._state
            of_queue = self._of_queue.get(queue)
            if of_queue is None:
                part = max(state.queues.fraction(queue), 1e-9)
                of_queue = self._of_queue[queue] = state.usage.dominant_share(queue, self._capacity, state.now) / part
            of_user = state.usage.dominant_share(user_account(queue, user), self._capacity, state.now)
            stretch = ((SHARE_FLOOR + of_queue) * (SHARE_FLOOR + of_user)) ** SHARE_POWER
            self._stretch[queue, user] = stretch
        return stretch
