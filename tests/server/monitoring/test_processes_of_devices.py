"""Who is on a card: whose task each process is, what Millpond did not start, and what is not for the reader."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from test_slices_of_devices import CARD, Metered, record_of

from millpond.model.hardware.telemetry import ProcessSample
from millpond.server.store.jobs import Owners
from millpond.server.views.visibility import VEIL, Reader
from millpond.specs.api.pool.nodes import DeviceStatus, ProcessStatus

NOBODY = 2**22 + 7
"""A number that no process has."""


@contextmanager
def running_cat(name: str | Path = "cat") -> Iterator[subprocess.Popen[bytes]]:
    """Once it has answered: only some time after its start a process has the name of its program."""
    with subprocess.Popen([name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin
            assert process.stdout
            os.write(process.stdin.fileno(), b"x")
            assert os.read(process.stdout.fileno(), 1) == b"x"
            yield process
        finally:
            process.kill()


def test_processes_are_told_apart_by_their_task_and_those_of_others_are_named() -> None:
    metered = Metered()
    with running_cat() as task, running_cat() as other:
        metered.records = [record_of(task.pid)]
        metered.sampled(ProcessSample(other.pid, 9, 8), ProcessSample(task.pid, 700, 250), ProcessSample(NOBODY, 5))
        own, *others = metered.meter.processes_on(CARD)
    assert (own.pid, own.name, own.job, own.task, own.foreign) == (task.pid, "cat", "job-a", 0, False)
    assert (own.use_milli, own.memory_mib) == (250, 700)
    known = {each.pid: each for each in others}
    assert (known[other.pid].foreign, known[other.pid].name, known[other.pid].job) == (True, "cat", "")
    assert known[NOBODY] == ProcessStatus(pid=NOBODY, memory_mib=5), "a number of the host's means nothing here"


def test_where_the_driver_lists_none_all_processes_of_the_tasks_are_shown_without_figures() -> None:
    metered = Metered()
    with running_cat() as program:
        metered.records = [record_of(os.getpid())]
        found = metered.meter.processes_on(CARD)
    (process,) = (each for each in found if each.pid == program.pid)
    assert (process.job, process.foreign, process.use_milli, process.memory_mib) == ("job-a", False, None, None)
    assert metered.meter.processes_on("another") == []


def test_a_name_that_the_kernel_cuts_within_a_letter_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    metered, program = Metered(), tmp_path / "a训练模型程序"  # the kernel keeps 15 bytes of it
    program.symlink_to(shutil.which("cat") or "")
    with running_cat(program) as task:
        metered.records = [record_of(task.pid)]
        metered.sampled(ProcessSample(task.pid))
        (found,) = metered.meter.processes_on(CARD)
    assert found.name == "a训练模型\N{REPLACEMENT CHARACTER}"


def test_a_reader_learns_nothing_of_a_process_of_a_job_that_is_not_for_them() -> None:
    processes = [
        ProcessStatus(pid=1, name="train.py", account="ada", job="job-a", task=0),
        ProcessStatus(pid=2, name="x"),
    ]
    device = DeviceStatus(
        node="n", pool="p", uuid="u", index=0, vendor="v", model="m", memory_mib=1, health="ok", processes=processes
    )
    device = Reader(Owners("eve", frozenset())).device(device, lambda job: None)
    assert device.processes == [ProcessStatus(pid=1, job=VEIL, task=0), ProcessStatus(pid=2, name="x")]
