"""One large content on its way to a server: what was cut off goes on from the bytes that the server has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx2

from millpond.client.sdk.transport.connection import ServerConnection
from millpond.client.sdk.transport.failures import TooSlowError
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.specs.api.jobs.files import BlobInfo, BlobProgress
from millpond.specs.quantities import size_text

WORTH_ASKING: Final = 8 * 2**20
"""Bytes; a smaller content is sent from its beginning, without asking how much of it is there."""
_SILENCE_S: Final = 60.0
_REREAD_PER_S: Final = 50 * 2**20
"""Bytes that a server reads again of what it has, at the least, before it takes the rest."""
_LOOKS_EVERY_S: Final = 1.0
_TRIES: Final = 3
_PIECE: Final = 2**20

Notify = Callable[[str], None]


class Upload:
    """Sends one content.

    Args:
        digest: what the file was when it was listed, and ``size`` its bytes then.
        notify: called with each line of progress.
        sleep: how to wait for another upload of the same.
    """

    def __init__(
        self,
        connection: ServerConnection,
        source: Path,
        digest: str,
        size: int,
        notify: Notify,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask = connection.ask
        self._source = source
        self._path = f"/blobs/{digest}"
        self._size = size
        self._notify = notify
        self._sleep = sleep

    def send(self) -> None:
        """Have the server keep it.

        Raises:
            InvalidInputError: the file changed, or is too large.
            ConflictError: others keep sending the same.
            UnavailableError: it cannot be read, the server has no room, or the connection broke.
        """
        try:
            for left in reversed(range(_TRIES)):
                first = self._first()
                if first == self._size:
                    return
                try:
                    self._send_from(first)
                    return
                except TooSlowError:  # what has arrived is kept
                    if not left:
                        raise
                except (ConflictError, InvalidInputError):  # its part was another's, or not what it should be
                    if not left or not first:
                        raise
        except InvalidInputError as error:
            raise InvalidInputError(f"{self._source}: {error.cause}", error.remedy) from error
        except OSError as error:
            raise UnavailableError(f"{self._source} cannot be read ({error.strerror})", "check its rights") from error
        except UnavailableError as error:
            if self._size < WORTH_ASKING or not isinstance(error.__cause__, httpx2.TransportError):
                raise
            raise UnavailableError(error.cause, "the same command goes on where this was, within a day") from error
        except KeyboardInterrupt:
            if self._size >= WORTH_ASKING:
                self._notify("what was sent is kept for a day: the same command goes on with it")
            raise

    def _first(self) -> int:
        """From which byte on the server lacks it; waits while another request sends it."""
        if self._size < WORTH_ASKING:
            return 0
        is_waiting = False
        while (found := self._ask(BlobProgress, "GET", self._path)).busy:
            if not is_waiting:
                self._notify(f"{self._source.name} is being sent by another command; waiting for that")
                is_waiting = True
            self._sleep(_LOOKS_EVERY_S)
        if found.whole:
            return self._size
        first = min(found.received, self._size - 1)
        if first:
            self._notify(f"going on with {self._source.name} at {size_text(first)} of {size_text(self._size)}")
        return first

    def _send_from(self, first: int) -> None:
        headers = {"Content-Range": f"bytes {first}-{self._size - 1}/{self._size}"}
        timeout = _SILENCE_S + first / _REREAD_PER_S
        self._ask(BlobInfo, "PUT", self._path, content=self._pieces(first), headers=headers, timeout=timeout)

    def _pieces(self, first: int) -> Iterator[bytes]:
        left = self._size - first
        with self._source.open("rb") as file:
            file.seek(first)
            while left and (piece := file.read(min(_PIECE, left))):
                left -= len(piece)
                yield piece
        if left:
            raise InvalidInputError("it changed while it was sent", "try again, or name it in .pondignore")
