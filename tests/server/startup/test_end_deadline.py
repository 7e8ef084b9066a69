"""A server whose parts hang at its end is over in bounded time all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millpond.client.sdk.transport.discovery import read_server_file
from millpond.server.startup.end_deadline import EndDeadline

_WITH_A_STORE_THAT_HANGS = """
import sys, threading
from millpond.server.startup import command_line, leadership, process
from millpond.server.store.store import Store
leadership.ENDS_WITHIN_S = 0.2
Store.close = lambda self: threading.Event().wait()
sys.exit(process.run(command_line.parse_options(sys.argv[1:])))
"""


def test_nothing_ends_before_its_time_or_more_than_once() -> None:
    ends: list[int] = []
    over = threading.Event()

    def end(code: int) -> None:
        ends.append(code)
        over.set()

    EndDeadline(0.0, end)  # which is never to end
    deadline = EndDeadline(0.0, end)
    for _ in range(3):
        deadline.begin()
    assert over.wait(60)
    assert ends == [1]


def test_a_process_that_can_start_no_more_threads_is_over_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    over = threading.Event()
    deadline = EndDeadline(0.0, lambda _code: over.set())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    deadline.begin()
    assert over.wait(60)


def test_threads_that_wait_for_ever_do_not_keep_a_process_that_is_to_end() -> None:
    program = (
        "import threading; from millpond.server.startup.end_deadline import EndDeadline; "
        "EndDeadline(0.0).begin(); threading.Thread(target=threading.Event().wait).start()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "threading.py" in done.stderr  # where they were


@pytest.mark.long
def test_a_server_that_is_asked_to_end_ends_although_its_store_hangs(tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = ["--state-dir", str(state), "--port", "0", "--fake-gpus", "1:V100-32GB", "--sandbox", "off"]
    command = [sys.executable, "-c", _WITH_A_STORE_THAT_HANGS, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert "is up at" in server.stdout.readline()
            assert read_server_file(state) is not None
            os.kill(server.pid, signal.SIGTERM)
            _, said = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 1
    assert "ended by force" in said
