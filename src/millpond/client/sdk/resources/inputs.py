"""A stream that becomes the standard input of a job's task, through lost connections and restarts of the server.

Each piece names its place, and the server says up to where it has taken the input: nothing is lost, nothing comes
twice. While the task does not read, the server takes nothing, and the stream waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.client.sdk.transport.reconnecting import Patience
from millpond.model.errors import UnavailableError
from millpond.specs.api.jobs.requests import InputInfo

PIECE_BYTES: Final = 2**19
HEARD_EVERY_S: Final = 60.0
"""A sender says this often that it is there; the server takes one that is silent for ten minutes for gone."""
_ANSWER_WITHIN_S: Final = 30.0
"""The server waits for room for a while before it answers."""


class Inputs(Requests):
    """What a client can do about standard input."""

    def send(self, job_id: str, attempt: int, offset: int, data: bytes, *, end: bool = False) -> InputInfo:
        """Send one piece for a run of a job that was submitted with ``stdin: true``; less of it may be taken.

        Args:
            offset: where it stands in all of the input.
            end: nothing comes after it.

        Raises:
            ConflictError: the job reads no standard input, or has not started.
        """
        params = {"attempt": attempt, "offset": offset, "end": end}
        path = f"/jobs/{segment(job_id)}/stdin"
        return self._ask(InputInfo, "PUT", path, params=params, content=data, timeout=_ANSWER_WITHIN_S)

    def feed(self, job_id: str, attempt: int, read: Callable[[int], bytes | None]) -> None:
        """Send all that ``read`` gives, up to its end (no bytes); returns early when the task takes nothing more.

        Args:
            read: gives at most so many bytes, and None after ``HEARD_EVERY_S`` without any: the server learns that
                more will come.

        Raises:
            UnavailableError: the server stayed away for too long.
            ConflictError: it has ended the input meanwhile.
        """
        patience = Patience(self._connection)
        offset, data, is_open, end = 0, b"", True, False
        while is_open:
            if not data and not end:
                found = read(PIECE_BYTES)
                data, end = found or b"", found == b""
            try:
                info = self.send(job_id, attempt, offset, data, end=end)
            except UnavailableError as error:
                patience.lost(error)
                continue
            patience.found()
            data = data[info.received - offset :]
            offset, is_open = info.received, info.open
