"""What jobs leave in their output folder, read without ever following a link out of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from millpond.model.errors import ConflictError, NotFoundError
from millpond.node.task.workspace import OUTPUT
from millpond.specs.api.files import OutputFile, OutputList
from millpond.specs.job.snapshots import is_inside

MOST_LISTED: Final = 100_000


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file of an output, to be closed by the caller; ``size`` in bytes and ``version`` as it was opened."""

    file: BinaryIO
    size: int
    version: str


def list_output(attempt_dir: Path, job: str, attempt: int) -> OutputList:
    """The regular files of an attempt's output, by path.

    Raises:
        ConflictError: the job writes to a folder of the machine, not to one of its own.
    """
    folder = _own_output(attempt_dir)
    files = list(_walk(folder)) if folder.is_dir() else []
    files.sort(key=lambda file: file.path)
    return OutputList(job=job, attempt=attempt, files=files[:MOST_LISTED], truncated=len(files) > MOST_LISTED)


def open_output(attempt_dir: Path, path: str) -> OpenedFile:
    """One file of an attempt's output.

    Raises:
        NotFoundError: there is no such regular file; also when a link is on the way.
        ConflictError: as in ``list_output``.
    """
    missing = NotFoundError(f"no file {path!r} in the output", "list them with `pond output ls`")
    if not is_inside(path):
        raise missing
    opened = open_below(_own_output(attempt_dir), path)
    if opened is None:
        raise missing
    return opened


def open_below(folder: Path, path: str) -> OpenedFile | None:
    """A regular file below a folder that a task can write to, reached without a link; None when there is none.

    From folder to folder, as a task may put a link to something of the server's where a file was, while we look.
    """
    *above, name = path.split("/")
    handles: list[int] = []
    try:
        handles.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        for part in above:
            handles.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handles[-1]))
        # Not blocking: opening a pipe would wait for its other end.
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handles[-1])
    except OSError:
        return None
    finally:
        for handle in handles:
            os.close(handle)
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        os.close(opened)
        return None
    return OpenedFile(os.fdopen(opened, "rb"), found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    """What distinguishes a file from what stands in its place, or in it, later."""
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def _own_output(attempt_dir: Path) -> Path:
    folder = attempt_dir / OUTPUT
    if folder.is_symlink():
        raise ConflictError(f"the job writes its output to {folder.readlink()}", "copy it from there")
    return folder


def _walk(folder: Path) -> Iterator[OutputFile]:
    """A folder without links, pipes and the like; what vanishes while we look is left out."""
    for above, _, names, handle in os.fwalk(folder):  # which never follows a link, not even one put there just now
        for name in names:
            try:
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                continue
            relative = str(Path(above, name).relative_to(folder))
            if stat.S_ISREG(found.st_mode) and relative.isprintable():
                yield OutputFile(path=relative, size=found.st_size, modified_at=found.st_mtime, version=_version(found))
