"""Commands that people run beside a task (``pond exec``): the supervisor's side.

The supervisor listens on a socket beside the task's record (``task-0.sock``). Each connection gets a small process of
its own (``session``), a child of the supervisor, so that whatever runs there belongs to the task: it is frozen with it,
and killed with it. Only the owner of the state directory can reach the socket, as its folder is closed to others.

Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from millpond.node.host import procfs
from millpond.node.host.files import announce_by_signal, short_name

MOST_AT_ONCE = 64
_BACKLOG = 16


class ExecSessions:
    """Takes connections and sets up a session for each.

    The kernel announces a connection with SIGIO (``O_ASYNC``), so that the supervisor has one thing to wait for:
    signals.

    Args:
        path: of the socket; a file ``.home`` beside it says where the task was moved to
            (``node.task.records.write_assignment``).
        place: ``env``, ``workdir``, ``node.sandbox.sandbox``, ``network`` and ``identity`` of the task (``session``).
        become: called in each new process before it does anything.

    Raises:
        OSError: no socket can be made there.
    """

    def __init__(self, path: Path, place: dict[str, Any], become: Callable[[], None]) -> None:
        self._place = place
        self._home = path.with_suffix(".home")
        self._become = become
        self._sessions: dict[int, subprocess.Popen[bytes]] = {}
        unlisted = path.with_name(f"{path.name}.new")
        unlisted.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        with short_name(unlisted) as name:
            self._listener.bind(name)
        announce_by_signal(self._listener.fileno())
        self._listener.listen(_BACKLOG)
        unlisted.replace(path)  # only now: a client that finds the socket is served

    @property
    def sessions(self) -> Collection[int]:
        """The processes that look after a client each."""
        return self._sessions.keys()

    def take(self) -> None:
        """Set up a session for everybody who has connected."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # no more clients, or no room for more open files
                return
            with connection:
                if len(self._sessions) < MOST_AT_ONCE:
                    self._begin(connection)

    def over(self, pid: int) -> None:
        """A child of the supervisor has ended; it may have been a session."""
        session = self._sessions.pop(pid, None)
        if session is not None:
            session.returncode = 0  # collected by the supervisor already

    def end(self) -> None:
        """Accept no more clients, and ask those connected to leave."""
        self._listener.close()
        procfs.send(self._sessions, signal.SIGTERM)

    def _env(self) -> dict[str, str]:
        """The task's variables, but for those that name the devices which it had when it started."""
        try:
            moved: dict[str, str] = json.loads(self._home.read_bytes())["env"]
        except (OSError, ValueError, KeyError):
            moved = {}
        return {**self._place["env"], **moved}

    def _begin(self, connection: socket.socket) -> None:
        place = os.memfd_create("place")  # no other user may read the task's variables
        try:
            os.write(place, json.dumps({**self._place, "env": self._env()}).encode())
            os.lseek(place, 0, os.SEEK_SET)
            connection.setblocking(True)
            session = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", "millpond.node.sessions.session", str(connection.fileno())],
                stdin=place,
                stdout=subprocess.DEVNULL,
                pass_fds=(connection.fileno(),),
                start_new_session=True,
                preexec_fn=self._become,
            )
        except (OSError, subprocess.SubprocessError) as error:  # no room for a process, say
            # The client sees the connection end: it may not have sent its order yet, and then hears no last word.
            place_of_commands = self._home.with_suffix(".sock")
            print(f"{place_of_commands}: no command can be run beside it ({error})", file=sys.stderr, flush=True)
            return
        finally:
            os.close(place)
        self._sessions[session.pid] = session
