"""A cache of data sources: what jobs read below a source is copied once, kept while there is room, and read by all.

``CACHE/SOURCE/KEY/`` is a copy, ``KEY.json`` beside it says of what; its time is when it was last wanted. The key
follows from the original's files, sizes and times: when they change, another copy is made, and jobs that read the old
one go on with it. ``KEY.part`` is a copy on its way; what a killed server left of it is gone on with, or goes.
``NAME.gone`` is one that is being removed: that takes minutes where files are many, and nobody else waits for it.

Room is made by the copies that are worth least, as ``model.contents`` says.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.contents import uses_after, worth
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.node.host.clocks import MonotonicClock
from millpond.node.host.files import read_json, write_json
from millpond.node.host.folder_trees import remove_tree
from millpond.server.storage.provisioning import copying
from millpond.specs.config.provisioning import DataSource

READ_IN_PLACE: Final = ""
"""The key of what is read where it is, as it would not fit into the cache."""

_SUPPOSED_SPEED: Final = 125_000_000.0
"""Bytes a second, one Gbit/s, of a copy by an earlier version, which did not measure."""
_LEAST: Final = 1e-12
"""Seconds by byte, faster than any disk: what took no time that could be measured."""
_DATA: Final = "data"
_PART: Final = ".part"
_GONE: Final = ".gone"
_LOOK_AGAIN_S: Final = 1.0
"""Who waits for the removals of others looks so often whether it is still wanted."""


@dataclass(slots=True)
class CopyProgress:
    """How far something is, in bytes; written by one thread, read by any.

    Attributes:
        key: the copy that is made, or was found, so that nobody drops it before it is written down who reads it.
    """

    done: int = 0
    total: int = 0
    key: str = ""

    def add(self, more: int) -> None:
        """So much more is done."""
        self.done += more


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that is whole.

    Attributes:
        key: ``SOURCE/`` and the name of its folder.
        size: bytes.
        worth: what it saves by staying, for comparison with others alone: the logarithm, and no other instant matters
            than that of its last use, as all uses fade alike.
    """

    key: str
    path: str
    size: int
    worth: float


