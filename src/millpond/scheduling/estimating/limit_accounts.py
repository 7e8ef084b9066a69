"""What limits of queues and users leave to the jobs of a future, as numbered accounts with what each may hold more.

Limits on CPU and memory are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


class LimitAccounts:
    """The accounts that jobs were seen to count against.

    Args:
        every: the model is so many times smaller than the cluster, and so are its limits.

    Attributes:
        spare: how much each account may hold beyond what it does.
    """

    def __init__(self, state: State, every: int) -> None:
        self._state = state
        self._every = every
        self._numbers: dict[object, int] = {}
        self.spare: list[int] = []

    def charges(self, record: JobRecord) -> tuple[tuple[int, int], ...]:
        """(account, amount) for each limit on a job's queue, the queues above, its user and its group."""
        is_free = record.job.preemptible and not self._state.has_bounds
        return () if is_free else tuple(self._charges(record))

    def _charges(self, record: JobRecord) -> Iterator[tuple[int, int]]:
        queues, limits = self._state.queues, self._state.limits
        milli = record.demand.least_amount.gpu_milli
        if milli:
            for node in queues.by_name[record.queue].path:
                limit = node.queue.limit
                if limit is not None:
                    yield self._account(("queue", node.queue.name), limit.gpu_milli - node.gpu_milli), milli
            leaf = queues.by_name[record.queue]
            must_be_covered = leaf.is_confined or not record.job.preemptible
            for node in (*leaf.confined_to, *(leaf.guarantors[-1:] if must_be_covered else ())):
                spare = node.queue.guarantee.gpu_milli - node.gpu_milli
                yield self._account(("guarantee", node.queue.name), spare), milli
        for account in limits.accounts_of(record.job):
            bound, held = limits.bounds.get(account), limits.held.get(account)
            if bound is not None and bound.jobs is not None:
                yield self._account(("jobs", account), bound.jobs - (held.jobs if held else 0)), 1
            if bound is not None and bound.gpu_milli is not None and milli:
                yield self._account(("cards", account), bound.gpu_milli - (held.gpu_milli if held else 0)), milli

    def _account(self, key: object, spare: int) -> int:
        number = self._numbers.setdefault(key, len(self.spare))
        if number == len(self.spare):
            self.spare.append(spare // self._every)
        return number
