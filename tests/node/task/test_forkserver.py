"""The forkserver by itself: what it says when its server goes away."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millpond.node.host import open_files
from millpond.node.task import forkserver
from millpond.node.task.forkserver_client import ForkserverClient
from millpond.node.task.start_plan import TaskStartPlan


def test_a_forkserver_whose_server_was_killed_ends_without_a_word(tmp_path: Path) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", forkserver.__name__, str(its.fileno())],
            pass_fds=(its.fileno(),),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    nothing = os.open(os.devnull, os.O_RDWR)
    with ours:
        socket.send_fds(ours, [os.fsencode(tmp_path / "task-0.json")], [nothing] * 3)
        assert select.select([ours], [], [], 60)[0], "it answers"
    os.close(nothing)
    assert process.communicate(timeout=60) == (None, b"")
    assert process.returncode == 0


def test_a_server_takes_all_open_files_it_may_and_its_tasks_keep_the_usual_number(monkeypatch) -> None:
    _, most = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = (512, most)
    monkeypatch.setattr(open_files, "usual", lambda: usual)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        open_files.raise_limit()
        assert open_files.limit() > 512
        forkserver = ForkserverClient()
        assert forkserver._process is not None
        assert resource.prlimit(forkserver._process.pid, resource.RLIMIT_NOFILE) == usual
        forkserver.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_however_few_files_may_be_opened_a_supervisor_is_watched_or_refused(tmp_path: Path) -> None:
    client, plan = ForkserverClient(), cast(TaskStartPlan, SimpleNamespace(encode=bytes))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    numbers: list[int | None] = []
    try:
        highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, before[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(8):
            os.close(taken.pop())
            try:
                spawned = client.spawn(tmp_path, tmp_path / "task-0.json", plan)
            except OSError as error:
                numbers.append(error.errno)
            else:
                numbers.append(None)
                for file in (spawned.handle, spawned.settled):
                    os.close(file)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for file in taken:
            os.close(file)
        client.close()
    assert numbers == [errno.EMFILE] * numbers.count(errno.EMFILE) + [None] * numbers.count(None)
    assert set(numbers) == {errno.EMFILE, None}


def test_a_supervisor_that_was_forked_and_is_refused_all_the_same_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_no_room(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its, subprocess.Popen(["sleep", "600"]) as supervisor:
        monkeypatch.setattr(os, "fork", lambda: supervisor.pid)
        monkeypatch.setattr(os, "pidfd_open", has_no_room)
        forkserver._spawn(its, "task-0.json", [])
        assert ours.recv(forkserver.PATH_BYTES) == b"-%d" % errno.EMFILE
        assert supervisor.wait() == -signal.SIGKILL


def test_a_supervisor_that_cannot_be_watched_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, plan = ForkserverClient(), cast(TaskStartPlan, SimpleNamespace(encode=bytes))
    lost: list[int] = []
    received = socket.recv_fds

    def without_room(*arguments: Any) -> Any:
        answer, handles, *rest = received(*arguments)
        lost.extend(handles)
        return answer, [], *rest

    monkeypatch.setattr(socket, "recv_fds", without_room)
    with pytest.raises(OSError, match="Too many open files"):
        client.spawn(tmp_path, tmp_path / "task-0.json", plan)
    (handle,) = lost
    assert select.select([handle], [], [], 60)[0], "it is over"
    os.close(handle)
    client.close()