class DataCache:
    """All copies of a machine.

    Args:
        folder: where they lie; made when the first one comes.
        sources: gives the places that are read so.
        in_use: gives the keys of copies that jobs wait for or read, those of every ``CopyProgress`` under way included.
    """

    def __init__(
        self,
        folder: Path,
        sources: Callable[[], tuple[DataSource, ...]],
        in_use: Callable[[], frozenset[str]],
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._folder = folder.resolve()
        self._sources = sources
        self._in_use = in_use
        self._clock = clock
        self._lock = threading.Lock()
        """Held while copies are set aside, and from a look whether one is here until its key is among those in use."""
        self._coming: dict[str, int] = {}
        """The sizes of copies that are being made."""
        self._going: set[Path] = set()
        """What is set aside and being removed."""
        self._removed = threading.Condition(self._lock)
        """Told when something of that is gone."""

    def source_of(self, path: Path) -> DataSource | None:
        """The source that a path lies in, after all links; None when in none."""
        return next((source for source in self._sources() if path.is_relative_to(os.path.realpath(source.path))), None)

    def place(self, key: str) -> Path:
        """Where a copy is read."""
        return self._folder / key / _DATA

    def copy_of(self, key: str, original: Path | None = None) -> Path | None:
        """Where a copy is read; given an original, None if it is the copy of another."""
        if original is not None and (read_json(self._folder / f"{key}.json") or {}).get("path") != str(original):
            return None
        return self.place(key)

    def has(self, key: str) -> bool:
        """Whether a copy is here, and whole."""
        return self.place(key).exists() and self._record(key).exists()

    def fetch(self, path: Path, progress: CopyProgress, stop: Callable[[], None]) -> str:
        """Have a copy of a file or folder; returns its key.

        Args:
            stop: called often; whatever it raises ends the copying, which can be gone on with.

        Raises:
            InvalidInputError: there is nothing, or it is in no source.
            UnavailableError: it cannot be read, or there is no room for it now.
        """
        source = self.source_of(path)
        if source is None:
            raise InvalidInputError(f"{path} is in no source of the configuration any more", "submit the job again")
        try:
            return self._fetch(source, path, progress, stop)
        except FileNotFoundError as error:
            raise InvalidInputError(f"there is nothing at the data path {error.filename}", "check it") from error
        except RecursionError as error:
            raise InvalidInputError(f"{path} has folders too deep in each other", "pack it into one file") from error
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise UnavailableError(f"{path} cannot be copied: {error.strerror}{where}", "see to the source") from error

    def copies(self) -> list[Copy]:
        """Every whole copy, the one that is worth least first."""
        found = []
        for record in self._folder.glob("*/*.json"):
            plain, key = read_json(record), f"{record.parent.name}/{record.stem}"
            if plain is not None and self.has(key):
                size, uses = plain["size"], plain.get("uses", 1.0)
                seconds_per_byte = max(plain.get("seconds", size / _SUPPOSED_SPEED) / max(size, 1), _LEAST)
                kept_for = worth(uses, record.stat().st_mtime, seconds_per_byte)
                found.append(Copy(key, plain["path"], size, kept_for))
        return sorted(found, key=lambda copy: (copy.worth, copy.key))

    def _fetch(self, source: DataSource, path: Path, progress: CopyProgress, stop: Callable[[], None]) -> str:
        entries = copying.listing(path)
        size = sum(entry.size for entry in entries)
        progress.total, progress.done, progress.key = size, 0, ""
        key = f"{source.name}/{copying.key_of(path, entries)}"
        with self._lock:
            if self.has(key):
                progress.key = key
                _note_use(self._record(key))
                return key
            if size > source.limit or (self.place(key).exists() and key in self._in_use()):  # its record is lost
                return READ_IN_PLACE
            progress.key = key
            aside = self._make_room(source, size, key)
            self._coming[key] = size
        try:
            self._remove(aside)
            self._free_disk(source, size, key, stop)
            self._copy(path, entries, key, progress, stop)
        finally:
            del self._coming[key]
        return key

    def _copy(
        self,
        path: Path,
        entries: list[copying.TreeEntry],
        key: str,
        progress: CopyProgress,
        stop: Callable[[], None],
    ) -> None:
        part = self._folder / f"{key}{_PART}"
        part.mkdir(parents=True, exist_ok=True, mode=0o700)

        def report_progress(more: int) -> None:
            stop()
            progress.add(more)

        begun_at = self._clock()
        checksum = copying.copy(path, entries, part / _DATA, report_progress)
        if copying.listing(path) != entries:
            raise OSError(errno.ESTALE, "it changed while it was copied", str(path))
        write_json(
            self._record(key),
            {
                "path": str(path),
                "size": progress.total,
                "files": sum(not entry.is_folder for entry in entries),
                "checksum": checksum,
                "seconds": self._clock() - begun_at,
                "uses": 1.0,
            },
            durable=True,
        )
        part.rename(self._folder / key)

    def _make_room(self, source: DataSource, size: int, key: str) -> list[Path]:
        """Set aside what killed servers left and copies that no job reads, worth least first, until there is room.

        Raises:
            UnavailableError: what is left is in use; nothing is set aside.
        """
        (self._folder / source.name).mkdir(parents=True, exist_ok=True, mode=0o700)
        dropped, going = self._copies_in_the_way(source, size, key), set(self._going)
        try:
            return [*map(self._set_aside, self._left_over(source, key)), *(self._drop(copy.key) for copy in dropped)]
        except OSError:
            self._going = going  # the next copy finds them
            raise

    def _left_over(self, source: DataSource, key: str) -> list[Path]:
        """What is half made or half removed, but of the copy that is to be made."""
        in_use, left_over = self._in_use() - {key}, []
        for left in (self._folder / source.name).iterdir():
            found = f"{source.name}/{left.name.removesuffix(_PART)}"
            is_own_part = found == key and left.suffix == _PART
            if not left.is_dir() or left in self._going or is_own_part or found in in_use:
                continue
            if left.suffix == _PART or not self.has(found):
                left_over.append(left)
        return left_over

    def _copies_in_the_way(self, source: DataSource, size: int, key: str) -> list[Copy]:
        held = sum(copy.size for copy in self._copies_of(source))
        held += sum(coming for other, coming in self._coming.items() if other.startswith(f"{source.name}/"))
        found = []
        for copy in self._unused(source, key):
            if held + size <= source.limit:
                break
            found.append(copy)
            held -= copy.size
        if held + size > source.limit:
            raise UnavailableError(
                f"the cache of {source.name} is full of data in use ({held} of {source.limit} bytes)",
                "wait for the end of jobs that read it, or make it larger",
            )
        return found

    def _free_disk(self, source: DataSource, size: int, key: str, stop: Callable[[], None]) -> None:
        """Drop more copies, where their disk has less room than their limit allows.

        Raises:
            UnavailableError: what is left is in use.
        """
        folder = self._folder / source.name
        while size > shutil.disk_usage(folder).free:
            stop()
            with self._lock:
                if self._going:
                    self._removed.wait(_LOOK_AGAIN_S)
                    continue
                copy = next(iter(self._unused(source, key)), None)
                if copy is None:
                    raise UnavailableError(f"no room on the disk of {folder} for {size} bytes", "make room there")
                aside = self._drop(copy.key)
            self._remove([aside])

    def _copies_of(self, source: DataSource) -> list[Copy]:
        return [copy for copy in self.copies() if copy.key.startswith(f"{source.name}/")]

    def _unused(self, source: DataSource, key: str) -> list[Copy]:
        in_use = self._in_use() - {key}
        return [copy for copy in self._copies_of(source) if copy.key not in in_use]

    def _drop(self, key: str) -> Path:
        """Under its own name there is always a whole copy or none, whenever the server is killed."""
        aside = self._set_aside(self._folder / key)
        self._record(key).unlink()
        return aside

    def _set_aside(self, folder: Path) -> Path:
        """Give a folder a name under which it is to be removed; returns that."""
        aside = folder.with_name(f"{uuid.uuid4().hex}{_GONE}")
        folder.rename(aside)
        self._going.add(aside)
        return aside

    def _remove(self, aside: Sequence[Path]) -> None:
        """Remove what was set aside; what cannot be now is left over for the next copy."""
        try:
            for folder in aside:
                remove_tree(folder)
        finally:
            with self._removed:
                self._going.difference_update(aside)
                self._removed.notify_all()

    def _record(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _note_use(record: Path) -> None:
    """Count one more use of a copy, beside what is left of those before it; not at the price of failing."""
    plain, since_s = read_json(record), time.time() - record.stat().st_mtime
    os.utime(record)
    if plain is not None:
        uses = 1.0 + uses_after(plain.get("uses", 1.0), since_s)
        with suppress(OSError):
            write_json(record, {**plain, "uses": uses}, durable=True)
