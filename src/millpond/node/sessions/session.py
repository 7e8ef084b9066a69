"""One command beside a task, between its supervisor above and a client at the other end of a socket.

Run by the supervisor (``exec_sessions``) as ``python -m millpond.node.sessions.session FD`` with the task's ``env``,
``workdir``, ``node.sandbox.sandbox`` (process id of its outermost process, or null), ``network`` (a process in the
network of its own that it has, or null), ``container`` (what its runtime needs, or null) and
``identity`` (whom it runs as, or null) as JSON on standard input. The socket keeps the bounds of messages. A message
that begins with ``{`` is JSON: first the client's order (``argv``, ``tty``, ``rows``, ``columns``), then
``{"rows": .., "columns": ..}`` when the window changes and ``{"eof": true}`` at the end of the input; from here at
last ``{"exit": code}``, with an ``error`` where the command could not be started, or the task's end ended it. Every
other message is data behind
one byte that names the stream: input 0, output 1, errors 2. An order of ``sftp`` instead of ``argv`` starts no command:
this process itself then answers an SFTP client (``sftp``), or has a program in the task's container do it
(``sftp_inside``).

Nothing is read that cannot be passed on, so a slow reader slows the writer, and no more than one message waits on
either way. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from typing import Any

from millpond.node.host import procfs
from millpond.node.host.programs import require_program
from millpond.node.sandbox.namespaces import enter_network, enter_sandbox
from millpond.node.sessions.sftp import SftpServer
from millpond.node.sessions.sftp_inside import command_inside
from millpond.node.task.identity import Identity, acting_as, become_for_good
from millpond.node.task.start_plan import ContainerPlan

STDIN, STDOUT, STDERR = b"\x00", b"\x01", b"\x02"
LARGEST_MESSAGE = 65_536
"""With its first byte; larger ones are cut by the kernel."""
LARGEST_DATA = LARGEST_MESSAGE - 1

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_SESSION_VARIABLE = "MILLPOND_SESSION"
"""Marks the processes of one session in a container, which are no descendants of the session's process."""
_END_OF_TYPING = b"\x04"
_HEARD_WITHIN_S = 5.0
_LEFT_ALONE_S = 10.0
"""A command whose client is gone may take so long to end; without that bound it would keep a session for good."""
_MOST_LAST_READS = 64
"""More than a pipe or a terminal holds."""


def main(argv: list[str]) -> int:
    """Serve one client."""
    connection = socket.socket(fileno=int(argv[1]))
    place = json.load(sys.stdin)
    place["identity"] = place["identity"] and Identity(**place["identity"])
    place["container"] = place["container"] and ContainerPlan(**place["container"])
    first = connection.recv(LARGEST_MESSAGE)
    if not first:
        return 2  # the client has left
    try:
        order = _order_of(first)
    except ValueError as error:
        _say_last(connection, {"error": str(error), "exit": _NOT_EXECUTABLE})
        return 0
    try:
        if place["sandbox"] is not None:
            enter_sandbox(place["sandbox"])
        elif place["network"] is not None:
            enter_network(place["network"])
        if order.get("sftp") and place["container"] is None:
            become_for_good(place["identity"])
            os.chdir(place["workdir"])
            return _serve_files(connection)
        if order.get("sftp"):
            order["argv"] = command_inside()
        command = _Command(order, place)
    except (OSError, ValueError) as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        what = getattr(error, "filename", None) or order.get("argv", ["sftp"])[0]
        text = f"{what}: {getattr(error, 'strerror', None) or error}"
        _say_last(connection, {"error": text, "exit": code})
        return 0
    signal.signal(signal.SIGTERM, lambda *_: command.end_with_task())
    _Relay(connection, command).run()
    return 0


def _order_of(message: bytes) -> dict[str, Any]:
    """What a client orders.

    Raises:
        ValueError: it is no order.
    """
    try:
        order = json.loads(message)
    except (ValueError, RecursionError):
        order = None
    if isinstance(order, dict) and (order.get("sftp") or (isinstance(order.get("argv"), list) and order["argv"])):
        return order
    raise ValueError('the first message is no order: send {"argv": [COMMAND, ARGUMENT, ...]}')


