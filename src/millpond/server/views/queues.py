"""Queues as the API shows them, each reader those that they may see."""

from __future__ import annotations

from collections import Counter

from millpond.model.states import JobState
from millpond.model.tenants import Limit
from millpond.scheduling.nodes.views import QueueStatus
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.roles import Caller, Verb
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.core import Core
from millpond.server.runtime.queries import CoreQueries
from millpond.specs.api.queues import QueueInfo


class Queues:
    """Shows queues."""

    def __init__(self, queries: CoreQueries, job_cache: JobCache, accounts: Accounts) -> None:
        self._queries = queries
        self._job_cache = job_cache
        self._accounts = accounts

    async def seen_by(self, caller: Caller) -> list[QueueInfo]:
        """The queues of the groups whose jobs the caller may read; an admin sees all of them."""
        found = await self._queries.query(_statuses)
        counts = self._jobs({each.queue.name: each.queue.parent for each, _ in found})
        own = self._accounts.queues_for(caller, Verb.READ_JOBS)
        return [self._shown(each, limit, counts) for each, limit in found if caller.admin or each.queue.name in own]

    def _jobs(self, parents: dict[str, str]) -> Counter[tuple[str, bool]]:
        """How many jobs each queue has, those of the queues below it included: by name, and whether they wait."""
        counts: Counter[tuple[str, bool]] = Counter()
        for info in self._job_cache.newest_first():
            queue = info.queue if info.array is None else ""
            while queue:
                counts[queue, info.state == JobState.QUEUED] += 1
                queue = parents.get(queue, "")
        return counts

    def _shown(self, status: QueueStatus, limit: Limit, counts: Counter[tuple[str, bool]]) -> QueueInfo:
        queue = status.queue
        group = self._accounts.group_of_queue(queue.name)
        own = queue.limit
        return QueueInfo(
            name=queue.name,
            parent=queue.parent,
            takes_jobs=status.takes_jobs,
            group="" if group is None else group.name,
            weight=queue.weight,
            borrows=queue.borrows,
            guarantee_gpu_milli=queue.guarantee.gpu_milli,
            limit_gpu_milli=_least(None if own is None else own.gpu_milli, limit.gpu_milli),
            limit_cpu_milli=_least(None if own is None else own.cpu_milli or None, limit.cpu_milli),
            limit_memory_mib=None if own is None else own.memory_mib or None,
            limit_jobs=limit.jobs,
            gpu_milli=status.gpu_milli,
            cpu_milli=status.cpu_milli,
            memory_mib=status.memory_mib,
            running=counts[queue.name, False],
            waiting=counts[queue.name, True],
        )


def _statuses(core: Core) -> list[tuple[QueueStatus, Limit]]:
    scheduler = core.scheduler
    return [(each, scheduler.limit_of("", each.queue.name)) for each in scheduler.queue_statuses()]


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
