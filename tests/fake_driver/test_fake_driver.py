"""The pretended driver behaves as the real one is documented to, and the shipped bindings run on it unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_driver.building import compile_program
from fake_driver.driver import MIB, Action, FakeDriver, ProcessState, Use
from fake_driver.program import Program
from millpond.node.host import procfs

OUT_OF_MEMORY, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED, ILLEGAL_ADDRESS = 2, 401, 600, 801, 700

HELPER = """
import sys
from cuda.bindings import driver

driver.cuInit(0)
print("ready", flush=True)
for line in sys.stdin:
    step, pid, *more = line.split()
    call = getattr(driver, "cuCheckpointProcess" + step)
    arguments = None
    if step == "Lock":
        arguments = driver.CUcheckpointLockArgs()
        arguments.timeoutMs = int(more[0])
    answer = call(int(pid)) if step == "GetState" else call(int(pid), arguments)
    print(*(int(word) for word in answer), flush=True)
"""


class Helper:
    """Checkpoint calls by the real bindings, from another process."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [sys.executable, "-c", HELPER]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env={**os.environ, **env}, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def __call__(self, step: str, pid: int, *more: int) -> int:
        self.send(step, pid, *more)
        return self.answer()

    def send(self, step: str, pid: int, *more: int) -> None:
        assert self._process.stdin is not None
        print(step, pid, *more, file=self._process.stdin, flush=True)

    def answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline().split()[0])

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def helper(fake_driver: FakeDriver) -> Iterator[Helper]:
    helper = Helper(fake_driver.env())
    yield helper
    helper.close()


@pytest.fixture
def program(fake_driver: FakeDriver) -> Iterator[Program]:
    with Program(fake_driver.env()) as program:
        assert program("start") == [0]
        yield program


def run(driver: FakeDriver, source: str) -> str:
    """What a Python program prints on these cards."""
    done = subprocess.run(
        [sys.executable, "-c", source], env={**os.environ, **driver.env()}, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_memory_is_conserved_among_processes_and_contexts_cost_some(fake_driver: FakeDriver) -> None:
    fake_driver.set("context_bytes", 100 * MIB)
    [card] = fake_driver.cards
    with Program(fake_driver.env()) as one, Program(fake_driver.env()) as other:
        assert one("start") == other("start") == [0]
        assert fake_driver.used_bytes(card) == 200 * MIB
        assert one("alloc", 3000 * MIB)[0] == 0
        assert other("alloc", 1000 * MIB)[0] == OUT_OF_MEMORY
        assert other("alloc", 896 * MIB)[0] == 0
        assert one("info") == [0, 0, 4096 * MIB]


def test_what_a_killed_process_held_is_free_again(fake_driver: FakeDriver) -> None:
    with Program(fake_driver.env()) as killed:
        assert killed("start") == [0]
        assert killed("alloc", 4000 * MIB)[0] == 0
    with Program(fake_driver.env()) as later:
        assert later("start") == [0]
        assert later("alloc", 4096 * MIB)[0] == 0


SMALL_ALLOCATIONS = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>

enum { THREADS = 2, PAIRS = 300 };
static void *context;
static int failed;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long *, size_t), cuMemFree_v2(unsigned long);

