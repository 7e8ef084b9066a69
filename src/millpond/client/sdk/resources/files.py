"""Files to and from a server: folders that are sent, datasets, outputs, results, metrics.

Only contents that the server lacks are sent; it names them, and a second submission of an unchanged folder sends
nothing but its list. A large file that was cut off, either way, goes on where it was when the same is asked again.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from operator import methodcaller
from pathlib import Path
from urllib.parse import quote

from millpond.client.sdk.resources.folder_scan import Scan, scan
from millpond.client.sdk.resources.uploads import Notify, Upload
from millpond.client.sdk.transport.connection import Requests, ServerConnection, given, segment
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from millpond.model.folders import (
    LARGEST_BATCHED,
    MOST_BATCHED,
    batches,
    digest_of,
    is_inside,
    is_under,
    link_stays_inside,
)
from millpond.specs import quantities
from millpond.specs.api.jobs.files import (
    MOST_DIGESTS,
    BlobInfo,
    BlobList,
    DatasetInfo,
    DatasetList,
    MetricsInfo,
    OutputFile,
    OutputList,
    read_batch,
)
from millpond.specs.job.snapshots import FolderSnapshot, LinkEntry

LARGEST_DATASET = 2**44
SILENCE_S = 60.0
_EXECUTABLE = 0o111
_LONGEST_NAME_BYTES = 255
_MARK_CHARS = 12
_SAME_INSTANT_S = 1e-6
"""Instants lose their last digits on their way through JSON and file systems."""


@dataclass(frozen=True, slots=True)
class DownloadSource:
    """Where files are fetched: the path of their folder in the API, and what is asked with each."""

    path: str
    params: Mapping[str, int]


class FilesClient(Requests):
    """What a client can do with files.

    Args:
        notify: called with each line of progress.
    """

    def __init__(self, connection: ServerConnection, notify: Notify) -> None:
        super().__init__(connection)
        self._notify = notify

    # ---- sending ------------------------------------------------------------------------------------------------

    def ship(self, folder: Path) -> str:
        """Send a working directory; returns the digest of its snapshot, for ``ship`` of a job.

        Raises:
            InvalidInputError: it is too large, has a link that leads out, or changes while it is read.
        """
        return self._send(scan(folder))

    def put_content(self, data: bytes) -> str:
        """Send one content, unless the server has it; returns its digest."""
        digest = digest_of(data)
        if self._missing([digest]):
            self._ask(BlobInfo, "PUT", f"/blobs/{digest}", content=data)
        return digest

    def _send(self, scanned: Scan) -> str:
        sizes = {entry.digest: entry.size for entry in scanned.snapshot.files}
        missing = self._missing(scanned.sources)
        small = [digest for digest in missing if sizes[digest] <= LARGEST_BATCHED]
        kept: list[str] = []
        for batch in batches(_whole(scanned.sources[digest]) for digest in small):
            kept += self._ask(BlobList, "POST", "/blobs", content=batch).digests
        changed = [scanned.sources[sent] for sent, digest in zip(small, kept, strict=True) if sent != digest]
        if changed:
            raise InvalidInputError(f"{changed[0]} changed while it was sent", "try again, or name it in .pondignore")
        for digest in missing:
            if sizes[digest] > LARGEST_BATCHED:
                Upload(self._connection, scanned.sources[digest], digest, sizes[digest], self._notify).send()
        return self.put_content(scanned.snapshot.encoded())

    def _missing(self, digests: Iterable[str]) -> list[str]:
        remaining, absent = iter(digests), list[str]()
        while some := list(islice(remaining, MOST_DIGESTS)):
            absent += self._ask(BlobList, "POST", "/blobs/missing", json={"digests": some}).digests
        return absent

    # ---- datasets -----------------------------------------------------------------------------------------------

    def put_dataset(self, name: str, folder: Path, visibility: str | None = None) -> DatasetInfo:
        """Send a folder, whole, as the next version of a dataset; the latest version if nothing has changed.

        Args:
            visibility: ``private``, ``group`` or ``everyone``; None: as it was, or that of one's group.

        Raises:
            InvalidInputError: it has no files, or a link that leads out.
        """
        snapshot = self._send(scan(folder, LARGEST_DATASET, ignore=False))
        body = {"snapshot": snapshot} | ({} if visibility is None else {"visibility": visibility})
        return self._ask(DatasetInfo, "POST", f"/datasets/{segment(name)}", json=body)

    def share_dataset(self, name: str, visibility: str) -> DatasetInfo:
        """Let others see all versions of a dataset, or no more.

        Raises:
            NotFoundError: there is none.
        """
        return self._ask(DatasetInfo, "PATCH", f"/datasets/{segment(name)}", json={"visibility": visibility})

    def datasets(self) -> list[DatasetInfo]:
        """Every version of every dataset, by name, the latest first."""
        return self._ask(DatasetList, "GET", "/datasets").datasets

    def get_dataset(self, name: str, into: Path, version: int | None = None) -> DatasetInfo:
        """Fetch a version of a dataset (default: the latest) into a folder, which is made.

        What an earlier call fetched before it was cut off is not fetched again.

        Raises:
            NotFoundError: it is not there, or not for one.
            UnavailableError: it has no room, something cannot be written, or the connection broke.
        """
        found = next((item for item in self.datasets() if item.name == name and version in (None, item.version)), None)
        if found is None:
            label = name if version is None else f"{name}@{version}"
            raise NotFoundError(f"no dataset {label!r}", "`pond data ls` lists those that one may read")
        path = f"/datasets/{segment(name)}/{found.version}/files"
        snapshot = self._ask(FolderSnapshot, "GET", path)
        files = [
            OutputFile(path=entry.path, size=entry.size, modified_at=found.created_at, version=entry.digest)
            for entry in snapshot.files
        ]
        _require_room(files, into)
        places = self._fetch_all(DownloadSource(path, {}), files, into)
        for entry, place in zip(snapshot.files, places, strict=True):
            if entry.executable:
                place.chmod(place.stat().st_mode | _EXECUTABLE)
        for link in snapshot.links:
            _lay_link(link, into)
        return found

    def remove_dataset(self, name: str, version: int) -> DatasetInfo:
        """Forget a version.

        Raises:
            NotFoundError: it is not there.
            ConflictError: a job that has not ended reads it.
        """
        return self._ask(DatasetInfo, "DELETE", f"/datasets/{segment(name)}/{version}")

    # ---- what jobs leave ----------------------------------------------------------------------------------------

    def outputs(self, job_id: str, attempt: int | None = None, under: str = "") -> OutputList:
        """The files that an attempt (default: the last) left in its output folder.

        Args:
            under: one file of it, or one folder with all below; empty: everything.
        """
        params = given(attempt=attempt, under=under or None)
        return self._ask(OutputList, "GET", f"/jobs/{segment(job_id)}/output", params=params)

    def get_output(self, job_id: str, into: Path, attempt: int | None = None, only: str = "") -> list[Path]:
        """Fetch them all into a folder, which is made; returns where they are now, as ``fetch`` does."""
        return self.fetch(self.outputs(job_id, attempt, only), into, only)

    def fetch(self, listed: OutputList, into: Path, only: str = "") -> list[Path]:
        """Fetch listed files into a folder, which is made; returns where they are now.

        What an earlier call fetched before it was cut off is not fetched again, not even the part of a file.

        Args:
            listed: what lies under ``only`` alone, so that what is left out of it can be said.
            only: one file, or one folder, of the output; empty: all of it.

        Raises:
            NotFoundError: there is no such file.
            ConflictError: one of them cannot be read; the others are there.
            UnavailableError: they have no room, something cannot be written, or the connection broke.
        """
        job_id = listed.job
        wanted = only.rstrip("/")
        files = [file for file in listed.files if not wanted or is_under(file.path, wanted)]
        if wanted and not files and listed.no_files:
            raise NotFoundError(
                f"no file {only!r} in the output of job {job_id}: a link or pipe lies there; files alone are fetched",
                "have the job copy or pack what it leads to",
            )
        if wanted and not files:
            near = get_close_matches(wanted, [file.path for file in self.outputs(job_id, listed.attempt).files], n=1)
            hint = f"did you mean {near[0]}?" if near else f"list them with `pond output ls {job_id}`"
            raise NotFoundError(f"no file {only!r} in the output of job {job_id}", hint)
        _require_room(files, into)
        source = DownloadSource(f"/jobs/{segment(job_id)}/output", {"attempt": listed.attempt})
        return self._fetch_all(source, files, into)

    def _fetch_all(self, source: DownloadSource, files: Sequence[OutputFile], into: Path) -> list[Path]:
        """Fetch what is lacking: small files many at once, and those that are large, or here in part, one by one.

        Raises:
            ConflictError: one of them cannot be read; the others are fetched.
        """
        refused: list[ConflictError] = []

        def fetch(place: Path, file: OutputFile) -> None:
            try:
                self._fetch(source, place, file)
            except ConflictError as error:
                _part_path(place, file).unlink(missing_ok=True)
                refused.append(error)

        top = os.path.realpath(into)
        places = [_place_of(file, into, top) for file in files]
        lacking = [(place, file) for place, file in zip(places, files, strict=True) if not _is_fetched(place, file)]
        _remove_old_parts(lacking)
        small: list[tuple[Path, OutputFile]] = []
        for place, file in lacking:
            if file.size > LARGEST_BATCHED or _size_of(_part_path(place, file)):
                fetch(place, file)
            else:
                small.append((place, file))
        while small:
            contents = self._several(source, [file.path for _, file in small[:MOST_BATCHED]])
            for (place, file), content in zip(small, contents, strict=False):
                _lay(place, file, methodcaller("write_bytes", content))
            if not contents:  # there is no other, or it is gone or large by now
                fetch(*small[0])
            small = small[len(contents) or 1 :]
        if refused:
            raise refused[0]
        return places

    def _several(self, source: DownloadSource, paths: list[str]) -> list[bytes]:
        """The first of some small files, as many as the server gives at once."""
        if len(paths) == 1:
            return []
        sent = {"params": source.params, "json": {"paths": paths}, "timeout": SILENCE_S}
        return read_batch(self._connection.send("POST", source.path, **sent).content)

    def _fetch(self, source: DownloadSource, place: Path, file: OutputFile) -> None:
        def fill(part: Path) -> None:
            try:
                self._complete(part, source, file)
            except ConflictError:  # it has changed since it was listed, and the part is of another version
                part.unlink(missing_ok=True)
                self._complete(part, source, file)

        _lay(place, file, fill)

    def _complete(self, part: Path, source: DownloadSource, file: OutputFile) -> None:
        """Fetch what a part of a file lacks.

        Raises:
            ConflictError: the file is another by now.
        """
        with part.open("ab") as target:
            have = target.tell()
            if have == file.size > 0:
                return
            more = {"Range": f"bytes={have}-", "If-Match": f'"{file.version}"'} if have else None
            for piece in self._connection.read(f"{source.path}/{quote(file.path)}", source.params, SILENCE_S, more):
                target.write(piece)

    def metrics(self, job_id: str, *, attempt: int | None = None, task: int | None = None) -> MetricsInfo:
        """What an attempt's tasks reported of themselves."""
        params = given(attempt=attempt, task=task)
        return self._ask(MetricsInfo, "GET", f"/jobs/{segment(job_id)}/metrics", params=params)

    def result(self, job_id: str, task: int = 0) -> bytes:
        """What the function that a task ran returned, as it was written.

        Raises:
            NotFoundError: nothing was returned.
        """
        return b"".join(self._connection.read(f"/jobs/{segment(job_id)}/result", {"task": task}, SILENCE_S))


