"""The task socket: the socket that a task's program is reached by, and the small process that relays bytes.

Every account of the machine can connect to a program that listens on a port of the machine. With a task socket it
either listens on its port in a private network (``node.sandbox.namespaces``), or on a Unix socket in a folder of
its own. Neither asks the program to check anything. The task socket lies where only the server can reach it.

The process is a child of the supervisor and lives as long as the command, and keeps its private network, if it has one.
The client names a port of that network first (``port_asked``). It gets ``OPEN``, one byte, once a program
has taken the connection, so that the socket is not taken for a program that listens; else the connection ends. Standard
library only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import resource
import signal
import socket
import stat
import struct
import threading
import time
import traceback
from pathlib import Path

from millpond.node.host.files import short_name
from millpond.node.host.libc import PR_SET_PDEATHSIG, libc
from millpond.node.sandbox.namespaces import share_network
from millpond.node.task.identity import Identity
from millpond.node.task.start_plan import TaskSocketPlan

OPEN = b"\x01"
TASK_SOCKETS = "sockets"
"""Folder of the state directory with all task sockets."""
PROGRAM_SOCKET = "program.sock"
LONGEST_NAME = 107
"""Bytes of the path of a Unix socket (unix(7)), without the NUL at its end."""

_ADDRESS = "127.0.0.1"
_BLOCK = 65_536
_ANSWER_WITHIN_S = 5.0
_BACKLOG = 128
_PORT = struct.Struct("!H")
_TIMEVAL = struct.Struct("@ll")
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
_ROOM_WITHIN_S = 0.1


def task_socket_name(job: str, attempt: int, task: int) -> str:
    """The name of the socket of a task: short, as paths of sockets must be."""
    return hashlib.sha256(f"{job}\0{attempt}\0{task}".encode()).hexdigest()[:16]


def task_socket_path(state_dir: Path, name: str) -> Path:
    """Where the server connects to a task."""
    return state_dir / TASK_SOCKETS / f"{name}.sock"


def program_folder(state_dir: Path, name: str) -> Path:
    """The folder in which a task that listens on a Unix socket makes it."""
    return state_dir / TASK_SOCKETS / name


def port_asked(port: int) -> bytes:
    """What a client sends first: which port it wants; 0 is where the program is to serve."""
    return _PORT.pack(port)


def start_task_socket(plan: TaskSocketPlan, identity: Identity | None) -> int:
    """Start the process of a task socket. Returns its id as soon as it takes connections and has its network, if any.

    Args:
        identity: whom the task runs as; None: as we do.

    Raises:
        OSError: no socket or no network can be made.
    """
    path = Path(plan.path)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    ready, reporting = os.pipe()
    try:
        with short_name(path) as name:
            listener.bind(name)
        listener.listen(_BACKLOG)
        pid = os.fork()
        if pid == 0:
            _keep(listener, plan, identity, reporting)
        os.close(reporting)
        reporting = -1
        trouble = os.read(ready, _BLOCK).decode()
    finally:
        listener.close()
        os.close(ready)
        if reporting >= 0:
            os.close(reporting)
    if trouble:
        number, _, text = trouble.partition(" ")
        raise OSError(int(number), text)
    return pid


def _keep(listener: socket.socket, plan: TaskSocketPlan, identity: Identity | None, reporting: int) -> None:
    """The child: never returns."""
    try:
        _let_go_of_all_but(listener.fileno(), reporting)
        try:
            if plan.network is not None:
                share_network(Path(plan.network))
            behind = -1
            if plan.program is not None:
                # While we may: the state directory, through which the way leads, is closed to the task's account.
                behind = os.open(Path(plan.program).parent, os.O_PATH | os.O_DIRECTORY)
            if identity is not None:  # it connects with the task's own rights, wherever a task has it connect to
                os.setgroups(identity.groups)
                os.setgid(identity.gid)
                os.setuid(identity.uid)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: another account would undo it
        except OSError as error:
            os.write(reporting, f"{error.errno or 0} {error.strerror or error}".encode())
            os._exit(1)
        os.close(reporting)
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # two for each connection
        while True:
            _accept(listener, plan, behind)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)


def _let_go_of_all_but(*kept: int) -> None:
    """Close what the supervisor has open: others wait for the end of some of it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    last = 2
    for number in sorted(kept):
        os.closerange(last + 1, number)
        last = number
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))


def _accept(listener: socket.socket, plan: TaskSocketPlan, behind: int) -> None:
    """Accept one client; one for which there is no file or no thread is left waiting, or refused."""
    try:
        client, _ = listener.accept()
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        time.sleep(_ROOM_WITHIN_S)  # a client that waits in the backlog would be announced at once again
        return
    try:
        threading.Thread(target=_serve, args=(client, plan, behind), daemon=True).start()
    except RuntimeError:  # the account, or the control group, may have no more threads
        client.close()


def _serve(client: socket.socket, plan: TaskSocketPlan, behind: int) -> None:
    """Carry one connection both ways; see ``_program``."""
    with client:
        try:
            (port,) = _PORT.unpack(client.recv(_PORT.size, socket.MSG_WAITALL))
            program = _program(port, plan, behind)
        except (OSError, struct.error):
            return  # it left before it named a port, or no program listens: the connection ends without a word
        with program, contextlib.suppress(OSError):
            client.sendall(OPEN)
            back = threading.Thread(target=_carry, args=(program, client), daemon=True)
            back.start()
            _carry(client, program)
            back.join()


def _program(port: int, plan: TaskSocketPlan, behind: int) -> socket.socket:
    """A connection to the task's program, or to another one in its private network.

    Args:
        port: 0 is where the program is to serve.
        behind: the folder of the program's socket, opened; -1 where it listens on a port.

    Raises:
        OSError: it takes none, or what lies there is no socket.
    """
    if port or plan.program is None:
        port = port or plan.port or 0
        if plan.network is None or not port:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        # Not by `create_connection`: it looks names up, by a codec that is loaded from files then, which the account of
        # a task may not be able to read.
        program = socket.socket(socket.AF_INET)
        try:
            program.settimeout(_ANSWER_WITHIN_S)
            program.connect((_ADDRESS, port))
            program.settimeout(None)
        except OSError:
            program.close()
            raise
        return program
    # A task may lay a link there, to a socket that is closed to it and open to us.
    handle = os.open(Path(plan.program).name, os.O_PATH | os.O_NOFOLLOW, dir_fd=behind)
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise FileNotFoundError(plan.program)
        program = socket.socket(socket.AF_UNIX)
        try:
            # A timeout of Python's would not wait for room in the backlog: the kernel waits only where connect blocks.
            program.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(_ANSWER_WITHIN_S), 0))
            program.connect(f"/proc/self/fd/{handle}")
            program.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))
        except OSError:
            program.close()
            raise
        return program
    finally:
        os.close(handle)


def _carry(source: socket.socket, sink: socket.socket) -> None:
    """One direction, up to its end."""
    try:
        while data := source.recv(_BLOCK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