// Wherever the driver gives a lock back, another thread goes first.
int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static _Atomic unsigned unlocks;
    int result = ((int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock"))(mutex);
    unsigned own = ++unlocks;
    for (int times = 0; times < 20 && unlocks == own; times++) sched_yield();
    return result;
}

static void *allocate_and_free(void *nothing) {
    unsigned long pointer;
    cuCtxSetCurrent(context);
    for (int pair = 0; pair < PAIRS; pair++)
        if (cuMemAlloc_v2(&pointer, 512) || cuMemFree_v2(pointer)) failed = 1;
    return nothing;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned long large;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0)) return 2;
    for (int number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, allocate_and_free, NULL);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    cuCtxSetCurrent(context);
    return failed || cuMemAlloc_v2(&large, 4ul << 30);
}
"""


def test_two_threads_that_allocate_and_free_little_by_turns_leave_the_whole_card_free(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    program = compile_program(SMALL_ALLOCATIONS, fake_driver.libraries, tmp_path / "small-allocations")
    done = subprocess.run([program], env=os.environ | fake_driver.env(), timeout=60)
    assert done.returncode == 0


def test_two_processes_with_work_share_the_time_of_a_card(fake_driver: FakeDriver) -> None:
    [card] = fake_driver.cards
    with Program(fake_driver.env()) as one, Program(fake_driver.env()) as other:
        assert one("start") == other("start") == [0]
        for program in (one, other):
            program.send("launch", 10_000_000, 10)
        assert one.answer() == other.answer() == [0]
        assert one("sync") == other("sync") == [0]
        busy = [fake_driver.busy_ns_of(program.pid, card) for program in (one, other)]
    assert busy == [100_000_000, 100_000_000]


def test_time_that_a_test_has_taken_passes_only_as_it_says(fake_driver: FakeDriver) -> None:
    [card] = fake_driver.cards
    fake_driver.take_time()
    with Program(fake_driver.env() | {"LD_PRELOAD": str(fake_driver.clock)}) as program:
        assert program("start") == program("launch", 10_000_000, 10) == [0]
        assert fake_driver.busy_ns_of(program.pid, card) == 0
        program.send("sync")
        fake_driver.pass_time(0.05)
        assert fake_driver.busy_ns_of(program.pid, card) == pytest.approx(50_000_000, abs=100_000)
        fake_driver.pass_time(0.06)
        assert fake_driver.busy_ns_of(program.pid, card) == 100_000_000
        fake_driver.pass_time(0.01)  # the program notices a little later
        assert program.answer() == [0]


def test_what_is_done_at_the_instant_up_to_which_time_passes_is_done_when_it_has(fake_driver: FakeDriver) -> None:
    fake_driver.take_time()
    fake_driver.set("launch_ns", 0)
    with Program(fake_driver.env() | {"LD_PRELOAD": str(fake_driver.clock)}) as program:
        assert program("start") == [0]
        program.send("paced", 1000, 1_050_000, 1)
        program.send("launch", 1000, 500)  # at the very instant: who lets time pass wakes 50 us late, too
        fake_driver.pass_time(0.001)
        assert fake_driver.launches_of(program.pid) == 501


def test_what_a_program_was_asked_for_begins_before_time_passes_however_late_it_wakes(fake_driver: FakeDriver) -> None:
    [card] = fake_driver.cards
    fake_driver.take_time()
    with Program(fake_driver.env() | {"LD_PRELOAD": str(fake_driver.clock)}) as program:
        assert program("start") == [0]
        fake_driver.pass_time(0.01)
        assert fake_driver.waits_for_orders(program)
        os.kill(program.pid, signal.SIGSTOP)
        os.waitpid(program.pid, os.WUNTRACED)
        program.send("launch", 10_000_000)
        assert program.has_unread_orders()
        assert fake_driver.waits_for_orders(program)
        os.kill(program.pid, signal.SIGCONT)
        fake_driver.pass_time(0.01)
        assert not program.has_unread_orders()
        fake_driver.pass_time(0.01)
        assert fake_driver.busy_ns_of(program.pid, card) == 10_000_000


STREAMS = r"""
#include <stdio.h>
#include <unistd.h>

enum { NOT_BLOCKING = 1 };
void *module, *kernel, *context, *legacy = NULL, *first, *second, *blocking, *other_blocking;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuStreamCreate(void **, unsigned), cuStreamWaitEvent(void *, void *, unsigned), cuStreamQuery(void *);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventElapsedTime(float *, void *, void *);
int cuLaunchKernel(void *, int, int, int, int, int, int, int, void *, void **, void *);

static void *record(void *stream) {
    void *event;
    cuEventCreate(&event, 0), cuEventRecord(event, stream);
    return event;
}

static void *kernels(void *stream, int count) {
    unsigned long milliseconds = 1000000;
    void *parameters[] = {&milliseconds};
    for (int launched = 0; launched < count; launched++)
        cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    return record(stream);
}

static void tell(void *from, void *to) {
    float milliseconds = -1;
    cuEventElapsedTime(&milliseconds, from, to);
    printf("%.1f ", milliseconds);
}

