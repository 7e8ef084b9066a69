"""The right to serve here: the state directory, the port, and the lead where several servers share a database."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from millpond.server.auth.owner import TOKEN_FILE
from millpond.server.http.listener import listen, url_of
from millpond.server.http.tls import Encryption, open_encryption
from millpond.server.startup.end_deadline import ENDS_WITHIN_S, JOBS_END_WITHIN_S, EndDeadline
from millpond.server.startup.options import ServerOptions
from millpond.server.startup.standby import Post, seat_at, stand_by
from millpond.server.state_dir import StateDir
from millpond.server.store.connection.database import claim
from millpond.server.store.connection.leadership import Leadership
from millpond.server.version import VERSION
from millpond.specs.api.server import ServerFile
from millpond.specs.config.listen import ListenRules


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


def take_lead(options: ServerOptions, listening: ListenRules, held: ExitStack) -> ServingRight | None:
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
    deadline = EndDeadline(ENDS_WITHIN_S + (JOBS_END_WITHIN_S if options.stop_jobs_on_exit else 0.0))
    post = Post(path, listener, encryption, _server_file(url, path, encryption), deadline)
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
