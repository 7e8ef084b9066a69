"""Carry files out of a pod: send what the server lacks of an output folder, as folders are sent from anywhere."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from millpond.model.folders import LARGEST_BATCHED, batches, digest_of, why_too_deep
from millpond.node.carrier.connection import Connection, NotCarriedError, ServerPatience, is_passing
from millpond.node.carrier.order import METRICS, OUTPUT, RESULT
from millpond.node.host.folder_trees import entries_below
from millpond.node.task.layout import open_regular

MOST_FILES = 100_000
MOST_ASKED = 10_000
_LARGEST_METRICS = 2**20
_PIECE = 2**20
_TRIES = 5
_CONFLICT = 409
_NAMED = 3


class Outgoing:
    """Sends what a task leaves.

    Args:
        path: of the task's files in the API.
        folder: where they lie.

    Attributes:
        lost: what could not be sent the last time, and why.
    """

    def __init__(self, connection: Connection, path: str, folder: Path) -> None:
        self._connection = connection
        self._path = path
        self._folder = folder
        self._hashed: dict[str, tuple[tuple[int, int, int], str]] = {}
        """By path: the digest of a file, with the inode, size and time of change for which it holds."""
        self._sent: object = None
        self._metrics = 0
        self.lost: list[str] = []

    def send(self) -> None:
        """Have the server keep what is there now.

        Raises:
            NotCarriedError: it does not.
        """
        self.send_metrics()
        was_lost, self.lost = self.lost, []
        output = self._folder / OUTPUT
        found = dict(self._listed(output))
        result = self._result()
        seen = (found, result)
        if seen == self._sent and not self.lost and not was_lost:
            return
        here = [(digest, size, path, output) for path, (digest, size, _) in found.items()]
        if result is not None:
            here.append((*result, RESULT, self._folder))
        self._send_contents(here)
        left = {name.partition(": ")[0] for name in self.lost}
        files = [
            {"path": path, "digest": digest, "size": size, "executable": executable}
            for path, (digest, size, executable) in sorted(found.items())
            if path not in left
        ]
        text = json.dumps({"files": files, "links": []}, separators=(",", ":"), sort_keys=True).encode()
        snapshot = digest_of(text)
        self._connection.ask_bytes("PUT", f"/blobs/{snapshot}", text, {})
        returned = "" if result is None or RESULT in left else result[0]
        self._connection.ask("POST", f"{self._path}/output", {"snapshot": snapshot, "result": returned})
        self._sent = seen

    def send_metrics(self) -> None:
        """Append what the task has reported of itself since.

        Raises:
            NotCarriedError: the server does not take it.
        """
        file = open_regular(self._folder, METRICS)
        if file is None:
            return
        with file:
            while os.fstat(file.fileno()).st_size > self._metrics:
                file.seek(self._metrics)
                piece = file.read(_LARGEST_METRICS)
                where = f"{self._path}/metrics?first={self._metrics}"
                answer = self._connection.ask_bytes("POST", where, piece, {"Content-Type": "application/octet-stream"})
                self._metrics = int(json.loads(answer)["received"])

    # ---- what there is --------------------------------------------------------------------------------------------

    def _listed(self, folder: Path) -> Iterator[tuple[str, tuple[str, int, bool]]]:
        """The regular files below a folder, without following a link, each with its digest and size."""
        count = 0
        for path, status, name, _ in entries_below(folder, self._unreadable):
            if not stat.S_ISREG(status.st_mode) or not (path or name).isprintable():
                continue
            if path is None or why_too_deep(path):
                self.lost.append(f"{name} lies too deep" if path is None else why_too_deep(path))
                continue
            if count == MOST_FILES:
                self.lost.append(f"{path}: there are more than {MOST_FILES} files")
                return
            digest = self._digest(folder, path, status)
            if digest is not None:
                count += 1
                yield path, (digest, status.st_size, bool(status.st_mode & 0o100))

    def _digest(self, folder: Path, path: str, status: os.stat_result) -> str | None:
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._hashed.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        file = open_regular(folder, path)
        if file is None:
            self.lost.append(f"{path}: it cannot be read")
            return None
        seen, size = hashlib.sha256(), 0
        with file:
            for piece in _pieces(file, status.st_size):
                seen.update(piece)
                size += len(piece)
        if size != status.st_size:
            self.lost.append(f"{path}: it changed while it was read")
            return None
        self._hashed[path] = (stamp, seen.hexdigest())
        return seen.hexdigest()

    def _unreadable(self, path: str, error: OSError) -> None:
        if path or not isinstance(error, FileNotFoundError):  # a task without an output folder leaves nothing
            self.lost.append(f"{path or OUTPUT}: {error.strerror}")

    def _result(self) -> tuple[str, int] | None:
        """Digest and size of what the task's function returned."""
        file = open_regular(self._folder, RESULT)
        if file is None:
            return None
        with file:
            content = file.read()
        return digest_of(content), len(content)

    # ---- sending --------------------------------------------------------------------------------------------------

    def _send_contents(self, here: list[tuple[str, int, str, Path]]) -> None:
        """Those that the server lacks; what changes meanwhile is lost until the next time."""
        by_digest = {digest: (size, path, folder) for digest, size, path, folder in here}
        missing: list[str] = []
        names = list(by_digest)
        for begin in range(0, len(names), MOST_ASKED):
            asked = {"digests": names[begin : begin + MOST_ASKED]}
            missing += self._connection.ask("POST", "/blobs/missing", asked)["digests"]
        small = [digest for digest in missing if by_digest[digest][0] <= LARGEST_BATCHED]
        kept: list[str] = []
        for batch in batches(self._small(*by_digest[digest]) for digest in small):
            kept += json.loads(self._connection.ask_bytes("POST", "/blobs", batch, {}))["digests"]
        for sent, digest in zip(small, kept):  # noqa: B905 - of Python 3.10
            if sent != digest:
                self.lost.append(f"{by_digest[sent][1]}: it changed while it was sent")
        for digest in missing:
            size, path, folder = by_digest[digest]
            if size > LARGEST_BATCHED:
                self._send_large(digest, size, path, folder)

    def _small(self, size: int, path: str, folder: Path) -> bytes:
        file = open_regular(folder, path)
        if file is None:
            return b""
        with file:
            return file.read(size)

    def _send_large(self, digest: str, size: int, path: str, folder: Path) -> None:
        """One content, from where the server has it: what was cut off goes on."""
        patience, tries = ServerPatience(), _TRIES
        while True:
            had = self._connection.ask("GET", f"/blobs/{digest}")
            if had["whole"]:
                return
            first = 0 if had["busy"] else min(had["received"], size - 1)
            file = open_regular(folder, path)
            if file is None:
                self.lost.append(f"{path}: it is gone")
                return
            headers = {"Content-Range": f"bytes {first}-{size - 1}/{size}"}
            try:
                with file:
                    file.seek(first)
                    pieces = _pieces(file, size - first)
                    self._connection.begin("PUT", f"/blobs/{digest}", pieces, size - first, headers).read()
                return
            except NotCarriedError as refusal:
                if is_passing(refusal):
                    patience.unable(refusal)
                    continue
                tries -= 1
                if not tries or (refusal.status != _CONFLICT and not first):
                    self.lost.append(f"{path}: {refusal}")
                    return
                patience.unable(refusal)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                patience.away(error)


def lost_text(lost: list[str]) -> str:
    """What could not be carried, in a line."""
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    return "; ".join(lost[:_NAMED]) + more


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """No more of a file than it had; fewer where it was cut."""
    left = size
    while left:
        piece = file.read(min(_PIECE, left))
        if not piece:
            return
        left -= len(piece)
        yield piece
