"""Requests about jobs.

Submissions carry an idempotency key, so that a submission whose answer was lost is repeated safely. Everything else a
caller may repeat by itself.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from millpond.client.sdk.transport import failures
from millpond.client.sdk.transport.connection import Requests, given, segment
from millpond.model.errors import ConflictError, NotFoundError, UnavailableError
from millpond.model.states import JobState
from millpond.specs.api.base import IDEMPOTENCY_HEADER
from millpond.specs.api.jobs.jobs import JobActed, JobInfo, JobList, JobsActed, LinkInfo
from millpond.specs.job.job_ids import member_id, split_member

if TYPE_CHECKING:
    from millpond.client.sdk.resources.files import FilesClient
    from millpond.specs.api.events import EventInfo
    from millpond.specs.api.jobs.logs import LogChunk, LogHit
    from millpond.specs.api.jobs.reasons import PlanInfo, ReasonInfo
    from millpond.specs.api.jobs.trials import TrialList

_Answer = TypeVar("_Answer")

_FIRST_LOOK_S = 0.05
_NOT_YET = 503
_PLANNED_WITHIN_S = 60.0
"""A server gives up on a plan by itself, and says so; before it, those that were asked for earlier have their turn."""
_TAKEN_TOGETHER_WITHIN_S = 60.0
_DELETED_WITHIN_S = 600.0
"""An array has as many folders as members."""

MOST_JOBS = 10_000
"""The longest list that a server gives at once."""
ENDED = frozenset(state.value for state in JobState if state.ended)
"""States in which a job stays for ever."""


class Only(TypedDict, total=False):
    """What is the same of all jobs in a list."""

    user: str
    queue: str
    name: str


def require_known(job: JobInfo) -> None:
    """Check that it can be followed what becomes of a job.

    Raises:
        ConflictError: it runs under another server, if at all.
    """
    if job.apart:
        raise ConflictError(
            f"job {job.id} cannot be followed: {job.reason}",
            "ask the original server; if that is gone for good, start this one with `pond up --take-over`",
        )


class JobRequests(Requests, ABC):
    """The part of a client that has the requests about jobs."""

    @property
    @abstractmethod
    def files(self) -> FilesClient:
        """Files to and from this server."""

    def submit(self, job: Mapping[str, Any]) -> JobInfo:
        """Submit a job: the fields of a job file. With ``ship`` true, its ``workdir`` is sent first.

        Raises:
            InvalidInputError: something in it is wrong, or the cluster could never run it.
        """
        document = self.shipped(job)
        # A key of its own travels in the job, as it may be any text and a header may not.
        key = "" if document.get("idempotency_key") else os.urandom(16).hex()
        return self._submit(JobInfo, "/jobs", document, key)

    def submit_together(self, jobs: Sequence[Mapping[str, Any]]) -> list[JobInfo]:
        """Submit several jobs: all of them are taken, or none is. ``after`` in one may name another.

        Raises:
            InvalidInputError: something in one is wrong, or the cluster could never run it.
        """
        documents = [self.shipped(job) for job in jobs]
        key = os.urandom(16).hex()
        return self._submit(JobList, "/jobs/batch", {"jobs": documents}, key, timeout=_TAKEN_TOGETHER_WITHIN_S).jobs

    def _submit(
        self, answer: type[_Answer], path: str, body: Mapping[str, Any] | None, key: str, **how: Any
    ) -> _Answer:
        """Submit with a key, or with the one in the body, so that it can be repeated where the answer was lost."""
        headers = {IDEMPOTENCY_HEADER: key} if key else {}
        try:
            return self._ask(answer, "POST", path, json=body, headers=headers, **how)
        except UnavailableError as error:
            if not failures.lost_answer(error):
                raise
            return self._ask(answer, "POST", path, json=body, headers=headers, **how)

    def shipped(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """A job file whose ``workdir`` has been sent, where it says so."""
        document = dict(job)
        if document.get("ship") is True:
            document["ship"] = self.files.ship(Path(document.get("workdir") or Path.cwd()))
        return document

    def plan(self, job: Mapping[str, Any]) -> PlanInfo:
        """What would become of a job if it were submitted now; nothing is.

        Raises:
            InvalidInputError: something in it is wrong, or the cluster could never run it.
        """
        from millpond.specs.api.jobs.reasons import PlanInfo

        return self._ask(PlanInfo, "POST", "/jobs/plan", json=dict(job), timeout=_PLANNED_WITHIN_S)

    def jobs(
        self,
        *,
        ended: bool = False,
        limit: int = 1000,
        members_of: str = "",
        state: str | Sequence[str] = (),
        **only: Unpack[Only],
    ) -> JobList:
        """The newest jobs first: those that wait or run, or with ``ended`` all of them.

        Args:
            members_of: the members of this array instead, by their index.
            state: those in this state, or in one of these, only.
            only: ``user``, ``queue``, ``name``: those of which this is true only.
        """
        states = [state] if isinstance(state, str) else state
        params = {"all": ended, "limit": limit, "members": members_of, "state": [each for each in states if each]}
        return self._ask(JobList, "GET", "/jobs", params=params | {key: value for key, value in only.items() if value})

    def trials(self, job_id: str, limit: int = 1000) -> TrialList:
        """The trials of a sweep, the best first.

        Raises:
            ConflictError: it is no sweep.
        """
        from millpond.specs.api.jobs.trials import TrialList

        return self._ask(TrialList, "GET", f"/jobs/{segment(job_id)}/trials", params={"limit": limit})

    def job(self, job_id: str) -> JobInfo:
        """One job.

        Raises:
            NotFoundError: there is none of this id.
        """
        return self._ask(JobInfo, "GET", f"/jobs/{segment(job_id)}")

    def find(self, prefix: str, *, unambiguous: bool = False) -> JobInfo:
        """The one job whose id or name is ``prefix`` or begins with it; ``ARRAY[17]`` is a member of that array.

        Where several do, ``job_matching.the_one_meant`` says which it is.

        Args:
            unambiguous: refuse a name of several jobs that have ended, instead of taking the one submitted last.

        Raises:
            NotFoundError: there is none.
            ConflictError: there are several.
        """
        member = split_member(prefix)
        if member is not None:
            return self.job(member_id(self.find(member[0], unambiguous=unambiguous).id, member[1]))
        try:
            return self.job(prefix)
        except NotFoundError as error:
            from millpond.client.sdk.resources.job_matching import meant_by, the_one_meant

            found = meant_by(prefix, self.jobs(ended=True, limit=MOST_JOBS).jobs)
            if not found:
                raise error
        return the_one_meant(prefix, found, unambiguous=unambiguous)

    def why(self, job_id: str) -> ReasonInfo:
        """Why a job waits or runs, and what would help."""
        from millpond.specs.api.jobs.reasons import ReasonInfo

        return self._ask(ReasonInfo, "GET", f"/jobs/{segment(job_id)}/why")

    def stop(self, job_id: str) -> JobInfo:
        """Ask for the end of a job; it gets notice and its grace period.

        Raises:
            ConflictError: it has already ended.
        """
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/stop")

    def suspend(self, job_id: str, *, swap: bool = False) -> JobInfo:
        """Halt a running job where it is, or the running members of an array; it keeps its memory.

        Args:
            swap: its device memory moves to host memory, so that its cards are free for others.

        Raises:
            ConflictError: it does not run, or there is no room in host memory.
        """
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/suspend", params={"swap": swap} if swap else None)

    def resume(self, job_id: str) -> JobInfo:
        """Let a suspended job go on as soon as there is room on its devices.

        Raises:
            ConflictError: it is not suspended.
        """
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/resume")

    def requeue(self, job_id: str) -> JobInfo:
        """End a job's run, with notice and grace, and let it wait for another; of an array, each run of a member.

        A job of one's own that has ended is submitted again; the answer is the new job.

        Raises:
            ConflictError: it waits already, or is being ended.
            NotAllowedError: it has ended, and is another user's.
        """
        return self._submit(JobInfo, f"/jobs/{segment(job_id)}/requeue", None, os.urandom(16).hex())

    def set_priority(self, job_id: str, priority: str) -> JobInfo:
        """Give a job another class of priority: ``low``, ``normal``, ``high`` or ``critical``; an array to all members.

        Raises:
            ConflictError: it has ended, or is background work.
            InvalidInputError: its queue does not allow that class.
        """
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/priority", json={"priority": priority})

    def act(
        self, what: str, job_ids: Sequence[str], *, priority: str | None = None, swap: bool = False
    ) -> list[JobActed]:
        """Do the same to several jobs in one request: what is refused of one says why, and the others get their turn.

        Args:
            what: ``stop``, ``suspend``, ``resume``, ``requeue`` or ``priority``.
            priority: the class that they get, with ``priority`` alone.
            swap: of a suspension: their device memory moves to host memory.
        """
        body = {"act": what, "jobs": list(job_ids), "swap": swap, "priority": priority}
        return self._submit(JobsActed, "/jobs/act", body, os.urandom(16).hex()).jobs

    def migrate(self, job_id: str, to: Sequence[str] = (), *, restart: bool = False) -> JobInfo:
        """Have a running job go on with other cards; ``migration`` of the answer says which way it goes.

        Args:
            to: names of cards (``NODE/CARD`` or UUIDs), as many as it has, or of one node; none: where there is room.
            restart: it may be ended and started anew there, although it does not save its work on notice.

        Raises:
            ConflictError: it does not run, cannot go there, or would lose its work.
        """
        request = {"to": list(to), "restart": restart}
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/migrate", json=request)

    def resize(self, job_id: str, tasks: int, role: str = "") -> JobInfo:
        """Give an elastic job another number of tasks; of an array, each member that waits or runs.

        Args:
            role: which; may be left out where the job has one only.

        Raises:
            InvalidInputError: outside the bounds of the role.
        """
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/resize", json={"tasks": tasks, "role": role})

    def events(self, job_id: str) -> list[EventInfo]:
        """A job's history, oldest first."""
        from millpond.specs.api.events import EventList

        return self._ask(EventList, "GET", f"/jobs/{segment(job_id)}/events").events

    def extend(self, job_id: str, by_s: float) -> JobInfo:
        """Give a job with a time limit so many seconds more.

        Raises:
            ConflictError: it has ended, or has no limit.
            InvalidInputError: that is more than is allowed.
        """
        return self._ask(JobInfo, "POST", f"/jobs/{segment(job_id)}/extend", json={"by_s": by_s})

    def link(self, job_id: str, *, alone: bool = False) -> LinkInfo:
        """A link that signs one browser in to what a job serves.

        Args:
            alone: of a revision of a service, to that revision and no other.

        Raises:
            ConflictError: it serves nothing.
        """
        return self._ask(LinkInfo, "POST", f"/jobs/{segment(job_id)}/link", params={"alone": True} if alone else None)

    def serves(self, job_id: str) -> bool:
        """Whether what a job serves answers by now."""
        from millpond.specs.job.serving import base_path

        return self._connection.status_of(base_path(job_id)) != _NOT_YET

    def document(self, job_id: str) -> dict[str, Any]:
        """The job file that a job was submitted with."""
        return self._ask(dict[str, Any], "GET", f"/jobs/{segment(job_id)}/document")

    def delete(self, job_id: str) -> JobInfo:
        """Drop a job that has ended, and all that it wrote, an array with its members; returns its last look.

        Raises:
            ConflictError: it has not ended.
        """
        return self._ask(JobInfo, "DELETE", f"/jobs/{segment(job_id)}", timeout=_DELETED_WITHIN_S)

    def logs(
        self,
        job_id: str,
        *,
        task: int | None = None,
        attempt: int | None = None,
        follow: bool = False,
        cursor: str = "",
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> Iterator[LogChunk]:
        """What a job's tasks wrote, piece by piece; each is of one ``stream``, ``stdout`` or ``stderr``.

        With ``follow`` it goes on until the job has ended (or the attempt, when one is named), through lost
        connections and server restarts, without a piece missing or coming twice. ``cursor`` is that of the last piece a
        caller has; what comes is what stands behind it.

        Args:
            tail: begin with so many last lines of each task, found within the last 16 MiB of the output of all.
            since: begin with what was written then or later, in seconds since 1970.
            timestamps: pieces say when they were written (``written_at``).

        Raises:
            NotFoundError: no such job, task or attempt.
            UnavailableError: the server stayed away for too long.
        """
        path = f"/jobs/{segment(job_id)}/logs"
        wanted = given(
            task=task,
            attempt=attempt,
            follow=follow,
            cursor=cursor or None,
            tail=tail,
            since=since,
            timestamps=timestamps or None,
        )
        from millpond.client.sdk.resources import logs
        from millpond.client.sdk.transport.reconnecting import Patience

        if follow:
            yield from logs.follow(self._connection, Patience(self._connection), path, wanted)
            return
        import httpx2

        try:
            yield from logs.read(self._connection, path, wanted)
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self._connection.address.url) from error

    def search_logs(
        self,
        job_id: str,
        text: str = "",
        *,
        errors: bool = False,
        task: int | None = None,
        attempt: int | None = None,
        backwards: bool = False,
    ) -> Iterator[LogHit]:
        """Lines of a job's output that have a text, in ASCII letters of either case, from the first to the last.

        Args:
            errors: those that look like errors; with a text, of its lines.
            attempt: left out: the present one.
            backwards: from the last to the first.

        Raises:
            NotFoundError: no such job, task or attempt.
        """
        from millpond.specs.api.jobs.logs import LogSearchInfo

        wanted = given(text=text or None, errors=errors, task=task, attempt=attempt, backwards=backwards)
        while True:
            found = self._ask(LogSearchInfo, "GET", f"/jobs/{segment(job_id)}/logs/search", params=wanted)
            if found.hit is not None:
                yield found.hit
            if found.over:
                return
            wanted |= {"attempt": found.attempt, "at_task": found.at_task, "at_offset": found.at_offset}

    def watch(self, job_id: str, every_s: float = 1.0) -> Iterator[JobInfo]:
        """The job as it is now, again and again, often at first and then every ``every_s`` seconds, up to its end.

        Raises:
            UnavailableError: the server stayed away for too long.
            ConflictError: what becomes of the job is not known there.
        """
        from millpond.client.sdk.transport.reconnecting import Patience

        patience = Patience(self._connection)
        pause_s = min(_FIRST_LOOK_S, every_s)
        while True:
            try:
                job = self.job(job_id)
            except UnavailableError as error:
                patience.lost(error)
                continue
            patience.found()
            yield job
            if job.state in ENDED:
                return
            require_known(job)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, every_s)

    def wait(self, job_id: str) -> JobInfo:
        """The job once it has ended, or has failed and its place is kept."""
        return next(job for job in self.watch(job_id) if job.settled)
