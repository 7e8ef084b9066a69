"""The directory in which a server remembers everything: made for its owner alone, used by one server at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from millpond.model.errors import UnavailableError
from millpond.node.files import write_json
from millpond.specs.api import SERVER_FILE, ServerFile

_LOCK_FILE: Final = "lock"


class StateDir:
    """An open state directory; leaving the ``with`` lets the next server have it.

    Raises:
        UnavailableError: it cannot be made or written, or another server uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise UnavailableError(
                f"another server (process {holder or 'unknown'}) uses the state directory {self.path}",
                "stop it with `pond down`, or choose another with --state-dir",
            ) from error
        except OSError as error:
            os.close(self._lock)
            raise self._unusable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._lock)

    def announce(self, left: ServerFile) -> None:
        """Leave the address for clients to find."""
        write_json(self.path / SERVER_FILE, left.model_dump())

    def withdraw(self) -> None:
        """Take the address away."""
        (self.path / SERVER_FILE).unlink(missing_ok=True)

    def _unusable(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"the state directory {self.path} cannot be used ({error.strerror})", "choose another with --state-dir"
        )
