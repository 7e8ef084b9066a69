"""Verify a stored log: decide again and compare with the stored decisions, for logs of the same version."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from millpond.model import events
from millpond.model.codec import to_plain
from millpond.model.decisions import Decision
from millpond.model.errors import NotFoundError
from millpond.server.runtime.recovery import restored
from millpond.server.state_dir import DATABASE_FILE, StateDir
from millpond.server.store.connection.database import connect_to_read, sqlite_url
from millpond.server.store.store import Store, StoredSnapshot


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of it.

    Attributes:
        versions: those that wrote the snapshots.
        decisions: how many were taken again alike.
        differences: the first decision behind each snapshot that is another one now, in words.
    """

    versions: tuple[str, ...]
    decisions: int
    differences: tuple[str, ...]


def verify_state(directory: Path, url: str) -> Verification:
    """``verify`` for the state of a server that is down, which is as it was then.

    Args:
        url: of its database; empty: SQLite in its state directory.

    Raises:
        NotFoundError: there is no database in the directory.
        UnavailableError: a server uses it, or another version wrote it.
    """
    path = directory / DATABASE_FILE
    if not url and not path.exists():
        raise NotFoundError(f"no database in {directory}", "name another directory with --state-dir")
    held = StateDir(directory) if directory.is_dir() else contextlib.nullcontext()
    with held, contextlib.closing(Store(url or sqlite_url(path), opens=connect_to_read)) as store:
        return verify(store)


def verify(store: Store) -> Verification:
    """Decide again behind each snapshot that is kept, up to the next one, and compare. Nothing is written.

    The last cycle before a snapshot is not compared: where a server was killed before it stored that cycle, the next
    server ran it (``recovery``).

    Raises:
        NotFoundError: nothing was ever stored.
        UnavailableError: a snapshot is of a format that this version cannot read.
        InvalidInputError: a snapshot, or an entry of the log, is damaged.
    """
    snapshots = store.snapshots()
    if not snapshots:
        raise NotFoundError("the database has no log: no server has started on it", "name another with --state-dir")
    ends = [*(snapshot.seq for snapshot in snapshots[1:]), store.latest_seq()]
    parts = [_verify_part(store, snapshot, end) for snapshot, end in zip(snapshots, ends, strict=True)]
    return Verification(
        tuple(dict.fromkeys(snapshot.version for snapshot in snapshots)),
        sum(count for count, _ in parts),
        tuple(difference for _, difference in parts if difference),
    )


def _verify_part(store: Store, snapshot: StoredSnapshot, end: int) -> tuple[int, str]:
    """How many decisions were taken again, and the first other one in words."""
    core = restored(snapshot)
    stored, count = store.decisions_after(core.seq), 0
    for entry in store.events_after(core.seq):
        if entry.seq >= end:
            break
        if not isinstance(entry.event, events.Tick):
            core.handle(entry.event)
            continue
        decided, known = core.decide(entry.event), stored.get(entry.seq, [])
        if decided != known:
            return count, f"entry {entry.seq}: {_first_difference(known, decided)}"
        count += len(known)
    return count, ""


def _first_difference(known: list[Decision], decided: list[Decision]) -> str:
    pairs = zip([*known, *[None] * len(decided)], [*decided, *[None] * len(known)], strict=False)
    was, now = next(pair for pair in pairs if pair[0] != pair[1])
    return f"{_text(was)} was decided, {_text(now)} is now"


def _text(decision: Decision | None) -> str:
    return "nothing" if decision is None else str(to_plain(decision))
