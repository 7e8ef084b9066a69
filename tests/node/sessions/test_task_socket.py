"""The socket of a task, on which its clients are announced by a signal."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.node.host.files import short_name
from millpond.node.sessions import exec_sessions
from millpond.node.sessions.exec_sessions import ExecSessions


class Impatient(socket.socket):
    """A listener whose path somebody tries between any two steps that make it one."""

    path: Path
    clients: list[socket.socket]

    def bind(self, address: Any) -> None:
        super().bind(address)
        self._connect()

    def listen(self, backlog: int = 0) -> None:
        super().listen(backlog)
        self._connect()

    @classmethod
    def _connect(cls) -> None:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with short_name(cls.path) as name, contextlib.suppress(FileNotFoundError):
            client.connect(name)
            cls.clients.append(client)


@pytest.fixture
def announced() -> Iterator[list[int]]:
    """One number for each signal that said that somebody has come."""
    heard: list[int] = []
    before = signal.signal(signal.SIGIO, lambda number, _frame: heard.append(number))
    yield heard
    signal.signal(signal.SIGIO, before)


def test_whoever_finds_the_socket_is_heard_however_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, announced: list[int]
) -> None:
    Impatient.path, Impatient.clients = tmp_path / "task-0.sock", []
    with monkeypatch.context() as patched:
        patched.setattr(exec_sessions.socket, "socket", Impatient)
        opened = ExecSessions(Impatient.path, {}, lambda: None)
    assert Impatient.clients == []
    Impatient._connect()
    assert len(Impatient.clients) == 1
    give_up = time.monotonic() + 60
    while not announced:
        assert time.monotonic() < give_up, "no signal announced the client"
    for client in Impatient.clients:
        client.close()
    opened.end()


def test_a_command_that_cannot_be_started_beside_its_task_is_named_in_the_supervisors_log(
    tmp_path: Path, announced: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    def group_is_gone() -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    path = tmp_path / "task-0.sock"
    opened = ExecSessions(path, {"env": {}}, group_is_gone)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        with short_name(path) as name:
            client.connect(name)
        opened.take()
        assert (client.recv(1), opened.sessions) == (b"", set())
    opened.end()
    assert "task-0.sock: no command can be run beside it (Exception occurred in preexec_fn.)" in capfd.readouterr().err
