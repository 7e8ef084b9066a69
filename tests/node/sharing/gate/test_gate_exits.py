"""Programs end as they would without the gate, whatever they have on the card, and see no more signals blocked."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from gated import GatedCard, Task

from fake_driver.building import compile_program

ENDS_UNDER_LOAD = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
typedef unsigned u;
int cuLaunchKernel(void *, u, u, u, u, u, u, u, void *, void **, void **);
static void *kernel;
static void launch(void *stream, unsigned long long nanoseconds) {
    void *parameters[] = {&nanoseconds};
    cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
static void late(void) { launch(NULL, 1000); }
int main(int count, char **values) {
    void *context, *module, *streams[4];
    long number = count > 1 ? atol(values[1]) : 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    cuModuleLoadData(&module, "kernels"), cuModuleGetFunction(&kernel, module, "spin");
    for (int index = 0; index < 4; index++) cuStreamCreate(&streams[index], 1);
    atexit(late);
    for (long launches = 0; launches < 40 + number * 7 % 60; launches++)
        launch(streams[launches % 4], 20000 + number % 5 * 30000);
    return 0;
}
"""


@pytest.fixture
def program(card: GatedCard, tmp_path: Path) -> Path:
    return compile_program(ENDS_UNDER_LOAD, card.driver.libraries, tmp_path / "ends-under-load")


def end(task: Task, program: Path, number: int) -> int:
    return subprocess.run([program, str(number)], env={**os.environ, **task.env}, timeout=60).returncode


def ends(card: GatedCard, program: Path, times: int) -> None:
    task = card.slice()
    assert [end(task, program, number) for number in range(times)] == [0] * times
    assert not task.region.usage().processes


def test_programs_end_with_work_in_flight(card: GatedCard, program: Path) -> None:
    ends(card, program, 30)


@pytest.mark.long
def test_a_thousand_programs_end_with_work_in_flight(card: GatedCard, program: Path) -> None:
    ends(card, program, 1000)


def test_no_thread_of_the_gate_blocks_the_signals_that_faults_raise(card: GatedCard) -> None:
    [task] = card.programs({})
    assert task.program is not None
    task.program("launch", 100_000, 20)
    blocked = {blocked_signals(thread) for thread in Path(f"/proc/{task.program.pid}/task").iterdir()}
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}
    assert len(blocked) == 2  # the program's thread, and the gate's
    assert not any(mask >> (number - 1) & 1 for mask in blocked for number in faults)


def blocked_signals(thread: Path) -> int:
    [line] = [line for line in (thread / "status").read_text().splitlines() if line.startswith("SigBlk")]
    return int(line.split()[1], 16)
