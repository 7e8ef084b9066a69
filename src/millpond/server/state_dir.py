"""The directory in which a server remembers everything: made for its owner alone, used by one server at a time.

Of two servers on one database the one that leads uses it. One that has lost the lead and has not let go of the
directory (it stands still, it is slow to end) is ended by force: that is safe at any moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import stat
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from millpond.model.errors import UnavailableError
from millpond.node.host import procfs
from millpond.node.host.files import read_json, try_lock, write_json
from millpond.specs.api.server import LOCK_FILE, SERVER_FILE, STANDBY_FILE, ServerFile

log = logging.getLogger(__name__)

DATABASE_FILE: Final = "millpond.db"
_OF_OTHERS: Final = 0o077
IDENTITY_FILE: Final = "identity.json"
"""Whose state this is; see ``server.startup.identity``."""
_ENDS_WITHIN_S: Final = 2.0
"""A server that has lost the lead gets so long to end by itself."""
_LETS_GO_WITHIN_S: Final = 10.0
"""What a killed server was just starting, and is not another program yet, has its files open for so long at most."""
_LOOKS_EVERY_S: Final = 0.02
_making = threading.Lock()


def make_once(path: Path, content: bytes) -> None:
    """Make a file of the server's own, if there is none: whole and on disk, or not at all if the server is killed.

    Raises:
        OSError: it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.new")
    with _making:
        if path.exists():
            return  # another thread has made it
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
        finally:
            fresh.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


class StateDir:
    """An open state directory; leaving the ``with`` lets the next server have it.

    Args:
        takes_over: this server leads by now, and the one that has the directory still does so no more.

    Raises:
        UnavailableError: it cannot be made or written, other accounts may use it, or another server does.
    """

    def __init__(self, path: Path, takes_over: bool = False) -> None:
        self.path = path.expanduser().absolute()
        self._left: dict[str, Any] | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._close_to_others()
            self._lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            if takes_over:
                self._depose()
            self._outwait_the_dead()
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = self._holder()
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

    def _close_to_others(self) -> None:
        """Take the rights of other accounts away, which a folder that was made by other means gives them.

        Raises:
            UnavailableError: it is a folder that others may use for something else, or is not the server's.
        """
        found = self.path.stat()
        if found.st_uid != os.geteuid():
            raise UnavailableError(
                f"the state directory {self.path} belongs to user {found.st_uid}, and this server runs as user "
                f"{os.geteuid()}",
                "run it as that user, or choose another with --state-dir",
            )
        if not found.st_mode & _OF_OTHERS:
            return
        if (self.path / LOCK_FILE).exists() or not any(self.path.iterdir()):
            self.path.chmod(stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)
            log.warning("the state directory %s was open to other accounts; now it is not", self.path)
            return
        raise UnavailableError(
            f"the state directory {self.path} has mode {stat.S_IMODE(found.st_mode):04o}: other accounts could "
            "read what the server keeps in it",
            f"chmod 700 {self.path} if it is for this server alone, or choose another with --state-dir",
        )

    def announce(self, left: ServerFile) -> None:
        """Leave the address for clients to find; this server stands by no longer, if it did."""
        self._left = asdict(left)
        write_json(self.path / SERVER_FILE, self._left)
        standby = self.path / STANDBY_FILE
        if (read_json(standby) or {}).get("pid") == left.pid:
            standby.unlink(missing_ok=True)

    def withdraw(self) -> None:
        """Take the address away, unless it is that of a server that has taken over."""
        path = self.path / SERVER_FILE
        if self._left is not None and read_json(path) == self._left:
            path.unlink(missing_ok=True)

    def _depose(self) -> None:
        """Wait a moment for the lock, then end the process that has it."""
        began = time.monotonic()
        while not try_lock(self._lock):
            waited_s = time.monotonic() - began
            if waited_s > 2 * _ENDS_WITHIN_S:
                return  # not even by force: the caller says who has it
            if waited_s > _ENDS_WITHIN_S and (holder := self._holder()).isdecimal():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(holder), signal.SIGKILL)
            time.sleep(_LOOKS_EVERY_S)

    def _outwait_the_dead(self) -> None:
        """Wait for a lock that a killed server's last thread, or a child between fork and exec, has for an instant."""
        give_up_at = time.monotonic() + _LETS_GO_WITHIN_S
        while not try_lock(self._lock) and time.monotonic() < give_up_at:
            holder = self._holder()
            if not (holder.isdecimal() and procfs.is_ending(int(holder))):
                return
            time.sleep(_LOOKS_EVERY_S)

    def _holder(self) -> str:
        """Process id of the server that has the lock; empty when that is not known."""
        return os.pread(self._lock, 20, 0).decode(errors="replace").strip()

    def _unusable(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"the state directory {self.path} cannot be used ({error.strerror})", "choose another with --state-dir"
        )
