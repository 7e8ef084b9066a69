"""The server's client of the forkserver (``node.task.forkserver``): requests supervisors, and replaces a forkserver
that was killed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.node.host import cgroups, open_files
from millpond.node.host.files import write_all
from millpond.node.task import forkserver
from millpond.node.task.start_plan import TaskStartPlan

ANSWER_WITHIN_S: Final = 10.0
_SUPERVISORS_LOG: Final = "supervisors.log"


@dataclass(frozen=True, slots=True)
class Spawned:
    """A supervisor on its way; both file descriptors are the caller's to close.

    Attributes:
        pid: its process.
        handle: becomes readable when it ends (a pidfd); the forkserver, its parent, collects it.
        settled: reaches its end once the task's record says how the start went.
    """

    pid: int
    handle: int
    settled: int


class ForkserverClient:
    """One connection to one forkserver at a time.

    Args:
        group: the control group where supervisors live; None: the server's. With that of the tasks none is left over in
            the server's when the server ends, which systemd would report at each start.
    """

    def __init__(self, group: Path | None = None) -> None:
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._open()

    def spawn(self, state_dir: Path, record: Path, plan: TaskStartPlan) -> Spawned:
        """Start a task's supervisor, which starts the task. Returns in a few milliseconds.

        Raises:
            OSError: the machine lacks room for it: processes, files, disk.
        """
        with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
            settled, reporting = os.pipe()
            always.callback(os.close, reporting)
            on_failure.callback(os.close, settled)
            encoded = os.memfd_create("plan")  # has the job's variables, which no other account may read
            always.callback(os.close, encoded)
            write_all(encoded, plan.encode())
            os.lseek(encoded, 0, os.SEEK_SET)
            log = os.open(state_dir / _SUPERVISORS_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            always.callback(os.close, log)
            spare = always.enter_context(contextlib.ExitStack())
            spare.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            pid, handle = self._fork(record, (encoded, reporting, log), spare)
            on_failure.pop_all()
            return Spawned(pid, handle, settled)

    def _fork(self, record: Path, files: Sequence[int], spare: contextlib.ExitStack) -> tuple[int, int]:
        """Fork a supervisor with these standard files; returns its process id and a pidfd.

        Args:
            spare: holds the room for the latter.
        """
        try:
            return self._ask(record, files, spare)
        except (ConnectionError, TimeoutError):
            # It was killed or halted. What it forked before that holds the task's lock: nothing starts twice.
            if self._process is not None:
                self._process.kill()
            self.close()
            self._open()
            return self._ask(record, files, spare)

    def close(self) -> None:
        """End it; supervisors live on."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
        self._requests = self._process = None

    def _open(self) -> None:
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            # -P, -s: neither the present directory nor the user's packages have a say in what it runs.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", forkserver.__name__, str(its.fileno())],
                pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, open_files.usual())
        if self._group is not None:
            with contextlib.suppress(OSError):  # it then stays with us, where it works as well
                cgroups.move(self._process.pid, self._group)
        own.settimeout(ANSWER_WITHIN_S)
        self._requests = own

    def _ask(self, record: Path, files: Sequence[int], spare: contextlib.ExitStack) -> tuple[int, int]:
        if self._requests is None:
            raise ConnectionError("the forkserver is closed")
        socket.send_fds(self._requests, [os.fsencode(record)], files)
        spare.close()
        answer, handles, _, _ = socket.recv_fds(self._requests, forkserver.PATH_BYTES, 1)
        if not answer:
            raise ConnectionError("the forkserver ended")
        number = int(answer)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        if not handles:  # others took the room: what cannot be watched must not go on
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(number, signal.SIGKILL)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return number, handles[0]
