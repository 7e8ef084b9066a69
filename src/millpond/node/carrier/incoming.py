"""Carry files into a pod: fetch contents from the server, compare each with its hash, lay them out as on a machine."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millpond.model.folders import LARGEST_BATCH, LARGEST_BATCHED, MOST_BATCHED, digest_of, unpacked
from millpond.node.carrier.connection import Connection, NotCarriedError, ServerPatience, is_passing
from millpond.node.carrier.order import ALIVE, DATA, OUTPUT, PAYLOAD, WORK, CarryOrder
from millpond.node.task.layout import laid_out, mode_of, open_new, protect

_PIECE = 2**20
_TRIES = 3
_NO_MORE = 416


class BringingIn:
    """Lays out what an order names.

    Args:
        path: of the task's files in the API.
    """

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    def lay_out(self, snapshot: str, folder: Path, seal: Callable[[Path], None]) -> None:
        """A snapshot in a new folder.

        Args:
            seal: called with the folder when it is whole.

        Raises:
            NotCarriedError: the server does not give it.
            OSError: the disk is full.
        """
        folder.mkdir(parents=True)
        small: dict[str, list[tuple[Path, int]]] = {}
        sizes: dict[str, int] = {}
        large: list[tuple[Mapping[str, Any], Path]] = []
        for entry, place in laid_out(json.loads(self._whole(snapshot)), folder):
            if entry["size"] > LARGEST_BATCHED:
                large.append((entry, place))
            else:
                small.setdefault(entry["digest"], []).append((place, mode_of(entry)))
                sizes[entry["digest"]] = entry["size"]
        for digests in _batches(sizes):
            for digest, content in zip(digests, self._several(digests)):  # noqa: B905 - of Python 3.10
                for place, mode in small[digest]:
                    with open_new(place, mode) as file:
                        file.write(content)
        for entry, place in large:
            self.fetch(entry["digest"], place, mode_of(entry))
        seal(folder)

    def fetch(self, digest: str, place: Path, mode: int) -> None:
        """One content; what was cut off goes on where it was.

        Raises:
            NotCarriedError: the server does not give it, or gives another.
            OSError: the disk is full.
        """
        patience = ServerPatience()
        for _ in range(_TRIES):
            seen = hashlib.sha256()
            with open_new(place, mode) as file:
                while True:
                    had = file.tell()
                    try:
                        self._rest(digest, file, seen)
                        break
                    except NotCarriedError as refusal:
                        if refusal.status == _NO_MORE:
                            break
                        if not is_passing(refusal):
                            raise
                        patience.unable(refusal)
                    except (_CutError, http.client.HTTPException) as error:
                        self._connection.close()
                        if file.tell() > had:
                            patience.reset()
                        patience.away(error)
            if seen.hexdigest() == digest:
                return
        raise NotCarriedError(0, f"what the server sends is not the content {digest[:12]}")

    def _rest(self, digest: str, file: Any, seen: Any) -> None:
        """Fetch what a file lacks."""
        have = file.tell()
        headers = {"Range": f"bytes={have}-"} if have else {}
        try:
            answer = self._connection.begin("GET", f"{self._path}/contents/{digest}", None, 0, headers)
        except OSError as error:
            raise _CutError(str(error)) from error
        left = int(answer.headers["Content-Length"])
        while left:
            try:
                piece = answer.read(min(_PIECE, left))
            except OSError as error:
                raise _CutError(str(error)) from error
            if not piece:
                raise _CutError("the connection broke")
            left -= len(piece)
            seen.update(piece)
            file.write(piece)
        answer.read()

    def _whole(self, digest: str) -> bytes:
        content = self._connection.ask_bytes("GET", f"{self._path}/contents/{digest}", None, {})
        return _checked(digest, content)

    def _several(self, digests: list[str]) -> list[bytes]:
        body = json.dumps({"digests": digests}).encode()
        headers = {"Content-Type": "application/json"}
        found = unpacked(self._connection.ask_bytes("POST", f"{self._path}/contents", body, headers))
        if len(found) != len(digests):
            raise NotCarriedError(0, "the server sends other contents than it was asked for")
        return [_checked(digest, content) for digest, content in zip(digests, found)]  # noqa: B905


class _CutError(Exception):
    """The connection broke: unlike other errors of the system, this is none of the disk's."""


def bring_in(order: CarryOrder, connection: Connection, path: str, folder: Path) -> None:
    """Everything that is to be in a pod before its program starts.

    The program may run as any account: it is alone in its pod, and its files are everybody's there.

    Raises:
        NotCarriedError: the server does not give it.
        OSError: the disk is full.
    """
    os.umask(0)
    os.mkfifo(folder / ALIVE, 0o666)
    (folder / OUTPUT).mkdir(mode=0o777)
    incoming = BringingIn(connection, path)
    if order.snapshot:
        incoming.lay_out(order.snapshot, folder / WORK, _open_up)
    if order.payload:
        incoming.fetch(order.payload, folder / PAYLOAD, 0o644)
    for name, snapshot in sorted(order.data.items()):
        incoming.lay_out(snapshot, folder / DATA / name, protect)


def _open_up(folder: Path) -> None:
    """Everybody may change what is in a folder, as the account that sent it may on one machine."""
    folder.chmod(0o777)
    for above, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(above, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o777 if name in folders else 0o666))


def _batches(sizes: Mapping[str, int]) -> list[list[str]]:
    """Contents in as few requests as may be, the answer of each within the bounds of a batch."""
    found: list[list[str]] = []
    weight = LARGEST_BATCH
    for digest, size in sizes.items():
        weight += size + 8
        if weight > LARGEST_BATCH or len(found[-1]) == MOST_BATCHED:
            found.append([])
            weight = size + 8
        found[-1].append(digest)
    return found


def _checked(digest: str, content: bytes) -> bytes:
    if digest_of(content) != digest:
        raise NotCarriedError(0, f"what the server sends is not the content {digest[:12]}")
    return content
