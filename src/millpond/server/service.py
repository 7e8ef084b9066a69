"""What the API can be asked, in terms of jobs and nodes; knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from millpond.model.events import (
    DesiredCountChanged,
    NodeClosed,
    NodeOpened,
    ResumeRequested,
    SuspendRequested,
    TimeLimitChanged,
)
from millpond.model.nodes import Closure
from millpond.model.workloads import Job, JobState, Kind
from millpond.scheduling.records import JobRecord
from millpond.server.absent import absent
from millpond.server.activity import Activity
from millpond.server.arrays.array import array_named
from millpond.server.arrays.arrays import never_fed
from millpond.server.audience import EVERYBODY, Audience, audience_of
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.queues import Place, longest_dev_s, settle_place
from millpond.server.auth.roles import Caller, Verb
from millpond.server.batch import refusal
from millpond.server.board import Board
from millpond.server.core import Core
from millpond.server.dependents import no_job_to_wait_for
from millpond.server.disk_use import DiskBooks
from millpond.server.explaining import Explainer, last_of_array, last_word
from millpond.server.files.service import Files
from millpond.server.forecasts import Forecaster
from millpond.server.history import account, answered, story
from millpond.server.inbox import ChangeJob, Submission, wall_clock
from millpond.server.isolation import Isolation
from millpond.server.logs import LogReader, Wish
from millpond.server.loop import Loop
from millpond.server.planning import plan_apart
from millpond.server.provisions.admission import Settled
from millpond.server.provisions.outfit import Outfit
from millpond.server.retention import remove_folder
from millpond.server.serving.front import ServiceFront
from millpond.server.serving.registry import Revisions
from millpond.server.serving.rollouts import Rollouts
from millpond.server.serving.updating import Updating
from millpond.server.store.books import Share
from millpond.server.store.histories import History
from millpond.server.store.store import Store
from millpond.server.sweeps.trials import Trials
from millpond.server.vault.secrets import Vault
from millpond.server.views import node_info
from millpond.specs.api import (
    CloseRequest,
    DeliveryInfo,
    DiskInfo,
    EventInfo,
    JobInfo,
    JobList,
    LogChunk,
    NodeInfo,
    OpenRequest,
    PlanInfo,
    ReasonInfo,
    ResizeRequest,
    ServerInfo,
    TrialList,
    UsageList,
    UsageRow,
)
from millpond.specs.cluster import PriceList
from millpond.specs.job import JobFile, JobSpec, check_job
from millpond.specs.mounts import After
from millpond.specs.ssh import SshInfo

T = TypeVar("T")

ANSWER_WITHIN_S: Final = 30.0
STORE_ANSWERS_WITHIN_S: Final = 5.0
REASONS_IN_A_LIST: Final = 20
"""Reasons cost the scheduler's thread time; in a list the first so many waiting jobs get one."""

_HOUR_S: Final = 3600.0
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_UNNAMED: Final = "job"
_MOST_REMEMBERED: Final = 1_000
_PLANS_AT_ONCE: Final = 2
"""Each is a process of its own."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server says about itself that does not change while it runs.

    Attributes:
        unlimited: why all processes of a task together are not kept to its amounts; empty when they are.
        longest_dev_s: how far the time limit of a place to work can be extended; None: without bound.
        ssh: where people come into jobs with SSH.
    """

    version: str
    url: str
    engine: str
    pid: int
    state_dir: Path
    started_at: float
    ordering: str
    placement: str
    unlimited: str = ""
    longest_dev_s: float | None = None
    ssh: SshInfo = SshInfo()


@dataclass(frozen=True, slots=True)
class ListWish:
    """Which jobs somebody wants listed.

    Attributes:
        state: those in this one; empty: those that have not ended.
        everything: those that have ended too.
        members_of: the members of this array; empty: jobs and arrays.
    """

    state: str = ""
    everything: bool = False
    limit: int = 1_000
    members_of: str = ""


