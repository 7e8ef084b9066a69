"""Write and read small files; JSON files are replaced as a whole. Also pipes and sockets.

Imported by the supervisor, hence light: what ``open`` makes around a descriptor, with its buffers and five more system
calls for each file, would be a good part of what a short task costs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from _thread import get_native_id
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_ROOM: Final = b" " * 8192
"""Two blocks, as file systems give them; a record is smaller."""
_READ_BYTES: Final = 8192
_FRESH: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_NO_FILE: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
)
"""Errors by which a path leads to no file that could be read now or later: ENXIO is that of a socket."""


def write_json(path: Path, value: Any, durable: bool = False, in_room: bool = False) -> None:
    """Replace the file at once; readable by its owner alone.

    Args:
        durable: on disk before this returns, so that a power cut does not undo it.
        in_room: in the blocks of ``keep_room``, if they have not been used yet.

    Raises:
        OSError: the disk is full, and there is no room kept.
    """
    text = json.dumps(value).encode()  # ``json.dump`` would go round the encoder in C
    fresh, file = room_for(path), None
    if in_room:
        with contextlib.suppress(FileNotFoundError):
            file = os.open(fresh, os.O_WRONLY)
    if file is None:
        fresh = f"{path}.{get_native_id()}.tmp"  # of this thread, which no other of any process shares now
        file = os.open(fresh, _FRESH, 0o600)
    try:
        write_all(file, text)
        if in_room:  # afterwards, as it would give the blocks of its room away
            os.ftruncate(file, len(text))
        if durable:
            os.fsync(file)
    except OSError:
        if fresh != room_for(path):  # else it would stay for ever: the next one has another name for it
            os.unlink(fresh)  # noqa: PTH108
        raise
    finally:
        os.close(file)
    os.replace(fresh, path)  # noqa: PTH105 - a path of pathlib costs more than the system call
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def room_for(path: Path) -> str:
    """Where ``keep_room`` keeps room for a file."""
    return f"{path}.room"


def keep_room(path: Path) -> None:
    """Keep room for a file beside it, so that it can be written even when the disk is full.

    On a file system that never writes a block where it was before (btrfs, ZFS) this promises nothing.

    Raises:
        OSError: it is full already.
    """
    file = os.open(room_for(path), _FRESH, 0o600)
    try:
        write_all(file, _ROOM)
    finally:
        os.close(file)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None when there is no file.

    A file that is no JSON object counts as absent, as a power cut leaves one, and it ended all tasks as well. So does
    what is no file, or may not be read: a task that is not kept apart from its own folder may put anything there.

    Raises:
        OSError: it cannot be read now, as when the disk fails or too many files are open.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for its other end
        try:
            value = json.loads(read_all(file)) if stat.S_ISREG(os.fstat(file).st_mode) else None
        finally:
            os.close(file)
    except (ValueError, RecursionError):
        return None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    return value if isinstance(value, dict) else None


def read_file(path: Path | str) -> bytes:
    """All of a file, as ``Path.read_bytes``.

    Raises:
        OSError: it cannot be read.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        return read_all(file)
    finally:
        os.close(file)


def read_all(file: int) -> bytes:
    """All of an open file from where it stands."""
    parts = []
    while part := os.read(file, _READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def write_all(file: int, data: bytes) -> None:
    """Write all of it, where ``os.write`` writes what there is room for.

    Raises:
        OSError: there is no room.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def try_lock(file: int) -> bool:
    """Lock an open file by flock(2); False where another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def announce_by_signal(file: int) -> None:
    """Have the kernel send SIGIO when a pipe or socket can be read or written (``O_ASYNC``)."""
    fcntl.fcntl(file, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | fcntl.FASYNC)


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for a socket that fits into the 108 bytes which the kernel allows, however deep its folder lies."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
