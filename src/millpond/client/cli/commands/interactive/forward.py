"""``pond forward``: a port of a task as a port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import click

from millpond.client.cli.commands.interactive.exec import task_option
from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.error_output import complain, say
from millpond.client.sdk.sessions import Tunnel
from millpond.client.sdk.transport.discovery import Address
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, UnavailableError
from millpond.model.states import JobState

_HOST = "127.0.0.1"
_HIGHEST_PORT = 65_535


@click.command("forward")
@job_argument("job", metavar="JOB")
@click.argument("ports", metavar="[LOCAL[:REMOTE]]", default="0")
@task_option
@state_dir_option
def command(job: str, ports: str, task: int, state_dir: Path | None) -> None:
    """Forward a local port to a port of a task of JOB, until Ctrl-C.

    LOCAL is the port here (0 takes a free one), REMOTE the one there [default: the port that the task was given].
    """
    local, remote = _ports(ports)
    with connect(state_dir) as client:
        found = client.find(job)
        name, address = found.id, client.address
    if JobState(found.state).ended:
        raise ConflictError(f"job {name} has ended ({found.state})", "submit it again with `pond clone`")
    with _listen(local) as listener:
        say(f"{_HOST}:{listener.getsockname()[1]} leads to {f'port {remote} of ' if remote else ''}{name}")
        while True:
            arrival, _ = listener.accept()
            arguments = (arrival, address, name, task, remote)
            threading.Thread(target=_serve, args=arguments, name="forward", daemon=True).start()


def _ports(text: str) -> tuple[int, int]:
    """``8080:80`` as two numbers; the second is 0 when it is left out."""
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() and int(part) <= _HIGHEST_PORT for part in parts):
        raise InvalidInputError(f"{text!r} is not LOCAL[:REMOTE]", f"write ports from 0 to {_HIGHEST_PORT}: 8080:80")
    return int(parts[0]), int(parts[1]) if len(parts) == 2 else 0


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        raise UnavailableError(f"port {port} cannot be used here ({error.strerror})", "choose another") from error


def _serve(arrival: socket.socket, address: Address, job: str, task: int, port: int) -> None:
    """Carry one connection both ways."""
    with arrival:
        try:
            tunnel = Tunnel(address, job, task, port)
        except MillpondError as error:
            complain(error)
            return
        threading.Thread(target=_send, args=(tunnel, arrival), name="forward-in", daemon=True).start()
        try:
            for data in tunnel.output():
                arrival.sendall(data)
        except MillpondError as error:
            complain(error)
        except ConnectionError:
            return  # the program here has gone
        finally:
            tunnel.close()
            with contextlib.suppress(OSError):  # gone already
                arrival.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who reads from it


def _send(tunnel: Tunnel, arrival: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed by the other direction
        tunnel.carry_in(arrival.recv)
