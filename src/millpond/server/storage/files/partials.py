"""Partial uploads of large contents: kept for a day, so that a cut-off upload can be resumed.

``STATE/blobs/partials/DIGEST.USER``. A part belongs to its sender: no other user can spoil it by sending what it
is not, and it counts as theirs on the disk. Whether it is what it is called is seen when it is whole. It grows under
its own name, so that it is there after a server was killed as well.

One request at a time adds to a part. Another that begins anew meanwhile has a file of its own; one that would go on is
refused, unless nothing has come by the first for long: its client is gone, unnoticed.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

from millpond.model.errors import ConflictError, MillpondError
from millpond.model.folders import LARGEST_BATCHED
from millpond.node.host.clocks import MonotonicClock
from millpond.server.storage.files.blobs import BLOBS_FOLDER, Incoming
from millpond.specs.api.jobs.files import BlobProgress

PARTIALS_FOLDER: Final = "partials"
KEPT_S: Final = 86_400.0
SMALLEST_KEPT: Final = LARGEST_BATCHED
"""Bytes; what is shorter is sent anew as fast as it is gone on with."""
SILENT_S: Final = 10.0
"""When nothing has come for so long, another request may go on with the part."""
_PIECE: Final = 2**20


class Partials:
    """The parts of one state directory."""

    def __init__(self, state_dir: Path, clock: MonotonicClock = time.monotonic) -> None:
        self._blobs = state_dir / BLOBS_FOLDER
        self._folder = self._blobs / PARTIALS_FOLDER
        self._clock = clock
        self._growing: dict[Path, GrowingPart] = {}
        self._lock = threading.Lock()

    def progress(self, user: str, digest: str) -> BlobProgress:
        """How far a user's upload of a content has come."""
        path = self._path(user, digest)
        with self._lock:
            growing = self._growing.get(path)
            busy = growing is not None and not growing.is_silent
            return BlobProgress(digest=digest, whole=False, received=_size(path), busy=busy)

    def receive(self, user: str, digest: str, first: int, largest: int) -> Incoming:
        """A content on its way in from its byte ``first`` on, for a ``with`` block.

        Args:
            largest: bytes in all; more is refused.

        Raises:
            ConflictError: what lies before is not here, or more of it comes by another request.
        """
        path = self._path(user, digest)
        with self._lock:
            before = self._growing.get(path)
            if before is not None and not before.is_silent:
                if not first:
                    return Incoming(self._blobs, digest, largest)
                raise ConflictError(f"the content {digest[:12]} is being sent by another request", "wait for its end")
            if (here := _size(path)) < first:
                raise ConflictError(
                    f"{here} bytes of the content {digest[:12]} are here, not {first}",
                    f"ask how many with GET /blobs/{digest}, and go on there",
                )
            if before is not None:
                before.give_way()
            growing = GrowingPart(self._blobs, digest, largest, path, first, self._clock, self._forget)
            self._growing[path] = growing
            return growing

    def collect(self, unused_since: float) -> None:
        """Remove what has not grown since; seconds since 1970."""
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < unused_since:
                    path.unlink()

    def _forget(self, growing: GrowingPart, path: Path) -> None:
        with self._lock:
            if self._growing.get(path) is growing:
                del self._growing[path]

    def _path(self, user: str, digest: str) -> Path:
        return self._folder / f"{digest}.{user}"


class GrowingPart(Incoming):
    """A part to which more is added: kept when it is cut off, and only then."""

    def __init__(
        self,
        blobs: Path,
        digest: str,
        largest: int,
        path: Path,
        first: int,
        clock: MonotonicClock,
        ended: Callable[[GrowingPart, Path], None],
    ) -> None:
        super().__init__(blobs, digest, largest)
        self._part = path
        self._first = first
        self._clock = clock
        self._ended = ended
        self._heard_at = clock()
        self._has_given_way = False
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except MillpondError:
            self._ended(self, self._part)
            raise

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for so long that the sender may be gone."""
        return self._clock() - self._heard_at >= SILENT_S

    def heard(self) -> None:
        self._heard_at = self._clock()

    def give_way(self) -> None:
        """Add nothing more: another request goes on."""
        with self._writing:
            self._has_given_way = True

    def catch_up(self) -> None:
        seen = hashlib.sha256()
        with self._part.open("rb") as file:
            left = self._first
            while left and (piece := file.read(min(left, _PIECE))):
                seen.update(piece)
                left -= len(piece)
                self.heard()
        self._hash, self.size = seen, self._first

    def write(self, data: bytes) -> None:
        with self._writing:
            self._check()
            super().write(data)

    def finish(self) -> None:
        with self._writing:
            self._check()
            super().finish()

    def _check(self) -> None:
        if self._has_given_way:
            raise ConflictError(f"another request goes on with the content {self._digest[:12]}", "wait for its end")

    def _open(self) -> tuple[BinaryIO, Path]:
        self._part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        file = os.fdopen(handle, "r+b")
        file.truncate(self._first)
        file.seek(self._first)
        return file, self._part

    def _leave(self, error: BaseException | None) -> None:
        """Keep what came, unless it was refused or is not worth it."""
        with self._writing:
            refused = error is None or isinstance(error, MillpondError)
            if not self._has_given_way and (refused or self.size < SMALLEST_KEPT):
                self._path.unlink(missing_ok=True)
        self._ended(self, self._part)


def held_parts(state_dir: Path) -> Mapping[str, int]:
    """Bytes that parts take on disk, by user."""
    sizes: Counter[str] = Counter()
    for path in (state_dir / BLOBS_FOLDER / PARTIALS_FOLDER).glob("*"):
        with suppress(FileNotFoundError):
            sizes[path.name.partition(".")[2]] += path.stat().st_blocks * 512
    return sizes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
