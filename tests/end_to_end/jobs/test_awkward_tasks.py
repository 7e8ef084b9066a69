"""Tasks that behave badly, and machines that do: the server stays up, and the owner learns what happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from real_pond import Pond, alive, until

from millpond.client.sdk import Client
from millpond.node.task.records import TaskFiles, TaskId

pytestmark = pytest.mark.long

PYTHON = sys.executable
LONG_LINE = 30_000_000
LARGE_LOG = 2 * 2**30


def python(pond: Pond, script: str, *options: str) -> str:
    """Submit a Python script; returns the job's id."""
    done = pond("run", "--detach", *options, "--", PYTHON, "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_task_that_closes_its_output_goes_on_and_keeps_its_exit_code(shared):
    job_id = python(shared, "import os, sys; os.close(1); os.close(2); os._exit(4)")
    assert shared("wait", job_id).returncode == 4
    assert shared("logs", job_id).stdout == ""


def test_bytes_that_are_no_text_are_shown_as_replacements_and_kept_as_written(shared):
    job_id = python(shared, r"import os; os.write(1, b'a\xff\xfe\0z\n')")
    assert shared("wait", job_id).returncode == 0
    assert shared("logs", job_id).stdout == "a\ufffd\ufffd\0z\n"
    assert TaskFiles.of(shared.state_dir, TaskId(job_id, 1, 0)).log.read_bytes() == b"a\xff\xfe\0z\n"


def test_a_line_of_many_megabytes_arrives_whole_and_the_server_does_not_hold_it(shared):
    job_id = python(shared, f"import os; [os.write(1, b'x' * 1_000_000) for _ in range({LONG_LINE // 1_000_000})]")
    assert shared("wait", job_id).returncode == 0
    before = memory_mib(shared.server_pid)
    with Client(state_dir=shared.state_dir) as client:
        assert sum(len(chunk.data) for chunk in client.logs(job_id)) == LONG_LINE
    assert memory_mib(shared.server_pid) - before < LONG_LINE / 2**20


def test_the_end_of_a_log_of_two_gigabytes_is_read_without_what_stands_before(shared):
    job_id = python(shared, "print('the beginning')")
    assert shared("wait", job_id).returncode == 0
    with TaskFiles.of(shared.state_dir, TaskId(job_id, 1, 0)).log.open("ab") as log:
        log.truncate(LARGE_LOG)
        log.write(b"the end")
    with Client(state_dir=shared.state_dir) as client:
        text = "".join(chunk.data for chunk in client.logs(job_id, task=0, cursor=f"1:0={LARGE_LOG}"))
    assert text == "the end"


def test_hundreds_of_processes_and_a_limit_on_them_end_with_their_task(shared, tmp_path):
    script = (
        "import resource, subprocess, time\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (200, 200))\n"
        "for _ in range(200):\n"
        "    try: subprocess.Popen(['sleep', '300'])\n"
        "    except BlockingIOError: break\n"
        "print('forked', flush=True); time.sleep(300)\n"
    )
    job_id = python(shared, script)
    until(lambda: shared.output(job_id) == "forked\n")
    record = json.loads(TaskFiles.of(shared.state_dir, TaskId(job_id, 1, 0)).record.read_text())
    assert shared("ps").returncode == 0
    assert shared("stop", job_id).returncode == 0
    assert shared("wait", job_id).returncode == 143
    until(lambda: not alive(record["supervisor_pid"]))
    until(lambda: sessions(record["pid"]) == [])  # killed they are; the kernel ends them when they have a turn


def test_after_a_reboot_running_jobs_start_again_and_their_story_says_why(running):
    job_id = running.printed("run", "--detach", "--", "sleep", "300")
    until(lambda: running.job(job_id)["state"] == "running")
    running.kill_server()
    files = TaskFiles.of(running.state_dir, TaskId(job_id, 1, 0))
    record = json.loads(files.record.read_text())
    os.kill(record["supervisor_pid"], signal.SIGKILL)
    until(lambda: not alive(record["pid"]))
    files.record.write_text(json.dumps(record | {"boot_id": "the boot before", "supervisor_pid": os.getpid()}))
    running.up()
    until(lambda: running.job(job_id)["attempt"] == 2)
    until(lambda: running.job(job_id)["state"] == "running")
    with Client(state_dir=running.state_dir) as client:
        told = [event.text for event in client.events(job_id)]
    assert any("node-lost" in text and "machine went down" in text for text in told)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few megabytes, where this account may mount one."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", directory], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount a small disk here")
    pond = Pond(directory / "state")
    pond.up()
    yield pond
    if pond.server_pid:
        (directory / "ballast").unlink(missing_ok=True)
        pond("down")
    subprocess.run(["umount", "--lazy", directory], check=True)


def test_a_full_disk_is_said_and_work_goes_on_when_there_is_room_again(small_disk):
    pond = small_disk
    job_id = python(pond, "import time; print('begun', flush=True); time.sleep(1000)")
    until(lambda: pond.job(job_id)["state"] == "running")
    ballast = pond.state_dir.parent / "ballast"
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    refused: list[subprocess.CompletedProcess] = []

    def is_refused() -> bool:
        with contextlib.suppress(OSError):  # it is full
            while os.write(file, b"x" * 4096):
                pass
        refused.append(pond("run", "--detach", "--", "true"))
        return refused[-1].returncode != 0

    until(is_refused)
    os.close(file)
    assert refused[-1].returncode == 2
    assert "the server's disk is full" in refused[-1].stderr
    assert alive(pond.server_pid)
    ballast.unlink()
    until(lambda: pond("run", "--", "true").returncode == 0)
    assert pond("stop", job_id).returncode == 0
    assert pond("wait", job_id).returncode == 143


def test_a_job_that_fills_the_disk_and_takes_all_that_becomes_free_is_stopped_there(small_disk):
    pond = small_disk
    log = pond.state_dir / "server.log"
    until(lambda: "4.0 MiB are kept within the database" in log.read_text())
    filler = (
        f"file = open({str(pond.state_dir.parent / 'ballast')!r}, 'ab', buffering=0)\n"
        "while True:\n"
        "    try: file.write(b'x' * 4096)\n"
        "    except OSError: pass\n"
    )
    quiet = python(pond, "import time; time.sleep(1000)")
    filling = python(pond, filler)
    until(lambda: pond("run", "--detach", "--", "true").returncode != 0)
    for job_id in (quiet, filling):
        assert pond("stop", job_id).returncode == 0
        assert pond("wait", job_id).returncode == 143


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def sessions(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found
