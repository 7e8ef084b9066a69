"""Jobs as the API shows them: one job, lists of jobs, and why a job waits."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.errors import InvalidInputError
from millpond.model.sharing import SliceHold
from millpond.model.states import JobState
from millpond.model.workloads import Priority
from millpond.node.host.clocks import MonotonicClock
from millpond.server.auth.roles import absent
from millpond.server.jobs.reasons import Reasons, last_word
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.runtime.loop import Loop
from millpond.server.store.job_filter import ALL_JOBS, JobFilter, listed_at
from millpond.server.store.jobs import JobOwner, JobStore
from millpond.server.views.visibility import Reader
from millpond.specs.api.jobs.jobs import ActiveOrder, JobInfo, JobList, JobOrder
from millpond.specs.api.jobs.reasons import ReasonInfo

Place = tuple[float, float, str]
"""Where a job stands in a list; no two jobs have the same."""

_ALL: Final = 10**9
_KEPT_FOR: Final = 20
"""What one look took, so many times over, the line that it found is used."""
_LEFT: Final = -1.0
_NOT_IN_LINE: Final = float("inf")


class ActiveOrders:
    """Says where jobs that have not ended stand in a list that is not by the time of submission; for the event loop
    alone.

    They are thousands at the most and in memory, so that a list sorts them anew. Those that have ended are listed by
    time alone, by an index of the store.
    To rank thousands that wait takes the scheduler's thread tens of milliseconds, so the line is used for a while.
    """

    def __init__(self, loop: Loop, clock: MonotonicClock) -> None:
        self._loop = loop
        self._clock = clock
        self._line: Mapping[str, int] = {}
        self._until = float("-inf")
        self._turn = asyncio.Lock()

    async def place_by(self, order: ActiveOrder) -> Callable[[JobInfo], Place]:
        """What gives each job its place.

        ``line`` is for those that wait. Any other has left the line, and so stood before all that are in it; those that
        wait outside of it, such as for other jobs, stand behind it.
        """
        match order:
            case "cards":
                return _by_cards
            case "priority":
                return _by_priority
            case "line":
                line = await self._line_now()
                return lambda info: (_place_in(line, info), -info.submitted_at, info.id)

    async def _line_now(self) -> Mapping[str, int]:
        """The numbers of all jobs that wait in line."""
        async with self._turn:
            begun = self._clock()
            if begun >= self._until:
                ask = self._loop.ask(lambda core: core.scheduler.first_in_line(_ALL, core.now), is_long=True)
                self._line = {job: number for number, job in enumerate(await ask)}
                now = self._clock()
                self._until = now + _KEPT_FOR * (now - begun)
        return self._line


def _place_in(line: Mapping[str, int], info: JobInfo) -> float:
    return line.get(info.id, _NOT_IN_LINE) if info.state == JobState.QUEUED else _LEFT


def _by_cards(info: JobInfo) -> Place:
    return -info.gpu_milli, -info.submitted_at, info.id


def _by_priority(info: JobInfo) -> Place:
    return -Priority[info.priority.upper()], info.submitted_at, info.id


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which jobs are to be listed.

    Attributes:
        filter: which of them.
        everything: those that have ended too; else they are listed only where ``filter`` names their state.
        members_of: the members of this array; empty: jobs and arrays.
        behind: only what stands behind this job in the list; empty: from the first on.
        order: of jobs and arrays; members stand by their numbers.
    """

    filter: JobFilter = ALL_JOBS
    everything: bool = False
    limit: int = 1_000
    members_of: str = ""
    behind: str = ""
    order: JobOrder = "newest"

    @property
    def with_ended(self) -> bool:
        """Whether jobs that have ended may be among them."""
        states = self.filter.states
        return any(JobState(state).ended for state in states) if states else self.everything


