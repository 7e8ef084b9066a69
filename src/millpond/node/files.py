"""Small JSON files that are the old or the new one, never half of it. Imported by the supervisor, hence light."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

_ROOM_BYTES: Final = 8192
"""Two blocks, as file systems give them; a record is smaller."""


def write_json(path: Path, value: Any, durable: bool = False, in_room: bool = False) -> None:
    """Replace the file at once; readable by its owner alone.

    Args:
        durable: on disk before this returns, so that a power cut does not undo it.
        in_room: in the blocks of ``keep_room``, if they have not been used yet.

    Raises:
        OSError: the disk is full, and there is no room kept.
    """
    text = json.dumps(value).encode()  # ``json.dump`` would go round the encoder in C
    room = room_for(path)
    fresh = room if in_room and room.exists() else path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(text)
        file.truncate()  # afterwards, as it would give the blocks of its room away
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def room_for(path: Path) -> Path:
    """Where ``keep_room`` keeps room for a file."""
    return path.with_name(f"{path.name}.room")


def keep_room(path: Path) -> None:
    """Keep room for a file beside it, so that it can be written even when the disk is full.

    On a file system that never writes a block where it was before (btrfs, ZFS) this promises nothing.

    Raises:
        OSError: it is full already.
    """
    with os.fdopen(os.open(room_for(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(b" " * _ROOM_BYTES)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None when there is no file.

    A file that is no JSON object counts as absent: only a power cut leaves one, and it ended all tasks as well.
    """
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None
