"""Which server this is: the one whose state it finds, or one with a copy of another's (a restored backup, a drill).

A server has an identity. The database and the file ``identity.json`` of the state directory have it, the latter
together with the directory's path; a backup leaves the file out. Where the two do not agree, or the directory is at
another place than it was, the state is a copy: what it says to be running may run under the original, and to adopt, end
or repeat that would be wrong. A copy changes nothing until it is started to take over; then it gets a new identity, and
the original's tasks are its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.errors import ConflictError, UnavailableError
from millpond.node.host.files import read_json, write_json
from millpond.node.sessions.task_socket import program_folder, task_socket_path
from millpond.node.task import running_tasks
from millpond.node.task.records import TaskFiles, TaskId, attempt_dir, read_record, running_records
from millpond.server.state_dir import DATABASE_FILE, IDENTITY_FILE
from millpond.server.store.connection.identity import DatabaseOwner
from millpond.server.store.store import Store
from millpond.specs.api.server import LOCK_FILE

log = logging.getLogger(__name__)

COPY: Final = UnavailableError(
    "this server has a copy of another server's state, so it starts, ends and changes nothing",
    "start it with `pond up --take-over` once the original is gone for good",
)
_NAMED: Final = 5
"""Jobs, and processes, that an error names at most."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server this is.

    Attributes:
        servers: the identities whose tasks are its own; its own is the first.
        original: of a copy: the state directory of the server whose state it has; None where that is not known.
        is_copy: the state is another server's, and nothing is to be done with what that one may still run.
        took_over: it was a copy until now.
    """

    servers: tuple[str, ...]
    original: Path | None = None
    is_copy: bool = False
    took_over: bool = False


def identify(store: Store, state_dir: Path, take_over: bool) -> ServerIdentity:
    """Find out which server this is, and note it where it is not noted yet.

    Args:
        take_over: a copy is to go on in place of the original.

    Raises:
        ConflictError: it is to take over, and the original still runs on this machine.
        UnavailableError: the database is empty although the server has had jobs, or older than what runs: it was lost,
            or is another one.
        OSError: the state directory cannot be written.
    """
    place, owner, file = state_dir.resolve(), store.identity.read(), read_json(state_dir / IDENTITY_FILE) or {}
    if owner is None:
        if file.get("server"):  # else it was cut off at its first start
            _require_no_past(place, has_database=bool(file.get("has_database")))
        return _founded(store, place, str(file.get("server", "")) or _fresh())
    if (file.get("server"), file.get("state_dir")) == (owner.server, str(place)):
        known = ServerIdentity((owner.server, *owner.formerly))
        if not file.get("has_database"):  # its first start was cut off behind the database
            _write(place, owner.server)
        _require_known_tasks(store, place, known.servers)
        return known
    original = None if owner.state_dir == place else owner.state_dir
    if not take_over:
        return ServerIdentity((_fresh(),), original, is_copy=True)
    if original is not None:
        _require_ended(original)
    return _taken_over(store, DatabaseOwner(_fresh(), place, (owner.server, *owner.formerly)), original)


def adopt_files(original: Path, state_dir: Path, tasks: Iterable[TaskId]) -> None:
    """Have what the supervisors of living tasks go on to write under the original found here.

    Their folders become links there: what the copy has of them is from an earlier moment.
    """
    for task in sorted(tasks, key=lambda task: (task.job, task.attempt, task.task)):
        theirs = read_record(TaskFiles.of(original, task))
        if theirs is None or not theirs.alive:
            continue
        paths = [attempt_dir(state_dir, task.job, task.attempt)]
        if theirs.task_socket:
            paths += [task_socket_path(state_dir, theirs.task_socket), program_folder(state_dir, theirs.task_socket)]
        for path in paths:
            _lead(path, original / path.relative_to(state_dir))
        running_tasks.make_room(state_dir)
        running_tasks.enter(TaskFiles.of(state_dir, task).record)


def _lead(path: Path, target: Path) -> None:
    """Have a path lead to another, whatever was there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _founded(store: Store, place: Path, server: str) -> ServerIdentity:
    _write(place, server, has_database=False)  # from here on a start that is cut off is known from a lost database
    store.identity.write(DatabaseOwner(server, place))
    _write(place, server)
    return ServerIdentity((server,))


def _taken_over(store: Store, owner: DatabaseOwner, original: Path | None) -> ServerIdentity:
    log.warning("taking over from %s", original or "a server whose state directory is not known")
    if original is not None and (original / IDENTITY_FILE).exists():
        with contextlib.suppress(OSError):  # should it be started once more all the same, it is the copy
            write_json(original / IDENTITY_FILE, {"taken_over_by": str(owner.state_dir)}, durable=True)
    store.identity.write(owner)
    _write(owner.state_dir, owner.server)  # afterwards: until then it stays a copy, and can be started so again
    return ServerIdentity((owner.server, *owner.formerly), original, took_over=True)


def _fresh() -> str:
    return secrets.token_hex(16)


def _write(place: Path, server: str, has_database: bool = True) -> None:
    fields = {"server": server, "state_dir": str(place), "has_database": has_database}
    write_json(place / IDENTITY_FILE, fields, durable=True)


def _require_no_past(place: Path, has_database: bool) -> None:
    """With an empty database every task that runs would be ended as nobody's, and users and queues be forgotten."""
    if any((place / "jobs").glob("*")):
        past = f"has had jobs ({place / 'jobs'})"
    elif has_database:
        past = f"has had another one ({place / IDENTITY_FILE})"
    else:
        return
    raise UnavailableError(
        f"the database is empty, although this server {past}",
        "if another --store was used before, name that; if the database was lost, restore a backup (pond restore "
        "FILE --state-dir ANOTHER); to begin anew, choose another --state-dir",
    )


def _require_known_tasks(store: Store, place: Path, servers: tuple[str, ...]) -> None:
    """A database that was put back as it was before takes later tasks for nobody's, and would have them ended."""
    living = [record for record in running_records(place) if record.server in servers and record.alive]
    known = store.jobs.existing([record.id.job for record in living])
    unknown = {record.id.job: str(record.supervisor_pid) for record in living if record.id.job not in known}
    if unknown:
        jobs, supervisors = ", ".join(sorted(unknown)[:_NAMED]), " ".join(sorted(unknown.values())[:_NAMED])
        raise UnavailableError(
            f"the database is older than what runs here: it knows nothing of {jobs} ({len(unknown)} in all)",
            f"put the latest database back, with its file {DATABASE_FILE}-wal if it is SQLite; or give up the tasks of "
            f"these jobs, whose supervisors are the processes {supervisors}, with SIGTERM, and start again",
        )


def _require_ended(original: Path) -> None:
    """Two servers with the same tasks would end each other's; on this machine that can be seen."""
    try:
        with (original / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConflictError(
            f"the original server still runs on {original}",
            f"stop it with `pond down --keep-jobs --state-dir {original}`, and never start it again",
        ) from None
    except OSError:
        return  # it is not on this machine, or gone