def _lay_link(link: LinkEntry, into: Path) -> None:
    """A link of a dataset, after its files, so that none of them is written through it."""
    place = into / link.path
    leads_out = not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(into))
    if leads_out or not is_inside(link.path) or not link_stays_inside(link.path, link.target):
        raise InvalidInputError(f"there is a link {link.path!r}, which leads out of {into}", "")
    with _writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.symlink_to(link.target)


def _place_of(file: OutputFile, into: Path, top: str) -> Path:
    """Where a file comes to lie.

    What a server says is not trusted with paths on this machine; nor are links that lie here already.

    Args:
        top: ``into`` without links.

    Raises:
        InvalidInputError: it would lie elsewhere.
    """
    place = into / file.path
    if not is_inside(file.path) or not is_under(os.path.realpath(place.parent), top.rstrip("/")):
        raise InvalidInputError(f"there is a file {file.path!r}, which leads out of {into}", "")
    return place


def _lay(place: Path, file: OutputFile, fill: Callable[[Path], None]) -> None:
    """Have a file at its place, at once as a whole.

    Args:
        fill: writes what its part lacks.
    """
    with _writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        part = _part_path(place, file)
        fill(part)
        os.utime(part, (file.modified_at, file.modified_at))
        part.replace(place)


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"{place} cannot be written ({error.strerror})", "name another folder") from error


