"""Backups: one archive of everything in a state directory, taken while the server runs, checked before it is restored.

The database is copied by SQLite's own online backup, so that the copy is whole. Records and output of jobs are copied
as they are at that moment. A restored server knows that its state is a copy (``server.startup.identity``). Once it
takes over it settles what has happened since as after any crash: tasks that it no longer finds count as lost with their
machine.

The archive is a gzip-compressed tar file, readable by its owner only as it holds the API token. Its last member,
``manifest.json``, names every file with its SHA-256. It can be encrypted (``server.auth.vault.envelope``).
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import logging
import os
import shutil
import sqlite3
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.model.folders import DEEPEST
from millpond.node.host import procfs
from millpond.node.host.folder_trees import entries_below
from millpond.node.task.layout import open_regular
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.envelope import MAGIC, OpeningReader, SealingWriter, is_sealed, needed_key
from millpond.server.auth.vault.keys import KeySource
from millpond.server.state_dir import DATABASE_FILE, IDENTITY_FILE
from millpond.server.storage.files.blobs import BLOBS_FOLDER
from millpond.server.storage.files.partials import PARTIALS_FOLDER
from millpond.server.version import VERSION
from millpond.specs.api.server import LOCK_FILE, SERVER_FILE

log = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1

_PASSING: Final = frozenset({LOCK_FILE, SERVER_FILE, IDENTITY_FILE, "server.log", "supervisors.log"})
"""Files of the state directory that mean nothing elsewhere."""
_BESIDE_DATABASE: Final = (f"{DATABASE_FILE}-", f"{DATABASE_FILE}.")
"""What SQLite keeps beside the database, which is copied by itself, and what an upgrade left there."""
_PARTIAL, _PARTIAL_DATABASE, _RESTORING = ".partial", ".db", ".restoring"
"""What is not whole yet lies beside where it belongs or is from: NAME, the process, and one of these."""
MOST_HOLES: Final = 64 * 2**30
"""Bytes of a file that were never written: a job makes petabytes of them in a moment."""
_BLOCK: Final = 512
_LONGEST: Final = 2_000
"""Bytes of a path: there is to be room for that of the folder that is restored into."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """What an archive holds.

    Attributes:
        size_bytes: of the archive.
        left_out: number of files of jobs that could not be read, lie too deep to be restored, or are all but empty.
    """

    files: int
    size_bytes: int
    version: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Lock:
    """How a backup is encrypted."""

    key: KeySource
    cipher: Cipher = Cipher.AES_256_GCM


def back_up(state_dir: Path, target: Path, at: float, *, jobs: bool = True, lock: Lock | None = None) -> BackupSummary:
    """Write an archive of a state directory; a server may be running on it.

    Args:
        target: the archive; must not exist.
        at: the instant, for the manifest.
        jobs: with records, output and own folders of jobs, not only the database and the token.
        lock: encrypts it; None: it is as it is.

    Raises:
        NotFoundError, UnavailableError: there is no database, or a file cannot be read or written, or nothing can be
            encrypted here.
        ConflictError: the target exists.
    """
    require_source_and_target(state_dir, target)
    database = state_dir / DATABASE_FILE
    partial = target.with_name(f"{target.name}.{os.getpid()}{_PARTIAL}")
    # What is encrypted may lie where others read, and its plain copy may not.
    copied = target if lock is None else database
    copy = copied.with_name(f"{copied.name}.{os.getpid()}{_PARTIAL_DATABASE}")
    try:
        _remove_left(target, _PARTIAL, _PARTIAL_DATABASE)
        _remove_left(database, _PARTIAL_DATABASE)
        _copy_database(database, copy)
        members = sorted(path for path in _files(state_dir) if jobs or (path and "/" not in path))
        with _private(partial) as raw:
            with _packed(raw, lock) as archive:
                count, left_out = _write(archive, copy, state_dir, members, at)
            raw.flush()
            os.fsync(raw.fileno())
        partial.rename(target)
    except (OSError, sqlite3.Error) as error:
        cause = getattr(error, "strerror", None) or error
        remedy = "name a file in a folder that is there, may be written and has room"
        raise UnavailableError(f"the backup {target} cannot be written ({cause})", remedy) from error
    finally:
        copy.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
    return BackupSummary(count, target.stat().st_size, VERSION, left_out)


def require_source_and_target(state_dir: Path, target: Path) -> None:
    """Check that there is something to back up, and that nothing is in its archive's place.

    Raises:
        UnavailableError: there is no database.
        ConflictError: the target exists.
    """
    if not (state_dir / DATABASE_FILE).is_file():
        remedy = "name a state directory with --state-dir; a PostgreSQL database is backed up by pg_dump"
        raise UnavailableError(f"there is no {DATABASE_FILE} in {state_dir}", remedy)
    if target.exists():
        raise ConflictError(f"{target} exists already", "name another file, or remove it")


def require_empty(state_dir: Path) -> None:
    """Check that a backup can be restored there.

    Raises:
        ConflictError: it holds something.
    """
    if state_dir.exists() and any(state_dir.iterdir()):
        raise ConflictError(f"{state_dir} is not empty", "restore into an empty directory: --state-dir DIR")


def needed_key_of(archive: Path) -> str:
    """What it takes to open an archive: ``file``, ``passphrase``, or nothing.

    Raises:
        InvalidInputError: it is encrypted, and its header is damaged.
        UnavailableError: it cannot be read.
    """
    try:
        with archive.open("rb") as raw:
            if not is_sealed(raw.read(len(MAGIC))):
                return ""
            raw.seek(0)
            return needed_key(raw)
    except OSError as error:
        raise UnavailableError(f"{archive} cannot be read ({error.strerror})", "see its path") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{archive}: {error.cause}", error.remedy) from error


def restore(archive: Path, state_dir: Path, key: KeySource | None = None) -> BackupSummary:
    """Put the content of an archive where a server finds it; nothing is left if anything in it is wrong.

    Args:
        state_dir: must be empty or absent.
        key: opens it; None: it is not encrypted.

    Raises:
        ConflictError: the state directory is in use or holds something.
        InvalidInputError: the archive is damaged, or not a backup of Millpond.
        UnavailableError: a file cannot be read or written.
    """
    require_empty(state_dir)
    fresh = state_dir.with_name(f"{state_dir.name}.{os.getpid()}{_RESTORING}")
    try:
        _remove_left(state_dir, _RESTORING)
        fresh.mkdir(mode=0o700, parents=True)
        try:
            manifest = _unpack(archive, fresh, key)
            with contextlib.suppress(FileNotFoundError):
                state_dir.rmdir()
            fresh.rename(state_dir)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{archive} is damaged or no backup ({error})", "use another backup") from error
    except OSError as error:
        raise UnavailableError(f"{archive} cannot be restored ({error})", "see its path and the disk's room") from error
    return BackupSummary(len(manifest["files"]), archive.stat().st_size, str(manifest["version"]))


@contextlib.contextmanager
def _packed(raw: IO[bytes], lock: Lock | None) -> Iterator[tarfile.TarFile]:
    """An archive that is compressed, and perhaps encrypted, into a file."""
    with contextlib.ExitStack() as opened:
        out = raw if lock is None else opened.enter_context(SealingWriter(raw, lock.key, lock.cipher))
        # Files with several names are whole under each of them: dereference is about those links, too.
        with tarfile.open(fileobj=cast(IO[bytes], out), mode="w:gz", compresslevel=1, dereference=True) as archive:
            yield archive


def _remove_left(place: Path, *suffixes: str) -> None:
    """What processes that were killed have left beside a place: it would take its room for ever."""
    for suffix in suffixes:
        for path in place.parent.glob(f"{glob.escape(place.name)}.*{suffix}"):
            pid = path.name.removeprefix(f"{place.name}.").removesuffix(suffix)
            if pid.isdecimal() and procfs.start_ticks(int(pid)) is None:
                log.info("removing %s, which an interrupted process has left", path)
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def _copy_database(source: Path, target: Path) -> None:
    with _private(target):
        pass
    with contextlib.ExitStack() as opened:
        try:
            url = f"{source.absolute().as_uri()}?mode=ro"
            origin = opened.enter_context(contextlib.closing(sqlite3.connect(url, uri=True)))
            # Read as of now until the end: SQLite begins a copy anew whenever it sees that another program has written.
            origin.execute("BEGIN")
            origin.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            remedy = "see its rights; where nothing can be written, copy the state directory, and back up the copy"
            raise UnavailableError(f"the database {source} cannot be read ({error})", remedy) from error
        copy = opened.enter_context(contextlib.closing(sqlite3.connect(target)))
        # A copy that fails is not mended: a journal would only lie beside it for ever where this process is killed.
        copy.execute("PRAGMA journal_mode=OFF")
        origin.backup(copy, pages=1000, sleep=0.0)


def _files(state_dir: Path) -> Iterator[str]:
    """The regular files of a state directory that count, by their paths there; empty: it lies too deep."""
    for entry in entries_below(state_dir):
        if not stat.S_ISREG(entry.status.st_mode):
            continue
        path = entry.path or ""
        above, _, name = path.rpartition("/")
        of_database = name == DATABASE_FILE or name.startswith(_BESIDE_DATABASE)
        passing = not above and (name in _PASSING or of_database)
        passing = passing or above == f"{BLOBS_FOLDER}/{PARTIALS_FOLDER}"
        if not passing and not name.endswith(".tmp"):
            yield path if path.count("/") <= DEEPEST and len(os.fsencode(path)) <= _LONGEST else ""


def _write(archive: tarfile.TarFile, database: Path, state_dir: Path, members: list[str], at: float) -> tuple[int, int]:
    """Add the database and all members, then the manifest; returns how many there are, and how many were left out.

    Jobs may be at work in these files: each is as long as it was when it was opened, with zeros where it was cut since.
    """
    digests: dict[str, str] = {}
    left_out = 0
    for name in (DATABASE_FILE, *members):
        body = database.open("rb") if name == DATABASE_FILE else open_regular(state_dir, name) if name else None
        if body is None:
            left_out += not name or (state_dir / name).exists()  # else it was cleaned away meanwhile
            continue
        if name != DATABASE_FILE and _holes_bytes(body) > MOST_HOLES:
            body.close()
            left_out += 1
            continue
        with body:
            info = archive.gettarinfo(arcname=name, fileobj=body)
            reader = _Digesting(body)
            archive.addfile(info, reader)
            digests[name] = reader.digest.hexdigest()
    manifest = json.dumps({"format": FORMAT, "version": VERSION, "at": at, "files": digests}, indent=1).encode()
    last = tarfile.TarInfo(MANIFEST)
    last.size, last.mode, last.mtime = len(manifest), 0o600, int(at)
    archive.addfile(last, io.BytesIO(manifest))
    return len(digests), left_out


def _holes_bytes(body: IO[bytes]) -> int:
    """How much of a file was never written: it takes no room, but as long to be copied as if it did."""
    found = os.fstat(body.fileno())
    if found.st_size - found.st_blocks * _BLOCK <= MOST_HOLES:
        return 0
    data = end = 0
    with contextlib.suppress(OSError):  # behind the last of the data
        while True:
            begin = os.lseek(body.fileno(), end, os.SEEK_DATA)
            end = os.lseek(body.fileno(), begin, os.SEEK_HOLE)
            data += end - begin
    body.seek(0)
    return found.st_size - data


class _Digesting(io.RawIOBase):
    """Reads through to a file, with zeros behind its end, and keeps the SHA-256 of what was read."""

    def __init__(self, body: IO[bytes]) -> None:
        self._body = body
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._body.read(size).ljust(size, b"\0")
        self.digest.update(piece)
        return piece


def _unpack(archive: Path, target: Path, key: KeySource | None) -> dict[str, Any]:
    with archive.open("rb") as raw:
        try:
            source = raw if key is None else OpeningReader(raw, key)
            with tarfile.open(fileobj=cast(IO[bytes], source), mode="r|gz") as opened:
                for member in opened:
                    _unpack_file(opened, member, target)
            if isinstance(source, OpeningReader):
                source.finish()
        except InvalidInputError as error:
            raise InvalidInputError(f"{archive}: {error.cause}", error.remedy) from error
    try:
        manifest = json.loads((target / MANIFEST).read_bytes())
        known = manifest["format"] == FORMAT and "version" in manifest and isinstance(manifest["files"], dict)
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise InvalidInputError(f"{archive} is not a whole backup of Millpond", "name a file that `pond backup` wrote")
    (target / MANIFEST).unlink()
    for name, digest in manifest["files"].items():
        path = target / name
        if not path.is_file() or _digest(path) != digest:
            raise InvalidInputError(f"{archive}: {name} is missing or damaged", "use another backup")
    return manifest  # type: ignore[no-any-return]


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one file, as the filter ``data`` of ``tarfile`` does, which the first releases of Python 3.11 lack."""
    name = PurePosixPath(member.name)
    if not member.isreg() or name.is_absolute() or ".." in name.parts:
        raise InvalidInputError(f"{member.name!r} in it is no file of a backup", "name a file that `pond backup` wrote")
    path = target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None, member
    with content, _private(path) as out:
        shutil.copyfileobj(content, out)
        os.fchmod(out.fileno(), member.mode & 0o755 | 0o600)
    os.utime(path, (member.mtime, member.mtime))


def _digest(path: Path) -> str:
    with path.open("rb") as body:
        return hashlib.file_digest(body, "sha256").hexdigest()


def _private(path: Path) -> IO[bytes]:
    """A new file that its owner alone may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