class Service:
    """Answers requests.

    Args:
        accounts: who may use which queue.
        isolation: whether jobs are kept apart.
        vault: the secrets that jobs can have.
        files: what can be asked about files.
        outfit: what provides for jobs on the machine.
        prices: gives the price list as it is now.
    """

    def __init__(
        self,
        loop: Loop,
        store: Store,
        identity: Identity,
        accounts: Accounts,
        isolation: Isolation,
        vault: Vault,
        files: Files,
        outfit: Outfit,
        prices: Callable[[], PriceList] = PriceList,
    ) -> None:
        self._loop = loop
        self._store = store
        self._identity = identity
        self.accounts = accounts
        self.isolation = isolation
        self.vault = vault
        self.files = files
        self.images = outfit.images
        self._outfit = outfit
        self._prices = prices
        self.sweeps = Trials(identity.state_dir, store, self._find, self.file_of)
        self.disk = DiskBooks(store, identity.state_dir, accounts)
        self.activity = Activity(wall_clock)
        self.front = ServiceFront(loop, self.file_of)
        revisions = Revisions(store.revisions, wall_clock)
        self.rollouts = Rollouts(loop, store, revisions, self.front, identity.state_dir, wall_clock)
        self.updating = Updating(self, self.front, revisions, self.rollouts, self._admit)
        self._planning = asyncio.Semaphore(_PLANS_AT_ONCE)
        self._explainer = Explainer()
        self._forecaster = Forecaster(lambda most: store.ended_jobs(most, of=None))
        loop.on_ended = self._forecaster.note
        loop.forecast = self._forecaster.predict_at_once
        self._files: dict[str, JobFile] = {}
        self.closing = False

    @property
    def state_dir(self) -> Path:
        """Where tasks leave their records and logs."""
        return self._identity.state_dir

    @property
    def ssh(self) -> SshInfo:
        """Where people come into jobs with SSH."""
        return self._identity.ssh

    @property
    def _board(self) -> Board:
        return self._loop.board

    async def unready(self) -> str:
        """Why no work can be taken on; empty when it can."""
        known = self.dead() or ("the server is stopping" if self.closing else self._loop.trouble)
        if known:
            return known
        try:
            await asyncio.wait_for(asyncio.to_thread(self._store.latest_snapshot_seq), STORE_ANSWERS_WITHIN_S)
        except DBAPIError as error:
            return f"the store cannot be read ({error.orig})"
        except TimeoutError:
            return f"the store does not answer within {STORE_ANSWERS_WITHIN_S:g} s"
        return ""

    def dead(self) -> str:
        """Why this process will never take work on again; empty while it may."""
        if self._loop.failure is not None:
            return "the scheduler stopped by a defect"
        return "" if self._loop.alive else "the scheduler is not running"

    async def info(self, admin: bool) -> ServerInfo:
        """The server itself; where it lies on its machine is for admins."""
        ended, nodes = await asyncio.to_thread(self._store.ended_counts), await self.nodes(EVERYBODY)
        identity = self._identity
        return ServerInfo(
            version=identity.version,
            url=identity.url,
            engine=identity.engine,
            fake=any(node.fake for node in nodes),
            pid=identity.pid if admin else 0,
            state_dir=str(identity.state_dir) if admin else "",
            started_at=identity.started_at,
            ordering=identity.ordering,
            placement=identity.placement,
            unsandboxed=self.isolation.apart.trouble,
            unlimited=identity.unlimited,
            jobs=dict(sorted((self._board.counts() | ended).items())),
        )

    async def submit(self, document: Any, key: str, caller: Caller) -> JobInfo:
        """Take a job on.

        Args:
            document: a job file as plain data.
            key: repeating it with the same document gives the same job; empty: the document's own, if any.

        Raises:
            SpecError, InvalidInputError: the document is wrong, or the cluster can never run it, or it refers to files
                that were not sent or that it may not have, or to jobs that are not there for the caller.
            NotAllowedError: the caller may not use the queue.
            ConflictError: the key was used with another document; or they, or their group, hold too much on disk.
            UnavailableError: jobs of several people could not be kept apart here.
        """
        spec, place = settle_place(self.accounts, caller, check_job(document))
        await self.check_means(spec.file, place, caller)
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        settled = await self._admit(spec.file, spec.document, caller)
        await self.check_awaited(spec.file.after, caller)
        job = place.of(spec.to_job(_new_id(spec)))
        predict = self._forecaster.predict
        forecast = predict(job) if self._forecaster.ready else await asyncio.to_thread(predict, job)
        key = key or spec.file.idempotency_key or ""
        # Keys count for each user: nobody is given a job of somebody else's.
        own_key = hashlib.sha256(f"{caller.user}\0{key}".encode()).hexdigest() if key else ""
        submission = Submission(job, settled.document, own_key, digest, forecast, settled.waits)
        info = await self._answer(self._loop.submit(submission))
        warnings = [*spec.warnings, *settled.warnings]
        return info.model_copy(update={"warnings": warnings}) if warnings else info

    async def check_means(self, file: JobFile, place: Place, caller: Caller) -> None:
        """Whether the server can give a job what it needs of it: a place apart from others, room on disk, its secrets.

        Raises:
            UnavailableError: jobs of several people could not be kept apart here.
            ConflictError: its user or group holds too much on disk.
            InvalidInputError: a secret is not there for it.
        """
        self.isolation.check(caller.user)
        self.disk.check(place.user, place.group)
        if file.secrets:
            await asyncio.to_thread(self.vault.check, place.user, place.group, file.secrets)

    async def check_possible(self, job: Job) -> None:
        """Whether the cluster could take a job, were it empty.

        Raises:
            InvalidInputError: it never could.
        """
        reason = await self.ask(lambda core: core.scheduler.check(job))
        if reason is not None:
            raise refusal(reason)

    async def _admit(self, file: JobFile, document: dict[str, Any], caller: Caller) -> Settled:
        """What a job refers to, checked, and how its file is kept."""
        return await self._outfit.provisions.admit(file, await self.files.admit(file, document, caller), caller)

    async def plan(self, document: Any, caller: Caller) -> PlanInfo:
        """What would become of a job if the caller submitted it now; nothing is.

        Args:
            document: a job file as plain data.

        Raises:
            SpecError, InvalidInputError: the document is wrong, or the cluster can never run it.
            NotAllowedError: the caller may not use the queue.
        """
        spec, place = settle_place(self.accounts, caller, check_job(document))
        job = place.of(spec.to_job("plan"))

        def copy(core: Core) -> tuple[str, float]:
            reason = core.scheduler.check(job)
            if reason is not None:
                raise refusal(reason)
            # As text already here: parts of a snapshot are the core's own, and it goes on.
            return json.dumps(core.scheduler.snapshot()), core.now

        async with self._planning:
            snapshot, at = await self.ask(copy)
            plan = await plan_apart(snapshot, job, max(at, wall_clock()))
        return await asyncio.to_thread(audience_of(caller).plan, plan, self._find)

    async def stop(self, job: str, by: str) -> JobInfo:
        """Ask for the end of a job; of a service that was updated, of all its revisions.

        Raises:
            NotFoundError, ConflictError: it never was, or has ended already.
        """
        first, *others = self.updating.live_jobs(job)
        for other in others:
            await self._answer(self._loop.stop_job(other, by))
        return await self._answer(self._loop.stop_job(first, by))

    async def suspend(self, job: str) -> JobInfo:
        """Halt a running job where it is: it keeps its memory, and its share of compute is free for others.

        Raises:
            NotFoundError, ConflictError: it never was, or does not run.
        """
        return await self._answer(self._loop.change_job(ChangeJob(job, lambda _, now: SuspendRequested(now, job))))

    async def resume(self, job: str) -> JobInfo:
        """Let a suspended job go on as soon as its devices allow it.

        Raises:
            NotFoundError, ConflictError: it never was, or is not suspended.
        """
        return await self._answer(self._loop.change_job(ChangeJob(job, lambda _, now: ResumeRequested(now, job))))

    async def resize(self, job: str, wish: ResizeRequest) -> JobInfo:
        """Give an elastic job another number of tasks.

        Raises:
            NotFoundError: no such job or role.
            InvalidInputError: outside the role's bounds, or the job has several roles and none was named.
        """
        may_rest = wish.tasks > 0 or (await asyncio.to_thread(self.file_of, job)).may_rest

        def change(record: JobRecord, now: float) -> DesiredCountChanged:
            if not may_rest:
                raise InvalidInputError(f"job {job!r} cannot go without tasks", "only a service with min: 0 can")
            why = "" if wish.tasks else "somebody asked for it"
            return DesiredCountChanged(now, job, wish.role or _only_role(record.job), wish.tasks, why)

        return await self._answer(self._loop.change_job(ChangeJob(job, change)))

    async def extend(self, job: str, by_s: float) -> JobInfo:
        """Give a job with a time limit more time.

        Raises:
            NotFoundError, ConflictError: it never was, has ended, or has no limit.
            InvalidInputError: that is more than the configuration, or a limit of its user or group, allows.
        """

        def change(record: JobRecord, now: float) -> TimeLimitChanged:
            limit = record.job.time_limit_s
            owns = longest_dev_s(self.accounts, record.job.user, record.job.group)
            longest = min((most for most in (owns, self._identity.longest_dev_s) if most is not None), default=None)
            if limit is None:
                raise ConflictError(f"job {job!r} has no time limit", "it runs until it is stopped")
            if record.job.kind is Kind.DEV and longest is not None and limit + by_s > longest:
                left = max(longest - limit, 0.0)
                raise InvalidInputError(
                    f"{limit + by_s:g} s in all are more than the {longest:g} s allowed here",
                    f"extend it by at most {left:g} s",
                )
            return TimeLimitChanged(now, job, limit + by_s)

        return await self._answer(self._loop.change_job(ChangeJob(job, change)))

    def look(self, job: str) -> JobInfo:
        """A job's present look, or its last.

        Raises:
            NotFoundError: there never was such a job.
        """
        info = self._find(job)
        if info is None:
            raise absent("job", job)
        return info

    def look_at_one(self, job: str) -> JobInfo:
        """The same of a job that has tasks of its own.

        Raises:
            NotFoundError: there never was such a job.
            InvalidInputError: it is an array.
        """
        info = self.look(job)
        if info.array is not None:
            raise array_named(job, info.array)
        return info

    async def find(self, job: str) -> JobInfo:
        """The same as ``look``, for those who must not wait for the store."""
        info = self._board.get(job)
        return await asyncio.to_thread(self.look, job) if info is None else info

    async def job_file(self, job: str) -> JobFile:
        """The same as ``file_of``, for those who must not wait for the store."""
        known = self._files.get(job)
        return await asyncio.to_thread(self.file_of, job) if known is None else known

    def file_of(self, job: str) -> JobFile:
        """The file that a job was submitted with; the latest asked for are remembered.

        Raises:
            NotFoundError: there never was such a job.
        """
        file = self._files.get(job)
        if file is None:
            document = self._store.document(job)
            if document is None:
                raise absent("job", job)
            file = self._files[job] = check_job(document).file
            if len(self._files) > _MOST_REMEMBERED:
                self._files.pop(next(iter(self._files)), None)
        return file

    def shown(self, job: str) -> JobInfo | None:
        """A job that has not ended; does not block."""
        return self._board.get(job)

    def live_jobs(self, prefix: str) -> list[JobInfo]:
        """The jobs that have not ended whose ids begin so, members of arrays left out; does not block."""
        return [info for info in self._board.newest_first() if info.id.startswith(prefix) and not info.parent]

    async def job(self, job: str, audience: Audience) -> JobInfo:
        """A job with the reason why it waits."""
        info = await self.find(job)
        return await self._explained(info, audience) if info.state == JobState.QUEUED else info

    async def jobs(self, wish: ListWish, audience: Audience) -> JobList:
        """Jobs, the newest first, or the members of an array, the first first.

        Raises:
            NotFoundError: there is no such array for them.
        """
        if wish.members_of and not audience.sees(await asyncio.to_thread(self.look, wish.members_of)):
            raise absent("job", wish.members_of)
        state, limit = wish.state, wish.limit
        live = [
            info
            for info in self._board.newest_first()
            if info.parent == wish.members_of and (not state or info.state == state) and audience.sees(info)
        ]
        ended: list[JobInfo] = []
        if wish.everything or (state and JobState(state).ended):
            found = (limit + 1, state, audience.owners, wish.members_of)
            ended = await asyncio.to_thread(self._store.ended_jobs, *found)
        merged = {info.id: info for info in (*live, *ended)}
        newest = sorted(merged.values(), key=lambda info: info.submitted_at, reverse=True)
        if wish.members_of:
            newest.sort(key=lambda info: info.index or 0)
        shown = await self._with_reasons(newest[:limit], audience)
        return JobList(jobs=[info for info in shown if not state or info.state == state], truncated=len(newest) > limit)

    async def why(self, job: str, audience: Audience) -> ReasonInfo:
        """Why a job waits, or runs, or how it ended."""
        info = await self.find(job)
        if JobState(info.state).ended:
            return last_word(info)
        reason = await self._reason(job)
        if reason is None:  # it ended in between
            return last_word(await asyncio.to_thread(self.look, job))
        seen = await self._veiled(reason, audience)
        if not info.unsandboxed:
            return seen
        return seen.model_copy(update={"summary": f"{seen.summary}; unsandboxed: it can see files of others"})

    async def trials(self, job: str, limit: int) -> TrialList:
        """The trials of a sweep, the best first.

        Raises:
            NotFoundError, ConflictError: it never was, or is no sweep.
        """
        return await asyncio.to_thread(lambda: self.sweeps.table(self.look(job), limit))

    async def events(self, job: str, audience: Audience) -> list[EventInfo]:
        """A job's history."""
        info = await asyncio.to_thread(self.look, job)
        told = story(*await asyncio.to_thread(self._store.history, job))
        if info.array is not None and info.ended_at is not None:
            best = (await self.trials(job, 1)).trials if info.array.sweep else []
            told.append(last_of_array(info, info.array, best, len(told) + 1))
        return await asyncio.to_thread(lambda: [audience.event(event, self._find) for event in told])

    async def happenings(self, after: int | None, limit: int, audience: Audience) -> list[EventInfo]:
        """What happened to jobs and nodes: the first behind a place in the log, or the latest."""
        return await asyncio.to_thread(self._told, lambda: self._store.happenings(after, limit), audience)

    async def node_events(self, node: str, limit: int, audience: Audience) -> list[EventInfo]:
        """The latest that happened to a machine, whether it is still there or not."""
        return await asyncio.to_thread(self._told, lambda: self._store.node_history(node, limit), audience)

    def _told(self, part: Callable[[], History], audience: Audience) -> list[EventInfo]:
        """What there is to tell of a part of the log, without what is about jobs that are not for these readers."""
        happened, decided = part()
        told = account(happened, decided, self._store.decisions_by_id(answered(happened)))
        return [audience.event(event, self._find) for event in told if audience.sees(self._find(event.about))]

    async def document(self, job: str) -> dict[str, Any]:
        """The job file that a job was submitted with."""
        await asyncio.to_thread(self.look, job)
        return await asyncio.to_thread(self._store.document, job) or {}

    async def delete(self, job: str) -> JobInfo:
        """Drop a job that has ended, and all that it wrote; what it used stays in the books.

        Raises:
            NotFoundError, ConflictError: it never was, or has not ended.
            UnavailableError: what it wrote cannot be removed.
        """
        info = await asyncio.to_thread(self.look, job)
        if self._board.get(job) is not None:
            raise ConflictError(f"job {job!r} has not ended ({info.state})", f"end it first: pond stop {job}")
        if info.parent:
            raise ConflictError(f"job {job!r} is part of an array", f"delete all of it: pond delete {info.parent}")
        await asyncio.to_thread(self._delete, info)
        return info

    def _delete(self, info: JobInfo) -> None:
        job = info.id
        try:
            for member in () if info.array is None else self._store.member_states(job):
                remove_folder(self._identity.state_dir, member)
            remove_folder(self._identity.state_dir, job)
        except OSError as error:
            raise UnavailableError(
                f"{error.filename} cannot be removed ({error.strerror})", "remove it by hand"
            ) from error
        self._store.delete(job)

    async def nodes(self, audience: Audience) -> list[NodeInfo]:
        """All machines with who holds what."""
        marks = {"unsandboxed": self.isolation.apart.trouble, "unlimited": self._identity.unlimited}
        nodes = await self.ask(
            lambda core: [node_info(view).model_copy(update=marks) for view in core.scheduler.node_views()]
        )
        return [audience.node(node, self._board.get) for node in nodes]

    async def close_node(self, node: str, wish: CloseRequest, caller: Caller) -> NodeInfo:
        """Let a machine take no new work, from now or from some time on.

        Raises:
            NotFoundError, InvalidInputError: there is none of that name; the span makes no sense.
        """
        await self._answer(self._loop.change_node(partial(closed, node, wish, caller.user)))
        return await self._node(node, caller)

    async def open_node(self, node: str, wish: OpenRequest, caller: Caller) -> NodeInfo:
        """Let a machine take new work again.

        Raises:
            NotFoundError, ConflictError: there is none of that name; it is open.
        """
        await self._answer(self._loop.change_node(lambda now: NodeOpened(now, node, wish.planned, caller.user)))
        return await self._node(node, caller)

    async def _node(self, name: str, caller: Caller) -> NodeInfo:
        found = next((node for node in await self.nodes(audience_of(caller)) if node.name == name), None)
        if found is None:
            raise NotFoundError(f"node {name!r} is gone", "`pond nodes` lists those that are there")
        return found

    async def usage(self, by: str, since: float, until: float, caller: Caller) -> UsageList:
        """Who held how much between two instants: everybody, or those whose usage the caller may see.

        Args:
            by: one of ``store.books.GROUPINGS``.
        """
        prices = self._prices()
        share = None if caller.admin else Share(caller.user, self.accounts.queues_for(caller, Verb.READ_USAGE))
        sums = await asyncio.to_thread(self._store.usage, by, since, until, share)
        rows = [
            UsageRow(
                name=total.name,
                model=total.model,
                jobs=total.jobs,
                gpu_hours=total.gpu_seconds / _HOUR_S,
                cpu_hours=total.cpu_seconds / _HOUR_S,
                memory_gib_hours=total.memory_gib_seconds / _HOUR_S,
                cost=prices.cost(total.model, total.gpu_seconds / _HOUR_S),
            )
            for total in sums
        ]
        disk = self._disk_of(by, share)
        return UsageList(by=by, since=since, until=until, currency=prices.currency, rows=rows, disk=disk)

    def _disk_of(self, by: str, share: Share | None) -> list[DiskInfo]:
        """What those hold on disk whose usage is asked for; by user or by queue only, the largest first."""
        found: list[DiskInfo] = []
        if by == "user":
            found = [self.disk.of_user(name) for name in self.disk.latest.users if share is None or share.user == name]
        elif by == "queue":
            groups = self.accounts.groups()
            found = [self.disk.of_group(group.name) for group in groups if share is None or group.queue in share.queues]
        return sorted((each for each in found if each.used_bytes), key=lambda each: (-each.used_bytes, each.name))

    async def deliveries(self, limit: int) -> list[DeliveryInfo]:
        """What was or is to be told to webhooks, newest first."""
        found = await asyncio.to_thread(self._store.latest_deliveries, limit)
        return [
            DeliveryInfo(
                id=one.id,
                hook=one.hook,
                at=one.at,
                text=one.text,
                state=one.state,
                tries=one.tries,
                due_at=one.due_at,
                trouble=one.trouble,
            )
            for one in found
        ]

    async def logs(self, job: str, wish: Wish) -> AsyncIterator[LogChunk]:
        """A job's output; everything that can be wrong with the request is raised before the first chunk."""
        state_dir = self._identity.state_dir
        await asyncio.to_thread(self.look_at_one, job)
        reader = await asyncio.to_thread(LogReader, state_dir, lambda: self.look(job), wish, lambda: self.closing)
        return reader.chunks()

    async def check_awaited(self, after: After, caller: Caller) -> None:
        """Whether there are jobs that a job waits for, as far as the caller may see.

        Raises:
            InvalidInputError: there is one that is not.
        """
        audience = audience_of(caller)
        for name in after.jobs:
            info = await asyncio.to_thread(self._find, name)
            if info is None or not audience.sees(info):
                raise no_job_to_wait_for(name)

    def _find(self, job: str) -> JobInfo | None:
        if not job.isprintable():  # no id ever was, and a database may refuse to look for it
            return None
        found = self._board.get(job) or self._store.ended_job(job) or self._loop.arrays.unfed(job)
        found = found or never_fed(job, self._store)
        if found is not None:
            return found
        # A member that is being handed over is not among the waiting any more, and not on the board yet.
        before = self._loop.arrays.as_unfed(job)
        return before and (self._board.get(job) or self._store.ended_job(job) or before)

    async def _with_reasons(self, infos: list[JobInfo], audience: Audience) -> list[JobInfo]:
        """All asked at once: they are answered between the same two turns, so that a list waits for one turn only."""
        waiting = [info for info in infos if info.state == JobState.QUEUED][:REASONS_IN_A_LIST]
        told = await asyncio.gather(*(self._explained(info, audience) for info in waiting))
        explained = {info.id: info for info in told}
        return [explained.get(info.id, info) for info in infos]

    async def _explained(self, info: JobInfo, audience: Audience) -> JobInfo:
        """A job that waited a moment ago, as it is now, with the reason if it still waits: both of one instant."""
        now, reason = await self.ask(lambda core: (self._board.get(info.id), self._explain(core, info.id)))
        if now is None:
            return await asyncio.to_thread(self.look, info.id)
        if reason is None or now.state != JobState.QUEUED:
            return now
        return now.model_copy(update={"reason": (await self._veiled(reason, audience)).summary})

    async def _veiled(self, reason: ReasonInfo, audience: Audience) -> ReasonInfo:
        """A reason as these readers may see it; only where a job stands in the way the store may have to be asked."""
        return await asyncio.to_thread(audience.reason, reason, self._find) if reason.blocked_by else reason

    async def _reason(self, job: str) -> ReasonInfo | None:
        return await self.ask(lambda core: self._explain(core, job))

    def _explain(self, core: Core, job: str) -> ReasonInfo | None:
        """For the scheduler's thread: whom a job waits for, or why it waits or runs; None when it has ended."""
        explain = partial(self._explainer.explain, core)
        return self._loop.dependents.reason(job) or self._loop.arrays.reason(job, explain) or explain(job)

    async def ask(self, question: Callable[[Core], T]) -> T:
        """Look something up in the core, between two of its turns."""
        return await self._answer(self._loop.ask(question))

    async def _answer(self, future: Future[T]) -> T:
        if dead := self.dead():
            raise UnavailableError(dead, "see the server's log, then start it again")
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_WITHIN_S)
        except TimeoutError as error:
            hint = "look whether it was done before you try again"
            raise UnavailableError(f"no answer from the scheduler within {ANSWER_WITHIN_S:g} s", hint) from error


def closed(node: str, wish: CloseRequest, by: str, now: float) -> NodeClosed:
    """What closes a machine as somebody wishes."""
    begin = now if wish.begin is None else wish.begin
    is_planned = wish.begin is not None
    return NodeClosed(now, node, Closure(begin, wish.until, wish.reason, wish.drain or is_planned, is_planned, by))


def _only_role(job: Job) -> str:
    if len(job.roles) > 1:
        names = ", ".join(role.name for role in job.roles)
        raise InvalidInputError(f"job {job.id!r} has several roles ({names})", "say which, such as worker=4")
    return job.roles[0].name


def _new_id(spec: JobSpec) -> str:
    """The job's name, fit for ids and paths, and five letters by chance."""
    name = re.sub(r"[^a-z0-9-]+", "-", (spec.file.name or _UNNAMED).lower()).strip("-") or _UNNAMED
    return f"{name}-{''.join(secrets.choice(_ID_LETTERS) for _ in range(5))}"