class _Command:
    """The command with its ends of pipes or of a pseudo-terminal.

    Attributes:
        outputs: what the command writes to, with the byte that names it.
        ends_with_task: it was asked to end as the task does.
    """

    def __init__(self, order: dict[str, Any], place: dict[str, Any]) -> None:
        self.input: int | None
        env = dict(place["env"])
        self._session = ""
        if order.get("tty"):
            env["TERM"] = str(order.get("term") or "xterm")
        if place["container"] is not None:
            self._session = secrets.token_hex(16)
            order, env = _through_runtime(order, env, place["container"], self._session), place["container"].env
        if order.get("tty"):
            self.input, theirs = pty.openpty()
            if place["identity"] is not None:
                os.fchown(theirs, place["identity"].uid, -1)
            self.outputs = {self.input: STDOUT}
            self.resize(order)
            try:
                self.process = self._start(order, env, place, (theirs, theirs, theirs), _take_terminal)
            finally:
                os.close(theirs)
        else:
            pipes = [os.pipe() for _ in range(3)]
            (stdin, self.input), (out, stdout), (err, stderr) = pipes
            self.outputs = {out: STDOUT, err: STDERR}
            try:
                self.process = self._start(order, env, place, (stdin, stdout, stderr), None)
            finally:
                for theirs in (stdin, stdout, stderr):
                    os.close(theirs)
        self.terminal = bool(order.get("tty"))
        self.ends_with_task = False
        for end in (self.input, *self.outputs):
            os.set_blocking(end, False)
        self.handle = os.pidfd_open(self.process.pid)

    def _start(
        self, order: dict[str, Any], env: dict[str, str], place: dict[str, Any], ends: tuple[int, int, int], before: Any
    ) -> subprocess.Popen[bytes]:
        stdin, stdout, stderr = ends
        identity = place["identity"]
        become = {}
        if identity is not None:
            become = {"user": identity.uid, "group": identity.gid, "extra_groups": identity.groups}
        argv = [str(word) for word in order["argv"]]
        with acting_as(identity):  # as the task may have put a link there since
            os.chdir(place["workdir"])
            require_program(argv[0], env)
        return subprocess.Popen(
            argv,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=before,
            **become,
        )

    def resize(self, window: dict[str, Any]) -> None:
        """Give the terminal this many rows and columns."""
        if self.input is not None:
            rows, columns = (min(max(int(window.get(name) or 0), 0), 9_999) for name in ("rows", "columns"))
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close_input(self) -> None:
        """Nothing more comes in."""
        if self.input is not None and not self.terminal:
            os.close(self.input)
        self.input = None

    def close_output(self, output: int) -> None:
        """Nothing more comes out."""
        del self.outputs[output]
        if not self.terminal:
            os.close(output)

    def end_with_task(self) -> None:
        """The task ends."""
        self.ends_with_task = True
        self.hang_up()

    def hang_up(self) -> None:
        """Nobody is there for whom it could go on."""
        for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGTERM):
            self._send(number)

    def kill(self) -> None:
        """It was asked to end, and goes on."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        processes = procfs.with_variable(_SESSION_VARIABLE, self._session) if self._session else []
        procfs.send([*processes, -self.process.pid], number)


def _through_runtime(
    order: dict[str, Any], env: dict[str, str], container: ContainerPlan, session: str
) -> dict[str, Any]:
    """The order to run a command in the task's container."""
    program, verb, *options = container.execute
    extra = ["--env", f"{_SESSION_VARIABLE}={session}"]
    if order.get("tty"):
        extra += ["--tty", "--env", f"TERM={env['TERM']}"]
    return {**order, "argv": [program, verb, *extra, *options, *order["argv"]]}


