"""One agent for each machine: two that shared out the same devices would each believe in books of its own.

The lock is a file that the kernel lets one process hold; it is free as soon as that process is gone, however it went.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import threading
from pathlib import Path

from millpond.model.errors import ConflictError


class AnotherAgentError(ConflictError):
    """Another server shares out the devices of this machine."""


class AgentLock:
    """Held while an engine looks after real devices.

    Args:
        path: the same for all agents of a machine.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(tempfile.gettempdir(), "millpond-devices.lock")
        self._file = -1
        self._guard = threading.Lock()

    def take(self, who: str) -> None:
        """Take it, and write down who has it; nothing happens if it is ours already. Any thread.

        Raises:
            AnotherAgentError: another agent has it.
            OSError: it cannot be made.
        """
        with self._guard:
            if self._file < 0:
                self._file = self._locked()
                with contextlib.suppress(OSError):  # another user's file can be locked, not written
                    os.ftruncate(self._file, 0)
                    os.pwrite(self._file, f"{who}\n".encode(), 0)
                    os.fchmod(self._file, 0o644 | stat.S_ISVTX)  # what tidies /tmp leaves it (XDG Base Directories)

    def _locked(self) -> int:
        # Every account may lay a link there, to a file that would be emptied and overwritten.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        # Opened without O_CREAT first: the kernel refuses to create over another user's file in /tmp.
        try:
            file = os.open(self._path, os.O_RDWR | flags)
        except FileNotFoundError:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        except PermissionError:
            file = os.open(self._path, os.O_RDONLY | flags)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 1000).decode(errors="replace").strip()
            os.close(file)
            raise AnotherAgentError(
                f"another server shares out the devices of this machine ({holder or 'it does not say who it is'})",
                "stop it, or submit to it; here, slices and swapping are refused until then",
            ) from None
        return file

    def holder(self) -> str:
        """The holder, by its own account; empty when it is free."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.read(file, 1000).decode(errors="replace").strip() or "an unknown holder"
        finally:
            os.close(file)
        return ""

    def release(self) -> None:
        """Let another have it; nothing happens when it is not ours."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
