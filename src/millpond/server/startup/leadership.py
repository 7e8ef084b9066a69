"""The right to serve here: the state directory, the port, and the lead where several servers share a database.

A server that stands by says who leads, and takes over when no server does. Both servers work on one state directory of
one machine. Tasks are processes of that machine: the server that leads finds them there, with their records and their
output, as a restarted server does.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from millpond.model.errors import InvalidInputError, MillpondError, UnavailableError
from millpond.node.host import procfs
from millpond.node.host.files import write_json
from millpond.node.host.periodic_worker import UNTIL_WOKEN, PeriodicWorker
from millpond.server.auth.owner import TOKEN_FILE
from millpond.server.http.error_responses import error_answer
from millpond.server.http.listener import listen, url_of
from millpond.server.http.server import HttpOptions, HttpServer
from millpond.server.http.tls import Encryption, open_encryption
from millpond.server.startup.end_deadline import EndDeadline
from millpond.server.startup.options import ServerOptions
from millpond.server.state_dir import StateDir
from millpond.server.store.connection.database import claim
from millpond.server.store.connection.leadership import Leadership, Seat
from millpond.server.version import VERSION
from millpond.specs.api.base import ErrorBody
from millpond.specs.api.server import STANDBY_FILE, HealthInfo, ServerFile
from millpond.specs.config.listen import ListenFile

log = logging.getLogger(__name__)

LOOKS_EVERY_S: Final = 0.2
_LOOKS_AT_LEADER: Final = 10
"""At every so manyth look it is asked who leads."""
_TRY_AGAIN_LATER: Final = 1013
"""Of RFC 6455, registered later: why a WebSocket was closed."""


@dataclass(frozen=True, slots=True)
class Post:
    """Where a server stands by.

    Attributes:
        left: what is said of it in the state directory, for the command line.
        deadline: of its process, once that is to end.
    """

    state_dir: Path
    listener: socket.socket
    encryption: Encryption | None
    left: ServerFile
    deadline: EndDeadline


def seat_at(url: str, state_dir: Path) -> Seat:
    """Where this very server is."""
    return Seat(url, socket.gethostname(), procfs.boot_id(), os.getpid(), str(state_dir))


def stand_by(leadership: Leadership | None, post: Post) -> bool:
    """Say that another server leads, until none does; false when this one was asked to end before.

    Raises:
        InvalidInputError: there is no database that two servers could share.
        UnavailableError: the leader works on another machine, or on another state directory.
    """
    if leadership is None:
        raise InvalidInputError("a standby needs a database that both servers reach", "name PostgreSQL with --store")
    watch = _Watch(leadership)
    if watch.look():
        return True
    ended = threading.Event()
    file = post.state_dir / STANDBY_FILE

    def end() -> None:
        ended.set()
        post.deadline.begin()

    def ready() -> None:
        write_json(file, asdict(post.left))
        print(f"Millpond stands by at {post.left.url}; {_health(watch.leader_url).who_leads}", flush=True)

    def hangup() -> None:
        log.info("the configuration is read when this server takes over")

    way = HttpOptions(None if post.encryption is None else post.encryption.context)
    http = HttpServer(StandbyServer(lambda: watch.leader_url), ready, end, hangup, way)
    worker = PeriodicWorker("standby", lambda: watch.end_if_over(http.stop), LOOKS_EVERY_S, "standing by goes on")
    worker.start(LOOKS_EVERY_S)
    try:
        http.run(post.listener.dup())  # a client that connects during the takeover waits at the original
    finally:
        worker.close()
        if not watch.won:  # else clients read it until this server announces itself as the leader
            file.unlink(missing_ok=True)
    if watch.trouble is not None:
        raise watch.trouble
    return watch.won and not ended.is_set()


class StandbyServer:
    """What a server answers that stands by."""

    def __init__(self, leader_url: Callable[[], str]) -> None:
        self._leader_url = leader_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the two probes, and send all other requests to the leader."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": self._account})
            return
        if scope["path"] in ("/healthz", "/readyz"):
            alive = scope["path"] == "/healthz"
            health = _health(self._leader_url(), "ok" if alive else self._account)
            answer = JSONResponse(asdict(health), 200 if alive else 503)
        else:
            body = ErrorBody(cause=self._account, code="standby", remedy="ask the server that leads")
            answer = error_answer(Headers(scope=scope), 503, body, {"Retry-After": "1"})
        await answer(scope, receive, send)

    @property
    def _account(self) -> str:
        return f"this server stands by; {_health(self._leader_url()).who_leads}"


def _health(leader_url: str, status: str = "") -> HealthInfo:
    return HealthInfo(status=status, standby=True, leader=leader_url)


class _Watch:
    """Asks for the lock again and again.

    Attributes:
        leader_url: who leads; empty while that is not known.
        trouble: why this server could never take over.
    """

    def __init__(self, leadership: Leadership) -> None:
        self.leader_url = ""
        self.won = False
        self.trouble: MillpondError | None = None
        self._leadership = leadership
        self._silent = False
        self._looks = 0

    def look(self) -> bool:
        """Whether this server has the lock now.

        Raises:
            UnavailableError: it could not go on where the leader stops.
        """
        try:
            self.won = self._leadership.take_lock()
            is_time = self._looks % _LOOKS_AT_LEADER == 0
            leader = self._leadership.leader() if is_time and not self.won else None
        except DBAPIError as error:
            if not self._silent:
                log.warning("the database does not answer (%s); standing by goes on", error.orig)
            self._silent = True
            return False
        self._silent = False
        self._looks += 1
        if leader is not None:
            self.leader_url = leader.url
            _require_same_place(self._leadership.seat, leader)
        return self.won

    def end_if_over(self, on_over: Callable[[], None]) -> float | None:
        """Look once, and call back if this server leads now, or never can."""
        try:
            if not self.look():
                return None
            log.warning("no server leads any more: taking over from %s", self.leader_url)
        except UnavailableError as error:
            self.trouble = error
        on_over()
        return UNTIL_WOKEN


def _require_same_place(own: Seat, leader: Seat) -> None:
    if leader.boot_id and leader.boot_id != own.boot_id:
        raise UnavailableError(
            f"the server that leads runs on {leader.host}, and its tasks with it", "let the standby run there too"
        )
    if leader.state_dir and leader.state_dir != own.state_dir:
        raise UnavailableError(
            f"the server that leads keeps its state in {leader.state_dir}", "give both the same --state-dir"
        )


@dataclass(frozen=True, slots=True)
class ServingRight:
    """What a server holds as long as it serves.

    Attributes:
        leadership: of a database that others can reach; None where the state directory's lock is enough.
    """

    state: StateDir
    post: Post
    leadership: Leadership | None

    @property
    def is_lost(self) -> bool:
        """Whether another server has taken over."""
        return self.leadership is not None and self.leadership.lost


def take_lead(options: ServerOptions, listening: ListenFile, held: ExitStack) -> ServingRight | None:
    """Take all of it, perhaps after standing by; None when a standby was asked to end.

    Args:
        held: lets go of it in the end.

    Raises:
        UnavailableError: the state directory, the port or the database cannot be used.
        InvalidInputError: the options or the certificate are wrong.
    """
    path = options.state_dir.expanduser().absolute()
    state = None if options.standby else held.enter_context(StateDir(path))
    listener = held.enter_context(listen(options.host, options.port))
    encryption = open_encryption(listening)
    url = url_of(listener, "http" if encryption is None else "https")
    post = Post(path, listener, encryption, _server_file(url, path, encryption), EndDeadline())
    leadership = claim(options.store, seat_at(url, path)) if options.store else None
    if leadership is not None:
        held.callback(leadership.close)
    if state is None:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not stand_by(leadership, post):
            return None
        state = held.enter_context(StateDir(path, takes_over=True))
    return ServingRight(state, post, leadership)


def _server_file(url: str, state_dir: Path, encryption: Encryption | None) -> ServerFile:
    """What is left about this server in its state directory."""
    return ServerFile(
        url=url,
        pid=os.getpid(),
        token_path=str(state_dir / TOKEN_FILE),
        version=VERSION,
        certificate="" if encryption is None else encryption.certificate.pem,
    )