class _Relay:
    """Carries messages both ways until the command is over.

    Attributes:
        to_command, to_client: what was read on one side and could not be written on the other yet.
    """

    def __init__(self, connection: socket.socket, command: _Command) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._command = command
        self._client_there = True
        self._kill_at: float | None = None
        self.to_command = b""
        self.to_client = b""

    def run(self) -> None:
        """Until the command has ended; what it leaves running in the background is not waited for."""
        while self._command.handle not in (ready := self._wait()):
            if self._connection.fileno() in ready:
                self._from_client()
            self._write_to_command()
            self._write_to_client()
            for output in ready & self._command.outputs.keys():
                self._from_command(output)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._command.kill()
                self._kill_at = None
        self._pass_on_the_rest()
        code = self._command.process.wait()
        if self._client_there:
            why = {"error": "the task ends, and what runs beside it"} if self._command.ends_with_task else {}
            _say_last(self._connection, {"exit": code if code >= 0 else 128 - code, **why})

    def _wait(self) -> set[int]:
        """What can be read now. Only what could be passed on is asked for, and room where something waits for it."""
        wanted = {self._command.handle: select.POLLIN}
        if self._client_there:
            reading = 0 if self.to_command else select.POLLIN
            wanted[self._connection.fileno()] = reading | (select.POLLOUT if self.to_client else 0)
        if not self.to_client:
            wanted.update(dict.fromkeys(self._command.outputs, select.POLLIN))
        if self.to_command and self._command.input is not None:
            wanted[self._command.input] = wanted.get(self._command.input, 0) | select.POLLOUT
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        within_ms = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic()) * 1000.0
        return {descriptor for descriptor, events in poll.poll(within_ms) if events & ~select.POLLOUT}

    def _from_client(self) -> None:
        """Take the next message; with one still waiting, only the client's leaving can have woken us."""
        message = b""
        if not self.to_command:
            with contextlib.suppress(ConnectionError):
                message = self._connection.recv(LARGEST_MESSAGE)
        if message[:1] == STDIN:
            self.to_command = message[1:]
        elif not message:
            self._lose_client()
        elif not self._heed(message):
            text = 'neither input nor {"rows": .., "columns": ..} nor {"eof": true}'
            with contextlib.suppress(OSError):
                self._connection.send(json.dumps({"error": f"a message is {text}", "exit": _NOT_EXECUTABLE}).encode())
            self._lose_client()

    def _heed(self, message: bytes) -> bool:
        """Do what a message asks; false when it is none of ours."""
        try:
            request = json.loads(message)
            if request.get("eof"):
                self._end_input()
            else:
                self._command.resize(request)
        except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
            return False
        return True

    def _end_input(self) -> None:
        if self._command.terminal:
            self.to_command = _END_OF_TYPING
        else:
            self._command.close_input()

    def _lose_client(self) -> None:
        self._client_there = False
        self.to_client = b""
        self._command.hang_up()
        self._kill_at = time.monotonic() + _LEFT_ALONE_S

    def _write_to_command(self) -> None:
        if self._command.input is None:
            self.to_command = b""
        elif self.to_command:
            try:
                self.to_command = self.to_command[os.write(self._command.input, self.to_command) :]
            except BlockingIOError:
                return
            except OSError:  # it reads no more
                self.to_command = b""
                self._command.close_input()

    def _write_to_client(self) -> None:
        if self.to_client:
            try:
                self._connection.send(self.to_client)
            except BlockingIOError:
                return
            except ConnectionError:
                self._lose_client()
            self.to_client = b""

    def _from_command(self, output: int) -> bool:
        """Take what an output has; false when it has nothing more."""
        if self.to_client:
            return False
        try:
            data = os.read(output, LARGEST_DATA)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose last user is gone
            data = b""
        if not data:
            self._command.close_output(output)
            return False
        if self._client_there:
            self.to_client = self._command.outputs[output] + data
            self._write_to_client()
        return True

    def _pass_on_the_rest(self) -> None:
        """What the command wrote before its end; not more, as others may hold its output open and write on."""
        self._connection.setblocking(True)
        self._write_to_client()
        for output in list(self._command.outputs):
            for _ in range(_MOST_LAST_READS):
                if not self._from_command(output):
                    break


def _serve_files(connection: socket.socket) -> int:
    """Answer an SFTP client until it leaves."""

    def send(data: bytes) -> None:
        for begin in range(0, len(data), LARGEST_DATA):
            connection.sendall(STDOUT + data[begin : begin + LARGEST_DATA])

    server = SftpServer(send)
    try:
        while (message := connection.recv(LARGEST_MESSAGE))[:1] == STDIN:
            server.receive(message[1:])
    except ConnectionError:
        return 0
    except ValueError as error:
        _say_last(connection, {"error": f"sftp: {error}", "exit": 1})
        return 0
    finally:
        server.close()
    _say_last(connection, {"exit": 0})
    return 0


def _say_last(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send the last word, and leave once it was heard: a socket closed with something unread in it loses both ways."""
    connection.settimeout(_HEARD_WITHIN_S)
    with contextlib.suppress(OSError):
        connection.send(json.dumps(message).encode())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(LARGEST_MESSAGE):
            continue


def _take_terminal() -> None:
    """In the child: the terminal on standard input becomes the one that Ctrl-C comes from."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
