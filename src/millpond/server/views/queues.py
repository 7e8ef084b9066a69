"""Queues and cells as the API shows them, limited to the queues that the reader may see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Priority
from millpond.scheduling.tenancy.bounds import OTHER_MODELS
from millpond.scheduling.tenancy.cells.cell_map import CellChain
from millpond.scheduling.tenancy.queue_shares import QueueShare
from millpond.scheduling.tenancy.queue_views import QueueDetail, QueueStatus, QueueWork
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.queues import place_for
from millpond.server.auth.roles import Caller, Verb, present
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.views.visibility import Reader, reader_of
from millpond.specs.api.pool.cells import CellCardsInfo, CellChainInfo, CellMapInfo, CellNodeInfo, CellOwedInfo
from millpond.specs.api.pool.queues import (
    QueueBorrower,
    QueueDetailInfo,
    QueueInfo,
    QueueModelShare,
    QueueUserInfo,
    QueueWaitingJob,
)
from millpond.specs.config.queues import UNLIMITED

VEILED_QUEUES: Final = "queues of other groups"


Explain = Callable[[str, Reader], Awaitable[str]]
"""Gives the reason of a job in a sentence; an empty one when it has ended."""


class Queues:
    """Shows queues; the jobs in them are counted once for all readers, until anything happens."""

    def __init__(self, loop: Loop, accounts: Accounts, settings: QueueSettings, explain: Explain) -> None:
        self._settings = settings
        self._loop = loop
        self._known: tuple[tuple[int, int], list[tuple[QueueStatus, Limit]]] | None = None
        self._accounts = accounts
        self._explain = explain

    async def all(self) -> list[QueueInfo]:
        """All queues, each behind its parent."""
        version = self._loop.seq, self._loop.job_cache.version
        if self._known is None or self._known[0] != version:
            self._known = version, await self._loop.ask(_statuses)
        return [self._shown(*each) for each in self._known[1]]

    async def seen_by(self, caller: Caller) -> list[QueueInfo]:
        """The queues of the groups whose jobs the caller may read; an admin sees all of them."""
        names = self.names_for(caller)
        return [each for each in await self.all() if names is None or each.name in names]

    async def taking_jobs(self, caller: Caller) -> list[str]:
        """The names of those of them that jobs may be in."""
        names = self.names_for(caller)

        def look(core: Core) -> list[str]:
            scheduler = core.scheduler
            return [each.name for each in scheduler.queues() if scheduler.takes_jobs(each.name)]

        return [each for each in await self._loop.ask(look) if names is None or each in names]

    def of_submissions(self, caller: Caller) -> str:
        """Where jobs of the caller go that name no queue.

        Raises:
            NotAllowedError: nowhere.
        """
        return place_for(self._accounts, caller, None).queue

    def names_for(self, caller: Caller) -> frozenset[str] | None:
        """The names of those; None: all."""
        return None if caller.admin else self._accounts.queues_for(caller, Verb.READ_JOBS)

    async def one(self, name: str, caller: Caller) -> QueueDetailInfo:
        """A queue with those who use it; queues of others that have borrowed of it are named where the caller may see
        them.

        Raises:
            NotFoundError: there is none of this name.
        """

        def look(core: Core) -> tuple[tuple[QueueStatus, Limit], QueueDetail]:
            found = next((each for each in _statuses(core) if each[0].queue.name == name), None)
            return present(found, "queue", name), core.scheduler.queue_detail(name)

        status, detail = await self._loop.ask(look)
        row = self._settings.row(name)
        return QueueDetailInfo(
            queue=self._shown(*status),
            users=[_user_info(user, work) for user, work in detail.users],
            borrowers=self._borrowers(detail, caller),
            largest=await self._largest(detail.largest, detail.largest_milli, reader_of(caller)),
            cells=list(detail.cells),
            settings={} if row is None or row.document is None else row.document,
            version=0 if row is None else row.version,
            changed_by="" if row is None else row.by,
            changed_at=None if row is None else row.at,
        )

    def _borrowers(self, detail: QueueDetail, caller: Caller) -> list[QueueBorrower]:
        own = self._accounts.queues_for(caller, Verb.READ_JOBS)
        shown = Counter[str]()
        for queue, milli in detail.borrowers:
            shown[queue if caller.admin or queue in own else VEILED_QUEUES] += milli
        return [QueueBorrower(queue=queue, gpu_milli=milli) for queue, milli in shown.items()]

    async def _largest(self, job: str, asked_milli: int, reader: Reader) -> QueueWaitingJob | None:
        """A waiting job with its reason; None where it has started or ended meanwhile."""
        info = self._loop.job_cache.get(job) if job else None
        summary = "" if info is None else await self._explain(info.id, reader)
        if info is None or not summary:
            return None
        return QueueWaitingJob(job=info.id, name=info.name, user=info.user, gpu_milli=asked_milli, reason=summary)

    def _shown(self, status: QueueStatus, limit: Limit) -> QueueInfo:
        queue, share, work = status.queue, status.share, status.work
        group = self._accounts.group_of_queue(queue.name)
        own, rules = queue.limit, self._settings.rules.get(queue.name)
        return QueueInfo(
            name=queue.name,
            parent=queue.parent,
            takes_jobs=status.takes_jobs,
            group="" if group is None else group.name,
            weight=queue.weight,
            borrows=queue.borrows,
            ordering=queue.ordering,
            placement=queue.placement,
            guarantee_gpu_milli=queue.guarantee.gpu_milli,
            guarantee_cpu_milli=queue.guarantee.cpu_milli,
            guarantee_memory_mib=queue.guarantee.memory_mib,
            guarantee_card_mib=queue.guarantee.card_mib,
            guarantee_models=dict(queue.guarantee.models),
            promised_gpu_milli=share.guaranteed,
            limit_gpu_milli=_least(None if own is None else _bound(own.gpu_milli), limit.gpu_milli),
            limit_cpu_milli=_least(None if own is None else _bound(own.cpu_milli) or None, limit.cpu_milli),
            limit_memory_mib=None if own is None else _bound(own.memory_mib) or None,
            limit_card_mib=_least(None if own is None else own.card_mib or None, limit.card_mib),
            limit_jobs=_least(queue.running_jobs, limit.jobs),
            limit_models={} if own is None else dict(own.models),
            priorities=[Priority(number).name.lower() for number in queue.priorities],
            minimum_run_s=status.minimum_run_s,
            longest_dev_s=None if rules is None else rules.longest_dev_s,
            gpu_milli=share.used,
            cpu_milli=work.held.cpu_milli,
            memory_mib=work.held.memory_mib,
            card_mib=work.held.card_mib,
            models=dict(work.held.models),
            model_shares=_by_model(status.shares),
            within_gpu_milli=share.within if status.has_guarantee else None,
            borrowed_gpu_milli=share.borrowed if status.has_guarantee else None,
            lent_gpu_milli=share.lent if status.has_guarantee else None,
            free_gpu_milli=share.free if status.has_guarantee else None,
            background_gpu_milli=work.background_milli,
            running=work.running,
            waiting=work.waiting,
            waiting_gpu_milli=work.asked_milli,
        )


def _statuses(core: Core) -> list[tuple[QueueStatus, Limit]]:
    scheduler = core.scheduler
    return [(each, scheduler.limit_of("", each.queue.name)) for each in scheduler.queue_statuses()]


def _by_model(shares: Mapping[str, QueueShare]) -> list[QueueModelShare]:
    """The shares of each model, where guarantees name any."""
    return [
        QueueModelShare(
            model="" if model == OTHER_MODELS else model,
            promised_gpu_milli=share.guaranteed,
            gpu_milli=share.used,
            within_gpu_milli=share.within,
            borrowed_gpu_milli=share.borrowed,
            lent_gpu_milli=share.lent,
            free_gpu_milli=share.free,
        )
        for model, share in (shares.items() if len(shares) > 1 else ())
    ]


def _user_info(user: str, work: QueueWork) -> QueueUserInfo:
    return QueueUserInfo(
        user=user,
        gpu_milli=work.held.gpu_milli,
        cpu_milli=work.held.cpu_milli,
        memory_mib=work.held.memory_mib,
        running=work.running,
        waiting=work.waiting,
        waiting_gpu_milli=work.asked_milli,
    )


def _bound(most: int) -> int | None:
    return None if most >= UNLIMITED else most


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


async def cells_seen_by(loop: Loop, accounts: Accounts, caller: Caller) -> CellMapInfo:
    """Cells by kind of hardware, all of it; queues that are not for the caller stand together under one word."""
    chains = await loop.ask(lambda core: core.scheduler.cell_map())
    own = accounts.queues_for(caller, Verb.READ_JOBS)

    def named(queue: str) -> str:
        return queue if not queue or caller.admin or queue in own else VEILED_QUEUES

    return CellMapInfo(chains=[_chain(chain, named) for chain in chains])


def _chain(chain: CellChain, named: Callable[[str], str]) -> CellChainInfo:
    return CellChainInfo(
        name=chain.name,
        model=chain.model,
        levels=list(chain.levels),
        sizes=list(chain.sizes),
        node_level=chain.node_level,
        nodes=[
            CellNodeInfo(
                name=node.name,
                cards=list(node.cards),
                parts=[
                    CellCardsInfo(
                        cards=part.cards,
                        state=part.state.value,
                        queue=named(part.queue),
                        level=part.level,
                        pinned=part.pinned,
                    )
                    for part in node.parts
                ],
            )
            for node in chain.nodes
        ],
        owed=[
            CellOwedInfo(
                queue=named(owed.queue), level=owed.level, pinned=owed.pinned, owed=owed.owed, bound=owed.bound
            )
            for owed in chain.owed
        ],
    )