int main(void) {
    char word;
    if (read(0, &word, 1) != 1) return 2;
    cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
    cuModuleLoadData(&module, "kernels"), cuModuleGetFunction(&kernel, module, "spin");
    cuStreamCreate(&first, NOT_BLOCKING), cuStreamCreate(&second, NOT_BLOCKING);
    cuStreamCreate(&blocking, 0), cuStreamCreate(&other_blocking, 0);

    void *begin = record(first), *four = kernels(first, 4), *one = kernels(second, 1);
    cuStreamWaitEvent(second, four, 0);
    void *after = kernels(second, 1);
    printf("%d %d ", cuStreamQuery(first), cuStreamQuery(blocking));
    cuCtxSynchronize();
    tell(begin, four), tell(begin, one), tell(four, after);

    void *three = (begin = record(blocking), kernels(blocking, 3)), *between = kernels(legacy, 1);
    void *behind = kernels(other_blocking, 1), *beside = kernels(second, 1);
    cuCtxSynchronize();
    tell(begin, three), tell(begin, between), tell(begin, behind), tell(begin, beside);
    fflush(stdout);
    return (int)read(0, &word, 1);
}
"""


def test_streams_of_a_context_take_turns_and_wait_as_they_are_told(fake_driver: FakeDriver, tmp_path: Path) -> None:
    program, said = compile_program(STREAMS, fake_driver.libraries, tmp_path / "streams"), tmp_path / "said"
    fake_driver.take_time()
    env = {**os.environ, **fake_driver.env(), "LD_PRELOAD": str(fake_driver.clock)}
    with (
        said.open("w") as file,
        subprocess.Popen([str(program)], env=env, stdin=subprocess.PIPE, stdout=file, bufsize=0) as running,
    ):
        assert running.stdin is not None
        running.stdin.write(b"b")
        while not said.stat().st_size:
            fake_driver.pass_time(0.1)
        running.communicate()
    busy, idle, *found_ms = said.read_text().split()
    assert (int(busy), int(idle)) == (NOT_READY, 0)
    # Four, and one of the other stream between them; that one; what waits for the four.
    assert [float(each) for each in found_ms[:3]] == [5.0, 2.0, 1.0]
    # Of four streams, the one that waits for none has its turn second; the legacy one waits, and is waited for.
    assert [float(each) for each in found_ms[3:]] == [4.0, 5.0, 6.0, 2.0]


def test_a_checkpoint_frees_the_device_and_restore_brings_the_bytes_back(
    fake_driver: FakeDriver, program: Program, helper: Helper
) -> None:
    [card] = fake_driver.cards
    _, pointer = program("alloc", 64 * MIB)
    program("fill", pointer, 7, 1000)
    assert helper("Checkpoint", program.pid) == ILLEGAL_STATE
    assert helper("Lock", program.pid, 1000) == 0
    assert helper("Checkpoint", program.pid) == 0
    assert fake_driver.state_of(program.pid) is ProcessState.CHECKPOINTED
    assert fake_driver.used_bytes(card) == 0
    assert fake_driver.used_host_bytes() == 64 * MIB
    program.send("sum", pointer, 1000)  # blocks until it is unlocked
    assert helper("Restore", program.pid) == 0
    assert helper("Unlock", program.pid) == 0
    assert program.answer() == [0, 7000]
    assert fake_driver.used_bytes(card) == 64 * MIB
    assert fake_driver.used_host_bytes() == 0


def test_a_lock_that_takes_too_long_leaves_the_process_running(
    fake_driver: FakeDriver, program: Program, helper: Helper
) -> None:
    program("launch", 3600_000_000_000)
    assert helper("Lock", program.pid, 20) == NOT_READY
    assert fake_driver.state_of(program.pid) is ProcessState.RUNNING
    fake_driver.take_time()
    fake_driver.pass_time(3600)
    assert helper("Lock", program.pid, 5000) == 0


def test_nothing_is_heard_of_a_stopped_process_until_it_goes_on(
    fake_driver: FakeDriver, program: Program, helper: Helper
) -> None:
    os.kill(program.pid, signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)
    helper.send("Lock", program.pid, 1)
    assert fake_driver.state_of(program.pid) is ProcessState.RUNNING
    os.kill(program.pid, signal.SIGCONT)
    assert helper.answer() == 0
    assert fake_driver.state_of(program.pid) is ProcessState.LOCKED


def test_restore_meets_memory_taken_by_another(fake_driver: FakeDriver, program: Program, helper: Helper) -> None:
    program("alloc", 4000 * MIB)
    assert helper("Lock", program.pid, 1000) == helper("Checkpoint", program.pid) == 0
    with Program(fake_driver.env()) as thief:
        thief("start")
        assert thief("alloc", 1000 * MIB)[0] == 0
        assert helper("Restore", program.pid) == OUT_OF_MEMORY
        assert fake_driver.state_of(program.pid) is ProcessState.CHECKPOINTED
    assert helper("Restore", program.pid) == 0


def test_managed_memory_cannot_be_checkpointed(fake_driver: FakeDriver, program: Program, helper: Helper) -> None:
    program("managed", MIB)
    assert helper("Lock", program.pid, 1000) == 0
    assert helper("Checkpoint", program.pid) == NOT_SUPPORTED
    fake_driver.mark(program.pid, Use.MPS)
    assert helper("Unlock", program.pid) == 0
    assert helper("Lock", program.pid, 1000) == NOT_SUPPORTED


def test_a_planned_fault_strikes_as_planned(fake_driver: FakeDriver, program: Program, helper: Helper) -> None:
    fake_driver.plan("during checkpoint", Action.FAIL_TARGET, result=999, pid=program.pid)
    assert helper("Lock", program.pid, 1000) == 0
    assert helper("Checkpoint", program.pid) == 999
    assert fake_driver.state_of(program.pid) is ProcessState.FAILED
    fake_driver.plan("cuMemAlloc_v2", result=OUT_OF_MEMORY, skip=1, times=1)
    with Program(fake_driver.env()) as other:
        other("start")
        assert [other("alloc", MIB)[0] for _ in range(3)] == [0, OUT_OF_MEMORY, 0]


def test_a_helper_that_dies_does_not_keep_a_checkpoint_from_ending(
    fake_driver: FakeDriver, program: Program, helper: Helper
) -> None:
    assert helper("Lock", program.pid, 1000) == 0
    fake_driver.set("checkpoint_fixed_ns", 50_000_000)
    fake_driver.plan("during checkpoint", Action.KILL_CALLER)
    with pytest.raises(IndexError):
        helper("Checkpoint", program.pid)
    fake_driver.clear_plan()
    second = Helper(fake_driver.env())
    while fake_driver.state_of(program.pid) is ProcessState.CHECKPOINTING:
        pass
    assert second("Restore", program.pid) == 0
    second.close()


def test_a_restore_map_names_every_card(fake_driver: FakeDriver, program: Program, helper: Helper) -> None:
    fake_driver.add_card(4096)
    assert helper("Lock", program.pid, 1000) == helper("Checkpoint", program.pid) == 0
    source = """
