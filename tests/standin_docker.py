"""A stand-in for docker where there is none: a client that hands each container to a daemon, as docker does.

What matters about docker for whoever runs tasks by it is that containers are not below the program that starts them.
The daemon is this file run as a program: it takes the client's open files over a socket and runs the command in a
session of its own, with the variables of the file that the client was pointed to; nothing is kept apart. ``calls``
beside the socket has the arguments of every call, one JSON list a line.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

IMAGE = "sha256:" + "d" * 64


def install(folder: Path) -> subprocess.Popen[bytes]:
    """Put ``docker`` into a folder and start its daemon, which ends with its process."""
    client = folder / "docker"
    client.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} client {folder} "$@"\n')
    client.chmod(0o755)
    daemon = subprocess.Popen([sys.executable, __file__, "daemon", str(folder)], stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == b"ready\n"
    return daemon


def calls(folder: Path) -> list[list[str]]:
    """The arguments of every call."""
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def _client(folder: Path, words: list[str]) -> int:
    with (folder / "calls").open("a") as file:
        file.write(json.dumps(words) + "\n")
    if words[0] == "version":
        print("27.0")
    elif words[:2] == ["image", "inspect"]:
        print(IMAGE, 1, "[]")
    elif words[0] in ("run", "kill"):
        return _ask(folder, words)
    return 0


def _ask(folder: Path, words: list[str]) -> int:
    """Hand an order to the daemon, pass signals on, and exit as the container does."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / "socket"))
    files = array.array("i", [0, 1, 2])
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):  # before anything runs that they could be meant for
        signal.signal(number, lambda got, _: connection.send(bytes([got])))
    connection.sendmsg([json.dumps(words).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    return connection.recv(1)[0]


class _Daemon:
    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, connection: socket.socket) -> None:
        data, files, _, _ = socket.recv_fds(connection, 2**20, 3)
        words = json.loads(data)
        if words[0] == "kill":
            for file in files:  # who reads what the client prints waits until nobody can write to it
                os.close(file)
            os.killpg(self.running[words[-1]].pid, signal.SIGKILL)
            connection.send(b"\0")
            return
        name, workdir, variables = (words[words.index(f"--{what}") + 1] for what in ("name", "workdir", "env-file"))
        env = dict(line.split("=", 1) for line in Path(variables).read_text().splitlines())
        command = words[words.index(IMAGE) + 1 :]
        stdin, stdout, stderr = files
        task = self.running[name] = subprocess.Popen(
            command, cwd=workdir, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        for file in files:
            os.close(file)
        threading.Thread(target=self._pass_on, args=(connection, task), daemon=True).start()
        code = task.wait()
        connection.send(bytes([code if code >= 0 else 128 - code]))

    def _pass_on(self, connection: socket.socket, task: subprocess.Popen[bytes]) -> None:
        while number := connection.recv(1):
            os.killpg(task.pid, number[0])


def _serve(folder: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen()
    print("ready", flush=True)
    daemon = _Daemon()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=daemon.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    if sys.argv[1] == "daemon":
        _serve(Path(sys.argv[2]))
    sys.exit(_client(Path(sys.argv[2]), sys.argv[3:]))