class JobListing:
    """Shows jobs, each reader as much as they may see.

    Args:
        with_instants: adds to a job the deadline of the requests that wait for it, and the end of its time limit by
            the wall clock.
        active_orders: say where jobs stand that have not ended.
    """

    def __init__(
        self,
        job_cache: JobCache,
        job_store: JobStore,
        lookup: JobLookup,
        reasons: Reasons,
        with_instants: Callable[[JobInfo], JobInfo],
        active_orders: ActiveOrders,
    ) -> None:
        self._job_cache = job_cache
        self._job_store = job_store
        self._lookup = lookup
        self._reasons = reasons
        self._with_instants = with_instants
        self._active_orders = active_orders

    async def show(self, job: str, reader: Reader) -> JobInfo:
        """A job with the reason why it waits."""
        info = await self._lookup.soon(job)
        explained = await self._reasons.explained(info, reader) if info.state == JobState.QUEUED else info
        (found,) = await self._reasons.foreseen([explained])
        return self._with_instants(found)

    async def listed(self, request: ListRequest, reader: Reader) -> JobList:
        """Jobs in the order asked for, or the members of an array, the first first.

        Raises:
            NotFoundError: there is no such array for them, or no such job to stand behind.
            InvalidInputError: members of an array are listed by their numbers, behind no other; those that have ended
                are listed by time alone.
        """
        first, truncated = await self._first(request, reader)
        shown = await self._reasons.foreseen(await self._reasons.added_to(first, reader))
        jobs = [self._with_instants(info) for info in shown if request.filter.matches(info)]
        return JobList(jobs=jobs, truncated=truncated)

    async def owners(self, request: ListRequest, reader: Reader) -> list[JobOwner]:
        """Whose the same jobs are, those that have not ended first: of 100,000 in a part of the time that a list takes.

        Raises:
            NotFoundError, InvalidInputError: as ``listed``; the order is by time.
        """
        wanted, live = await self._live(request, reader)
        found = [JobOwner(info.id, info.user, info.group, ended=False) for info in live]
        if request.with_ended:
            which = (request.limit, wanted, reader.owners, request.members_of)
            known = {owner.job for owner in found}
            ended = await asyncio.to_thread(self._job_store.owners_of_ended, *which)
            found += [owner for owner in ended if owner.job not in known]
        return found[: request.limit]

    async def _first(self, request: ListRequest, reader: Reader) -> tuple[list[JobInfo], bool]:
        """As many as asked for, without what lists say beside, and whether there are more."""
        if request.order == "newest" or request.order == "oldest" or request.members_of:
            ordered = await self._by_time(request, reader)
        else:
            ordered = await self._active(request, request.order, reader)
        return ordered[: request.limit], len(ordered) > request.limit

    async def _by_time(self, request: ListRequest, reader: Reader) -> list[JobInfo]:
        """The newest or the oldest, or members of an array by their numbers."""
        wanted, live = await self._live(request, reader)
        ended: list[JobInfo] = []
        if request.with_ended:
            found = (request.limit + 1, wanted, reader.owners, request.members_of)
            ended = await asyncio.to_thread(self._job_store.ended_jobs, *found)
        merged = {info.id: info for info in (*live, *ended)}
        ordered = sorted(merged.values(), key=listed_at, reverse=wanted.oldest_first)
        if request.members_of:
            ordered.sort(key=lambda info: info.index or 0)
        return ordered

    async def _live(self, request: ListRequest, reader: Reader) -> tuple[JobFilter, list[JobInfo]]:
        """The filter with the place behind which they stand, and those that have not ended: one more than asked for."""
        if request.members_of and not reader.sees(await asyncio.to_thread(self._lookup.look, request.members_of)):
            raise absent("job", request.members_of)
        wanted = await self._placed(request, reader)
        matching = (
            info
            for info in self._job_cache.newest_first()
            if info.parent == request.members_of and wanted.matches(info) and reader.sees(info)
        )
        first = heapq.nlargest if wanted.oldest_first else heapq.nsmallest
        # Of an array the members of the lowest numbers are wanted, however new they are.
        live = list(matching) if request.members_of else first(request.limit + 1, matching, key=listed_at)
        return wanted, live

    async def _active(self, request: ListRequest, order: ActiveOrder, reader: Reader) -> list[JobInfo]:
        """Jobs and arrays that have not ended, by something else than time."""
        if request.with_ended:
            remedy = "leave out those that have ended, or order by `newest` or `oldest`"
            raise InvalidInputError(f"jobs that have ended have no order by {order}", remedy)
        wanted, place = request.filter, await self._active_orders.place_by(order)
        found = (
            (place(info), info)
            for info in self._job_cache.newest_first()
            if not info.parent and wanted.matches(info) and reader.sees(info)
            if order != "line" or info.state == JobState.QUEUED
        )
        if request.behind:
            last = place(await self._last_before(request, reader))
            found = (each for each in found if each[0] > last)
        return [info for _, info in heapq.nsmallest(request.limit + 1, found)]

    async def _placed(self, request: ListRequest, reader: Reader) -> JobFilter:
        wanted = replace(request.filter, oldest_first=request.order == "oldest")
        if not request.behind:
            return wanted
        if request.members_of:
            raise InvalidInputError("members of an array are listed from the first on", "leave `behind` out")
        last = await self._last_before(request, reader)
        return replace(wanted, behind=(last.submitted_at, last.id))

    async def _last_before(self, request: ListRequest, reader: Reader) -> JobInfo:
        last = await self._lookup.soon(request.behind)
        if not reader.sees(last):
            raise absent("job", request.behind)
        return last

    def encoded(self, found: JobList) -> bytes:
        """A list as JSON; a job that looks as it did in an earlier list is not encoded again."""
        jobs = b",".join(map(self._job_cache.encoded, found.jobs))
        return b'{"jobs":[%b],"truncated":%b}' % (jobs, b"true" if found.truncated else b"false")

    async def why(self, job: str, reader: Reader) -> ReasonInfo:
        """Why a job waits, or runs, or how it ended."""
        info = await self._lookup.soon(job)
        if JobState(info.state).ended:
            return last_word(info)
        reason = await self._reasons.of(job)
        if reason is None:  # it ended in between
            return last_word(await asyncio.to_thread(self._lookup.look, job))
        seen = await self._reasons.veiled(reason, reader)
        marks = ["unsandboxed: it can see files of others"] if info.unsandboxed else []
        if info.held_by == SliceHold.NOTHING:
            marks.append(f"nothing keeps it to its part of the card: {info.hold_reason}")
        return replace(seen, summary="; ".join([seen.summary, *marks]))