from cuda.bindings import driver
driver.cuInit(0)
cards = [driver.cuDeviceGetUuid(index)[1] for index in range(2)]
def restore(*pairs):
    arguments = driver.CUcheckpointRestoreArgs()
    made = []
    for old, new in pairs:
        pair = driver.CUcheckpointGpuPair()
        pair.oldUuid, pair.newUuid = cards[old], cards[new]
        made.append(pair)
    arguments.gpuPairs, arguments.gpuPairsCount = made, len(made)
    return int(driver.cuCheckpointProcessRestore({pid}, arguments)[0])
print(restore((0, 1)), restore((0, 1), (1, 1)), restore((0, 1), (1, 0)))
"""
    assert run(fake_driver, source.replace("{pid}", str(program.pid))).split() == ["1", "1", "0"]
    assert helper("Unlock", program.pid) == 0
    program("alloc", 2 * MIB)
    assert fake_driver.bytes_of(program.pid, fake_driver.cards[1]) == 2 * MIB


def test_the_bindings_run_a_kernel_and_a_captured_graph(fake_driver: FakeDriver) -> None:
    source = """
import numpy
from cuda.bindings import driver

def ok(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]

ok(driver.cuInit(0))
context = ok(driver.cuDevicePrimaryCtxRetain(0))
ok(driver.cuCtxSetCurrent(context))
kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(b"ptx")), b"spin"))
stream = ok(driver.cuStreamCreate(0))
start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
duration = numpy.array([5_000_000], dtype=numpy.uint64)
parameters = numpy.array([duration.ctypes.data], dtype=numpy.uint64)
launch = lambda: ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters.ctypes.data, 0))
ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
launch(), launch()
graph = ok(driver.cuGraphInstantiate(ok(driver.cuStreamEndCapture(stream)), 0))
ok(driver.cuEventRecord(start, stream))
ok(driver.cuGraphLaunch(graph, stream))
ok(driver.cuEventRecord(end, stream))
ok(driver.cuEventSynchronize(end))
print(ok(driver.cuEventElapsedTime(start, end)), ok(driver.cuDeviceGetName(12, 0)).decode())
"""
    milliseconds, maker, model = run(fake_driver, source).split()
    assert float(milliseconds) >= 10
    assert (maker, model[:4]) == ("NVIDIA", "H200")


def test_nvml_tells_inventory_processes_and_errors(fake_driver: FakeDriver, program: Program) -> None:
    other = fake_driver.add_card(8192)
    fake_driver.link(fake_driver.cards[0], 0, other)
    program("alloc", 64 * MIB)
    fake_driver.plan("nvmlDeviceGetNumaNodeId", result=3)
    source = """
import pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
card = cards[0]
print(pynvml.nvmlDeviceGetMemoryInfo(cards[1]).total >> 20)
print(pynvml.nvmlDeviceGetComputeRunningProcesses(card)[0].pid)
print(pynvml.nvmlDeviceGetUUID(card))
print(pynvml.nvmlDeviceGetNvLinkState(card, 0), pynvml.nvmlDeviceGetTopologyCommonAncestor(*cards))
print(pynvml.nvmlDeviceGetPowerUsage(card) > 0, pynvml.nvmlDeviceGetTotalEnergyConsumption(card) >= 0)
print(pynvml.nvmlDeviceGetTemperature(card, 0), pynvml.nvmlDeviceGetMigMode(card))
try:
    pynvml.nvmlDeviceGetNumaNodeId(card)
except pynvml.NVMLError_NotSupported:
    print("unsupported")
"""
    said = run(fake_driver, source).splitlines()
    assert said[:3] == ["8192", str(program.pid), fake_driver.cards[0].uuid]
    assert said[3:] == ["1 10", "True True", "35 [0, 0]", "unsupported"]


def test_a_lost_card_is_lost_to_every_call(fake_driver: FakeDriver) -> None:
    fake_driver.set_card(fake_driver.cards[0], lost=1)
    source = """
import pynvml
pynvml.nvmlInit()
try:
    pynvml.nvmlDeviceGetHandleByIndex(0)
except pynvml.NVMLError_GpuIsLost:
    print("lost")
"""
    assert run(fake_driver, source) == "lost\n"


def test_an_injected_xid_reaches_whoever_waits(fake_driver: FakeDriver) -> None:
    source = """
import pynvml, sys
pynvml.nvmlInit()
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.nvmlEventTypeXidCriticalError, events)
print("waiting", flush=True)
print(pynvml.nvmlEventSetWait_v2(events, 60000).eventData)
"""
    watcher = subprocess.Popen(
        [sys.executable, "-c", source], env={**os.environ, **fake_driver.env()}, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "waiting\n"
    fake_driver.inject_xid(fake_driver.cards[0], 79)
    assert watcher.communicate(timeout=120)[0] == "79\n"


def test_partitions_have_listed_places_and_do_not_overlap(fake_driver: FakeDriver) -> None:
    source = """
import ctypes, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetMigMode(card, 1)
profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
def create(start):
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, 4)
    try:
        return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(card, profile.id, ctypes.byref(place))
    except pynvml.NVMLError as error:
        return error.value
first = create(0)
print(create(0), create(1), isinstance(create(4), int))
pynvml.nvmlGpuInstanceCreateComputeInstance(first, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE)
slice = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
print(pynvml.nvmlDeviceGetUUID(slice)[:4], pynvml.nvmlDeviceGetAttributes(slice).memorySizeMB)
try:
    pynvml.nvmlGpuInstanceDestroy(first)
except pynvml.NVMLError as error:
    print(error.value)
"""
    if os.geteuid() != 0:
        pytest.skip("the mode of a card is set by root")
    assert run(fake_driver, source).splitlines() == ["23 2 False", "MIG- 2048", "19"]


def test_clients_of_mps_fail_together(fake_driver: FakeDriver, tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    env = fake_driver.env() | {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=64M"}
    with Program(env) as client:
        assert client("start") == [0]
        assert client("alloc", 65 * MIB)[0] == OUT_OF_MEMORY
        fake_driver.break_mps()
        assert client("alloc", MIB)[0] != 0
        with Program(env) as refused:
            assert refused("start")[0] != 0
    with Program(env) as later:
        assert later("start") == [0]


def test_a_bad_access_ends_the_use_of_the_card_by_one_process_alone(fake_driver: FakeDriver, program: Program) -> None:
    with Program(fake_driver.env()) as neighbour:
        assert neighbour("start") == [0]
        assert program("poke", program("alloc", MIB)[1]) == [0]
        assert program("poke", 4096) == [ILLEGAL_ADDRESS]
        assert program("alloc", MIB)[0] == ILLEGAL_ADDRESS
        assert neighbour("alloc", MIB)[0] == 0


def test_a_process_that_is_stopped_in_the_driver_holds_up_nobody(fake_driver: FakeDriver) -> None:
    [card] = fake_driver.cards
    with Program(fake_driver.env()) as program:
        program("start")
        program.send("busy", 1_000, 600_000)
        for _ in range(40):  # one time in twenty it is within a call
            os.kill(program.pid, signal.SIGSTOP)
            wait_until_halted(program.pid)
            fake_driver.used_bytes(card)  # takes the lock that it may have
            wait_until_halted(program.pid)
            os.kill(program.pid, signal.SIGCONT)
            time.sleep(0.001)  # some way on


def wait_until_halted(pid: int) -> None:
    end = time.monotonic() + 60
    while not procfs.is_halted(pid):
        assert time.monotonic() < end, "it runs on"
