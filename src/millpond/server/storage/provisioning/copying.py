"""Copy a tree of files so that it can be stopped at any moment and resumed later.

A file of the copy is whole when it has the size and the time of its original; both are set at its end. What a stop left
of a large file is gone on with. What was written is read once more and compared with what was read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

Notify = Callable[[int], None]
"""Takes how many more bytes are there now; whatever it raises ends the copying."""

_PIECE: Final = 2**22


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """Something in a tree.

    Attributes:
        path: below the root; empty for the root itself.
        link: where it leads, for a symbolic link; otherwise empty.
        is_folder: then it has neither size nor time.
    """

    path: str
    size: int
    time_ns: int
    mode: int
    user: int
    group: int
    link: str = ""
    is_folder: bool = False


def listing(root: Path) -> list[TreeEntry]:
    """What is in a tree, in a fixed order, each folder before what is in it; sockets, pipes and devices are left out.

    Raises:
        OSError: something in it cannot be looked at.
    """
    if root.is_dir():
        return [_folder("", root.stat()), *_walk(root, "")]
    return [_entry(root, "", root.stat())]


def key_of(root: Path, entries: list[TreeEntry]) -> str:
    """A name for a tree as it is now: another file, size or time makes another."""
    seen = hashlib.sha256(str(root).encode())
    for entry in entries:
        seen.update(json.dumps([entry.path, entry.size, entry.time_ns, entry.mode, entry.link]).encode())
    return seen.hexdigest()


def copy(root: Path, entries: list[TreeEntry], place: Path, notify: Notify) -> str:
    """Copy what is not there yet; returns the checksum of all contents.

    Args:
        place: becomes what ``root`` is, a folder or a file.

    Raises:
        OSError: something cannot be read or written, or was written otherwise than it was read.
    """
    checksum = hashlib.sha256()
    for entry in entries:
        source, target = root / entry.path, place / entry.path
        if entry.is_folder:
            target.mkdir(mode=0o700, exist_ok=True)
            target.chmod(0o700)
            checksum.update(json.dumps([entry.path, entry.mode]).encode())
        elif entry.link:
            target.unlink(missing_ok=True)
            target.symlink_to(entry.link)
            checksum.update(json.dumps([entry.path, entry.link]).encode())
        else:
            checksum.update(json.dumps([entry.path, _copied(entry, source, target, notify)]).encode())
    for entry in reversed([entry for entry in entries if entry.is_folder]):  # the inner first, as it may close a way
        _give_rights(entry, place / entry.path)
    return checksum.hexdigest()


def _walk(folder: Path, below: str) -> Iterator[TreeEntry]:
    with os.scandir(folder) as found:
        listed = sorted(found, key=lambda each: each.name)
    for each in listed:
        path, status = below + each.name, each.stat(follow_symlinks=False)
        if each.is_dir(follow_symlinks=False):
            yield _folder(path, status)
            yield from _walk(Path(each.path), f"{path}/")
        elif each.is_symlink() or stat.S_ISREG(status.st_mode):
            yield _entry(Path(each.path), path, status)


def _folder(path: str, status: os.stat_result) -> TreeEntry:
    return TreeEntry(path, 0, 0, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, is_folder=True)


def _entry(file: Path, path: str, status: os.stat_result) -> TreeEntry:
    link = str(file.readlink()) if stat.S_ISLNK(status.st_mode) else ""
    size = 0 if link else status.st_size
    return TreeEntry(path, size, status.st_mtime_ns, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, link)


def _copied(entry: TreeEntry, source: Path, target: Path, notify: Notify) -> str:
    """The hash of a file's content, once the copy has it."""
    if target.exists():
        status = target.stat()
        if (status.st_size, status.st_mtime_ns) == (entry.size, entry.time_ns):
            notify(entry.size)
            return _hash_of(target).hexdigest()
    with target.open("ab") as written, _opened(entry, source) as read:
        begun = written.tell() if written.tell() <= entry.size else 0
        written.truncate(begun)
        notify(begun)
        seen = _hash_of(target)
        read.seek(begun)
        while piece := read.read(_PIECE):
            seen.update(piece)
            written.write(piece)
            notify(len(piece))
        written.flush()
        os.fsync(written.fileno())
    if target.stat().st_size != entry.size:
        target.unlink()
        raise OSError(errno.ESTALE, "it changed while it was copied", str(source))
    if _hash_of(target).hexdigest() != seen.hexdigest():
        target.unlink()
        raise OSError(errno.EIO, "the copy is not what was read", str(target))
    _give_rights(entry, target)
    os.utime(target, ns=(entry.time_ns, entry.time_ns))
    return seen.hexdigest()


def _opened(entry: TreeEntry, source: Path) -> BinaryIO:
    """The file that was listed: another, put in its place meanwhile, could be one that its owner may not read.

    Raises:
        OSError: it is another.
    """
    file = os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or _entry(source, entry.path, found) != entry:
        file.close()
        raise OSError(errno.ESTALE, "it changed while it was copied", str(source))
    return file


def _give_rights(entry: TreeEntry, target: Path) -> None:
    """Users who may read the original may read the copy, and no others; it gives nobody another's rights (setuid)."""
    mode = entry.mode & 0o777
    if os.geteuid() == 0:
        os.chown(target, entry.user, entry.group)
        target.chmod(mode)
    else:
        target.chmod(mode | (0o500 if entry.is_folder else 0o400))


def _hash_of(path: Path) -> hashlib._Hash:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
