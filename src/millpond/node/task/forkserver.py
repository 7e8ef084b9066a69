"""The forkserver: one small process that has the supervisors' code loaded and forks each in a few milliseconds.

Starting an interpreter for each task would cost some 40 ms of CPU. The forkserver is the server's child, supervisors
are the forkserver's. When the server ends in whatever way, the forkserver ends with the connection; its children live
on.

Over a socket it receives the path of a task's record and three open files, which become the supervisor's standard
input, output and error: the start plan, the end of a pipe that is closed when the start is settled, the log of
supervisors. It answers with the supervisor's process id and an open pidfd. Standard library only, one thread.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback

from millpond.node.host import procfs
from millpond.node.host.libc import libc
from millpond.node.task import supervisor

PATH_BYTES = 4_096
_FILES = 3
SUPERVISOR = "pond-supervisor"
"""What the kernel calls such a process."""
_PR_SET_NAME = 15  # linux/prctl.h


def main(argv: list[str]) -> int:
    """Fork supervisors as asked over the socket whose descriptor is the first argument, until its other end closes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.BLOCKED)
    requests = socket.socket(fileno=int(argv[1]))
    wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, _note)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    procfs.boot_id()  # read once for all children
    gc.freeze()  # what is loaded now is shared with all children
    poll = select.poll()
    for file in (requests.fileno(), wakes):
        poll.register(file, select.POLLIN)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # the server was killed; what was forked goes on
        while True:
            ready = [file for file, _ in poll.poll()]
            if wakes in ready:
                os.read(wakes, PATH_BYTES)
                _reap()
            if requests.fileno() in ready:
                path, files, _, _ = socket.recv_fds(requests, PATH_BYTES, _FILES)
                if not path:
                    break
                _spawn(requests, path.decode(errors="surrogateescape"), files)
    return 0


def _spawn(requests: socket.socket, path: str, files: list[int]) -> None:
    """Fork one supervisor and answer with its process; an error is answered with its number."""
    pid = 0
    try:
        pid = os.fork()
        if pid == 0:
            _live(path, files)
        handle = os.pidfd_open(pid)  # not reaped yet, so the number is still its own
    except OSError as error:
        if pid:  # refused, so nothing may run
            os.kill(pid, signal.SIGKILL)
        requests.send(f"-{error.errno or 1}".encode())
    else:
        requests.sendmsg([str(pid).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
        os.close(handle)
    finally:
        for file in files:
            os.close(file)


def _live(path: str, files: list[int]) -> None:
    """The child: from here on a supervisor and nothing else."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.BLOCKED)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        libc.prctl(_PR_SET_NAME, SUPERVISOR.encode(), 0, 0, 0)
        for number, file in enumerate(files):
            os.dup2(file, number)
        code = supervisor.main([supervisor.__name__, path])
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _note(_number: int, _frame: object) -> None:
    """A child ended; the loop is woken by the wakeup descriptor and collects it."""


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv))
