"""Answer the gateway's requests: whose a key is, whether the user may enter a job, and the connection to its task.

The gateway speaks with every client that connects, so it has no rights of its own: each session is judged here, by the
rule that holds for ``pond exec``, at the moment at which it begins.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import DBAPIError

from millpond.engines.task_access import TaskAccess
from millpond.model.errors import ConflictError, MillpondError, NotLoggedInError
from millpond.node.task.records import TaskId
from millpond.server.auth.audit import Act
from millpond.server.auth.components import Security
from millpond.server.auth.roles import AccessTarget, Caller, Verb, allows, demand, job_target
from millpond.server.http.user_turns import UserCounts
from millpond.server.monitoring.activity import Activity
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.sessions.ssh.messages import GatewayRequest
from millpond.server.sessions.websockets import running_task, way_to_port
from millpond.specs.api.accounts.ssh import PublicKey
from millpond.specs.api.jobs.jobs import JobInfo

log = logging.getLogger(__name__)

_TASK_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)
_Reach = Callable[[TaskId], Coroutine[Any, Any, socket.socket]]
_CONNECTED_WITHIN_S = 2.0
_ENTERED, _TURNED_AWAY = 200, 401
"""What the audit log shows, in the words of HTTP as everywhere there."""


@dataclass(frozen=True, slots=True)
class _OpenSession:
    """A session or a forwarded port that has begun.

    Attributes:
        question: by which it was asked for.
        target: its job.
        connection: into the task; the gateway has it too.
        stay: is closed at its end.
    """

    question: dict[str, Any]
    target: AccessTarget
    connection: socket.socket
    stay: ExitStack


class SshAuthorizer:
    """Judges for one gateway process.

    Args:
        activity: is told when a job is used.
        counts: what each user has open, over HTTP too.
    """

    def __init__(
        self,
        access: TaskAccess,
        lookup: JobLookup,
        activity: Activity,
        counts: UserCounts,
        security: Security,
    ) -> None:
        self._access = access
        self._lookup = lookup
        self._activity = activity
        self._counts = counts
        self._security = security
        self._sessions: dict[int, _OpenSession] = {}
        self._numbers = itertools.count(1)

    def answer(self, question: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
        """What to answer, and the connection to hand over with it, which the caller closes."""
        try:
            return self._judge(GatewayRequest(question["ask"]), question)
        except MillpondError as error:
            return {"error": error.cause, "remedy": error.remedy, "exit": error.exit_code}, None
        except DBAPIError as error:
            log.error("the store does not answer (%s)", error.orig)
            return {"error": "the store cannot be read or written", "remedy": "try again", "exit": 1}, None
        except OSError as error:  # such as too many open files: what others have open goes on
            log.error("nothing can be opened for SSH (%s)", error)
            return {"error": "the server can open nothing more now", "remedy": "try again", "exit": 1}, None

    def close(self) -> None:
        """The gateway is gone, and all sessions through it."""
        for session in self._sessions.values():
            session.stay.close()
        self._sessions.clear()

    def cut_off(self) -> None:
        """End the sessions whose user may no longer be inside their job: their connections are shut down."""
        for session in list(self._sessions.values()):
            try:
                bearer = self._bearer(session.question)
            except DBAPIError as error:
                log.error("who may still be inside jobs is not known while the store does not answer (%s)", error.orig)
                return
            if bearer is None or not allows(bearer[0], Verb.USE_JOBS, session.target):
                with suppress(OSError):
                    session.connection.shutdown(socket.SHUT_RDWR)

    def _judge(self, ask: GatewayRequest, question: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
        match ask:
            case GatewayRequest.GREET:
                self._security.logins.throttle.check(*_knocking(question))
            case GatewayRequest.KNOW:
                return {"known": self._bearer(question) is not None}, None
            case GatewayRequest.ENTERED:
                return {"user": self._entered(question)}, None
            case GatewayRequest.FAILED:
                self._security.logins.throttle.failed(*_knocking(question))
                self._write_down(question, None, "", _TURNED_AWAY)
            case GatewayRequest.SESSION:
                return self._begin(question, self._access.open_session)
            case GatewayRequest.FORWARD:
                # The gateway, which has no rights, cannot see whose the program is.
                return self._begin(question, lambda task: self._to_port(task, question["port"]))
            case GatewayRequest.USED:
                if question["session"] in self._sessions:
                    self._activity.used(self._sessions[question["session"]].target.name)
            case GatewayRequest.LEFT:
                session = self._sessions.pop(question["session"], None)
                if session is not None:
                    session.stay.close()
        return {}, None

    def _bearer(self, question: dict[str, Any]) -> tuple[Caller, str] | None:
        """Whom the key stands for, and its id."""
        known = self._security.keys.find(PublicKey.parse(question["key"]))
        caller = None if known is None else self._security.accounts.caller_named(known.user)
        return None if known is None or caller is None else (caller, known.id)

    def _entered(self, question: dict[str, Any]) -> str:
        """Who has logged in."""
        bearer = self._bearer(question)
        if bearer is None:
            raise NotLoggedInError("this key belongs to no user any more")
        caller, key = bearer
        self._security.logins.throttle.forgive(_knocking(question)[0])
        self._security.keys.used(key)
        self._write_down(question, caller, f"by the key {PublicKey.parse(question['key']).fingerprint}", _ENTERED)
        return caller.user

    def _let_in(self, question: dict[str, Any]) -> tuple[Caller, JobInfo, int]:
        """The bearer of the key, the job and the number of its task, if they may be inside it now.

        ``JOB.TASK`` names another task than the first. A job whose id reads so comes first.

        Raises:
            NotLoggedInError: the key stands for no user any more.
            NotFoundError, NotAllowedError: as for ``pond exec``.
        """
        bearer = self._bearer(question)
        if bearer is None:
            raise NotLoggedInError("this key belongs to no user any more", "register one with `pond ssh-key add`")
        caller, name, task = bearer[0], question["job"], 0
        info = self._named(caller, name)
        if info is None:
            job, _, number = name.rpartition(".")
            if _TASK_NUMBER.fullmatch(number) and (info := self._named(caller, job)) is not None:
                task = int(number)
        if info is None:
            info = self._lookup.look(name)
        demand(caller, Verb.USE_JOBS, replace(job_target(info), name=name))
        return caller, info, task

    def _named(self, caller: Caller, name: str) -> JobInfo | None:
        """The one job of this id, or the one that begins so and that the caller may be inside.

        Raises:
            ConflictError: several begin so.
        """
        info = self._lookup.live(name)
        if info is not None or not name:
            return info
        begun = [
            each for each in self._lookup.live_beginning_with(name) if allows(caller, Verb.USE_JOBS, job_target(each))
        ]
        if len(begun) > 1:
            some = ", ".join(sorted(each.id for each in begun)[:4])
            raise ConflictError(f"{len(begun)} jobs begin with {name!r} ({some})", "write more of the id")
        return begun[0] if begun else None

    def _begin(self, question: dict[str, Any], reach: _Reach) -> tuple[dict[str, Any], socket.socket]:
        """Open the way to a task that the question names, for a session of the bearer of the key."""
        caller, info, task = self._let_in(question)
        with ExitStack() as stay, ExitStack() as handed:
            stay.enter_context(self._counts.counted(caller.user))
            connection = handed.enter_context(asyncio.run(reach(running_task(info, task))))
            own = stay.enter_context(connection.dup())  # the gateway gets the connection itself
            stay.enter_context(self._activity.use(info.id))
            number = next(self._numbers)
            self._sessions[number] = _OpenSession(question, job_target(info), own, stay.pop_all())
            handed.pop_all()
        return {"session": number}, connection

    async def _to_port(self, task: TaskId, port: int) -> socket.socket:
        return await way_to_port(self._access, task, port).open(_CONNECTED_WITHIN_S)

    def _write_down(self, question: dict[str, Any], caller: Caller | None, after: str, status: int) -> None:
        act = Act(self._security.clock(), question["address"], caller, "log-in", AccessTarget("job", question["job"]))
        act.after = after or "through SSH"
        entry = act.entry(status)
        if entry is not None:
            self._security.audit.add(entry)


def _knocking(question: dict[str, Any]) -> tuple[str, str]:
    """What is counted for a failed login: keys cannot be guessed, so the address alone, apart from its passwords."""
    return f"ssh from {question['address']}", question["address"]