def _require_room(files: list[OutputFile], into: Path) -> None:
    """Find out before the first file, not at the last, that the disk is too small. Holes take room here too.

    Raises:
        UnavailableError: what is still to be fetched is larger than what is free.
    """
    lacking = sum(file.size - _size_of(_part_path(into / file.path, file)) for file in files if file.size)
    lacking -= sum(file.size for file in files if _is_fetched(into / file.path, file))
    existing = next(folder for folder in (into.absolute(), *into.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if lacking > free:
        needs, has = quantities.size_text(lacking), quantities.size_text(free)
        cause = f"{needs} are to be fetched, and {has} are free in {existing}"
        raise UnavailableError(cause, "make room, fetch into another folder, or fewer files")


def _size_of(path: Path) -> int:
    """What a file has, in bytes; 0: there is none."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _part_path(place: Path, file: OutputFile) -> Path:
    """Where this version of a file grows until it is whole."""
    return place.with_name(f".{_stem_of(place)}.{digest_of(file.version.encode())[:_MARK_CHARS]}.part")


def _stem_of(place: Path) -> str:
    """The name of a file, cut where that of its part would be too long."""
    room = _LONGEST_NAME_BYTES - len("...part") - _MARK_CHARS
    return os.fsencode(place.name)[:room].decode(errors="ignore")


def _remove_old_parts(files: Iterable[tuple[Path, OutputFile]]) -> None:
    """Remove parts of other versions of files, looking once through each folder.

    A server that gives no versions has each file fetched from its beginning.
    """
    parts: dict[Path, dict[str, str]] = {}
    for place, file in files:
        parts.setdefault(place.parent, {})[_stem_of(place)] = _part_path(place, file).name if file.version else ""
    for folder, kept in parts.items():
        for other in folder.glob(f".*.{'?' * _MARK_CHARS}.part"):
            name = other.name[1 : -len("..part") - _MARK_CHARS]
            if name in kept and (other.name != kept[name] or other.is_symlink()):
                with _writing(other):
                    other.unlink()


def _is_fetched(place: Path, file: OutputFile) -> bool:
    """Whether a file is there as it was listed: its time is set when it is whole."""
    try:
        found = place.lstat()
    except OSError:  # also where a file of the user's lies where a folder is to be: writing there says so
        return False
    same_time = abs(found.st_mtime - file.modified_at) < _SAME_INSTANT_S
    return stat.S_ISREG(found.st_mode) and found.st_size == file.size and same_time


def _whole(path: Path) -> bytes:
    """A file that was small when it was listed."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BATCHED + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content) > LARGEST_BATCHED:
        raise InvalidInputError(f"{path} changed while it was sent", "try again, or name it in .pondignore")
    return content


def _unreadable(source: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"{source} cannot be read ({error.strerror})", "check its rights")
