"""The forkserver by itself: what it says when its server goes away."""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
from pathlib import Path

from millpond.node.host import open_files
from millpond.node.task import forkserver
from millpond.node.task.forkserver_client import ForkserverClient


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
