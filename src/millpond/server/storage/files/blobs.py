"""Contents named by their SHA-256: written once, never changed, shared by all that refer to them.

``STATE/blobs/ab/cd...``. A content comes under its name only when it is whole and its hash is right. Only this
server reads or writes here: tasks get copies (``node.task.workspace``).
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from millpond.model.errors import InvalidInputError, NotFoundError, UnavailableError
from millpond.model.folders import digest_of
from millpond.node.task.workspace import blob_path
from millpond.specs.job.snapshots import is_digest

BLOBS_FOLDER: Final = "blobs"
BLOCK_BYTES: Final = 4_096
"""What a content takes at least on most file systems: many empty ones fill a disk, too."""
_UNFINISHED: Final = "incoming-"
_FILE_TIMES_LAG_S: Final = 0.1
"""The kernel gives files the time of its last timer tick, up to 10 ms before what the clock shows."""
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""What the kernel says of a disk that is full, or of which a user has taken all that is theirs."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed."""

    blobs: int = 0
    size: int = 0


class BlobStore:
    """The contents of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / BLOBS_FOLDER
        self._orphans: set[str] = set()

    def read(self, digest: str) -> bytes:
        """A content, whole.

        Raises:
            NotFoundError: it is not here.
        """
        with self.open(digest) as file:
            return file.read()

    def open(self, digest: str) -> BinaryIO:
        """A content, to be closed by the caller.

        Raises:
            NotFoundError: it is not here.
        """
        try:
            return blob_path(self.folder, digest).open("rb")
        except FileNotFoundError as error:
            raise NotFoundError(f"the content {digest[:12]} is not here", "send it again") from error

    def size(self, digest: str) -> int | None:
        """Bytes of a content; None when it is not here."""
        try:
            return blob_path(self.folder, digest).stat().st_size
        except FileNotFoundError:
            return None

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those that are not here. The others are kept for a while, as a job is about to refer to them."""
        absent = []
        for digest in digests:
            try:
                os.utime(blob_path(self.folder, digest))
            except FileNotFoundError:
                absent.append(digest)
        return absent

    def remove_damaged(self, digest: str) -> None:
        """Remove a content that a power cut has cut or emptied, so that it counts as missing and is sent again."""
        with suppress(FileNotFoundError), blob_path(self.folder, digest).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                Path(file.name).unlink()

    def receive(self, digest: str, largest: int) -> Incoming:
        """A content on its way in, for a ``with`` block; it is kept when ``finish`` says so.

        Args:
            largest: bytes; more is refused.
        """
        return Incoming(self.folder, digest, largest)

    def keep(self, content: bytes) -> str:
        """Keep a small content; returns its digest.

        Raises:
            UnavailableError: the disk takes no more.
        """
        digest = digest_of(content)
        with self.receive(digest, len(content)) as incoming:
            incoming.write(content)
            incoming.finish()
        return digest

    def drop(self, digests: Iterable[str], asked_until: float) -> set[str]:
        """Remove contents that were neither sent nor asked for since an instant; returns which.

        Args:
            asked_until: seconds since 1970.
        """
        dropped = set()
        for digest in digests:
            with suppress(FileNotFoundError):
                path = blob_path(self.folder, digest)
                if path.stat().st_mtime <= asked_until:
                    path.unlink()
                    dropped.add(digest)
        return dropped

    def collect(self, kept: Set[str], pending: Set[str], now: float, spared_s: float) -> Collected:
        """Remove contents that nothing refers to.

        Args:
            kept: what something refers to.
            pending: what counts for its sender meanwhile. All else is nobody's: asking for it spares it until the next
                collection only.
            now: seconds since 1970, before it was looked what is kept.
            spared_s: what was sent or asked for so recently may be about to be referred to.
        """
        orphans: set[str] = set()
        count = size = 0
        for path in self.folder.glob("??/*"):
            name = path.parent.name + path.name
            if name in kept:
                continue
            with suppress(FileNotFoundError):  # sent again and renamed over, or removed by hand
                found = path.stat()
                is_over = name in self._orphans and name not in pending and found.st_mtime < now - _FILE_TIMES_LAG_S
                if found.st_mtime >= now - spared_s and not is_over:
                    if is_digest(name):
                        orphans.add(name)
                    continue
                path.unlink()
                count, size = count + is_digest(name), size + found.st_size
        self._orphans = orphans
        return Collected(count, size)


class Incoming:
    """A content on its way in; what is not finished leaves no trace.

    Attributes:
        size: bytes that have come.
    """

    def __init__(self, folder: Path, digest: str, largest: int) -> None:
        self._target = blob_path(folder, digest)
        self._digest = digest
        self._largest = largest
        self._hash = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file, self._path = self._open()
        except OSError as error:
            raise _unwritable(error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):  # a full disk says so a second time when the buffer is written
            self._file.close()
        self._leave(error)

    def heard(self) -> None:
        """More of it has come, and may not have been written yet."""

    def catch_up(self) -> None:
        """Read what came earlier; takes as long as that is large."""

    def write(self, data: bytes) -> None:
        """Take a piece.

        Raises:
            InvalidInputError: there is more of it than allowed.
            UnavailableError: the disk takes no more.
        """
        self.size += len(data)
        if self.size > self._largest:
            raise InvalidInputError(
                f"a content of more than {self._largest // 2**20} MiB", "leave large files out, or put them on a disk"
            )
        self._hash.update(data)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise _unwritable(error) from error

    def finish(self) -> None:
        """Keep it under its name.

        Raises:
            InvalidInputError: it is another content than was announced.
            UnavailableError: the disk takes no more.
        """
        if self._hash.hexdigest() != self._digest:
            raise InvalidInputError(
                f"what came is not the content {self._digest[:12]}", "the file changed while it was sent: send it again"
            )
        try:
            self._file.close()
            self._path.replace(self._target)
        except OSError as error:
            raise _unwritable(error) from error

    def _open(self) -> tuple[BinaryIO, Path]:
        handle, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._target.parent)
        return os.fdopen(handle, "wb"), Path(name)

    def _leave(self, error: BaseException | None) -> None:
        """Tidy up, whether it was finished or not."""
        self._path.unlink(missing_ok=True)


def _unwritable(error: OSError) -> UnavailableError:
    if error.errno in NO_ROOM:
        return UnavailableError("the server's disk is full", "make room there, then send it again")
    return UnavailableError(f"the server cannot keep contents ({error.strerror})", "see to its state directory")
