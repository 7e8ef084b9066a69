"""Finding what stands below a process."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from millpond.node.host import procfs
from millpond.node.host.files import read_file

TREE = "sleep 600 & (sleep 600 & sleep 600 & echo ready; wait) & wait"
"""Below the shell: a child, and a shell with two children, which has its word last."""


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sh", "-c", TREE], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        yield shell
        os.killpg(shell.pid, 9)


@pytest.fixture(params=[True, False], ids=["lists-of-children", "look-at-all"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and not procfs._lists_children():
        pytest.skip("this kernel has no lists of children (CONFIG_PROC_CHILDREN)")
    monkeypatch.setattr(procfs, "_lists_children", lambda: request.param)


@pytest.mark.usefixtures("_way")
def test_all_below_are_found_nearest_first(tree: subprocess.Popen[bytes]) -> None:
    found = procfs.descendants(tree.pid)
    parents = {pid: parent for parent, pids in procfs.children().items() for pid in pids}
    above = [parents[pid] for pid in found]
    assert len(found) == len(set(found)) == 4
    assert above[:2] == [tree.pid, tree.pid]
    assert above[2] == above[3] != tree.pid
    assert above[2] in found[:2]


@pytest.mark.usefixtures("_way")
def test_what_stands_below_two_that_are_asked_about_is_found_once(tree: subprocess.Popen[bytes]) -> None:
    inner = next(pid for pid in procfs.descendants(tree.pid) if procfs.descendants(pid))
    assert sorted(procfs.descendants(tree.pid, inner)) == sorted(procfs.descendants(tree.pid))


FIRST_THREAD_ENDS = """
import ctypes, os, threading
def told():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    print(flush=True)
    threading.Event().wait()
threading.Thread(target=told).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.usefixtures("_way")
def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    marked = os.environ | {"MILLPOND_MARK": "here"}
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE, env=marked) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = (procfs.descendants(os.getpid()), procfs.with_variable("MILLPOND_MARK", "here"))
        since = procfs.start_ticks(process.pid)
        process.kill()
        assert [process.pid in each for each in found] == [True, True]
        assert since is not None
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.start_ticks(process.pid) is None
        assert process.pid not in procfs.descendants(os.getpid())


def test_a_process_whose_first_thread_has_ended_is_found_by_its_variables_by_other_accounts_than_root_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marked = os.environ | {"MILLPOND_MARK": "here"}
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE, env=marked) as process:
        assert process.stdout is not None
        process.stdout.readline()
        of_root = f"/proc/{process.pid}/environ"  # as the kernel has it from then on

        def read(path: str) -> bytes:
            if path == of_root:
                raise PermissionError(path)
            return read_file(path)

        monkeypatch.setattr(procfs, "read_file", read)
        found = procfs.with_variable("MILLPOND_MARK", "here")
        process.kill()
    assert found == [process.pid]


@pytest.mark.usefixtures("_way")
def test_the_children_of_every_thread_are_found_and_the_dead_are_not() -> None:
    started: list[subprocess.Popen[bytes]] = []
    over = threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["sleep", "60"]))
        started.append(subprocess.Popen(["true"]))
        os.waitid(os.P_PID, started[1].pid, os.WEXITED | os.WNOWAIT)
        over.wait()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        while len(started) < 2 or procfs.start_ticks(started[1].pid) is not None:
            pass
        found = procfs.descendants(os.getpid())
        assert started[0].pid in found
        assert started[1].pid not in found
    finally:
        over.set()
        thread.join()
        for child in started:
            child.kill()
            child.wait()


@pytest.mark.usefixtures("_way")
def test_nothing_stands_below_a_process_that_is_over() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert procfs.descendants(child.pid) == []


CLONE_VFORK = 0x4000
VFORKING = f"""
import ctypes, platform, signal, time
number = {{"x86_64": 56, "aarch64": 220}}[platform.machine()]
if ctypes.CDLL(None).syscall(number, {CLONE_VFORK} | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    print("child", flush=True)
    time.sleep(600)
"""
"""A program that waits for a child as vfork(2) does, in the kernel."""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the number of clone(2) is known for two")
def test_one_that_waits_for_a_halted_child_to_become_a_program_is_halted_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", VFORKING], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()
            (child,) = procfs.descendants(parent.pid)
            assert not procfs.is_halted(parent.pid)
            os.kill(parent.pid, signal.SIGSTOP)
            os.kill(child, signal.SIGSTOP)
            while not procfs.is_halted(child):
                os.sched_yield()
            assert procfs.is_halted(parent.pid)
            os.kill(parent.pid, signal.SIGCONT)
            assert not procfs.is_halted(parent.pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
