"""A process has its place in its slice, and its limits, whatever it makes of its files and its environment."""

from __future__ import annotations

import fcntl
import os
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from gated import GatedCard, Task, last_launch_ns, until, write_slot

from fake_driver.building import compile_program
from fake_driver.driver import MIB, Action
from fake_driver.program import Program
from millpond.node.sharing.gate.region import USAGE

OUT_OF_MEMORY = 2
CHARGE_LOCK = 4096

PROGRAM = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
typedef unsigned u;
typedef unsigned long long pointer;
int cuInit(u), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuMemAlloc_v2(pointer *, size_t), cuMemAllocAsync(pointer *, size_t, void *);
int cuLaunchKernel(void *, u, u, u, u, u, u, u, void *, void **, void **);
static void *context, *module, *kernel;
static int start(void) {
    int result = cuInit(0);
    if (!result) result = cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuModuleLoadData(&module, "kernels"), cuModuleGetFunction(&kernel, module, "spin");
    return result;
}
static int take(size_t mib) {
    pointer found;
    return cuMemAlloc_v2(&found, mib << 20);
}
static pointer nanoseconds = 100000;
static void launch(void) {
    void *parameters[] = {&nanoseconds};
    cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}
static void close_all(void) {
    for (int file = 3; file < 256; file++) close(file);
}
static struct sigaction before;
static void pass_on(int number) {
    sigaction(number, &before, NULL);
    raise(number);
}
static void say(int number) { printf("%d\n", number), fflush(stdout); }
static void ask_for_memory_of_the_card(void) {
    struct { pointer total, available, used; } memory;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    ((int (*)(void))dlsym(library, "nvmlInit_v2"))();
    ((int (*)(u, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    ((int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo"))(device, &memory);
    say((int)(memory.total >> 20));
}
static void *launch_in_a_thread(void *nothing) {
    cuCtxSetCurrent(context);
    launch();
    return nothing;
}
int main(int count, char **values) {
    BODY
    return 0;
}
"""


def program(card: GatedCard, body: str) -> Path:
    return compile_program(PROGRAM.replace("BODY", body), card.driver.libraries, card.folder / "program")


def said(task: Task, program: Path, **env: str) -> str:
    done = subprocess.run([program], env={**os.environ, **task.env, **env}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def started(task: Task, program: Path, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    pipe, command, env = subprocess.PIPE, [str(program), *arguments], {**os.environ, **task.env}
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def test_a_process_that_closes_all_files_keeps_what_it_has_and_its_place(card: GatedCard) -> None:
    task = card.slice(cap_mib=64)
    body = "start(), take(40), close_all(), say(0), getchar(), launch(), cuCtxSynchronize(), getchar(), getchar();"
    with started(task, program(card, body)) as closing:
        assert closing.stdout is not None
        assert closing.stdin is not None
        assert closing.stdout.readline() == "0\n"
        assert task.region.reap() == 0
        assert task.region.usage().used_bytes == 40 * MIB
        with Program(task.env) as other:
            assert other("start") == [0]
            assert other("alloc", 40 * MIB)[0] == OUT_OF_MEMORY
        closing.stdin.write("\n")
        until(lambda: set(task.region.usage().processes) == {closing.pid})
        closing.stdin.write("\n\n")
    assert task.region.usage().used_bytes == 0


def test_locks_of_a_file_that_a_program_opened_in_place_of_the_gates_stay(card: GatedCard) -> None:
    own = card.folder / "own"
    own.write_bytes(bytes(2 * CHARGE_LOCK))
    body = """
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    start(), close_all();
    for (int file = 3; file < 9; file++) open(values[1], O_RDWR);
    say(fcntl(8, F_SETLK, &all)), take(40), say(take(40)), getchar();
"""
    with started(card.slice(cap_mib=64), program(card, body), str(own)) as locking, own.open("r+b") as file:
        assert locking.stdout is not None
        assert [locking.stdout.readline() for _ in range(2)] == ["0\n", "2\n"]
        for byte in (0, 1, CHARGE_LOCK):
            with pytest.raises(BlockingIOError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        locking.communicate("\n")


def test_a_child_that_closes_all_files_has_a_place_of_its_own(card: GatedCard) -> None:
    body = """
    ask_for_memory_of_the_card();
    if (!fork()) close_all(), say(start()), say(take(65)), say(take(64)), _exit(0);
    wait(NULL);
"""
    assert said(card.slice(cap_mib=64), program(card, body)) == "64\n0\n2\n0\n"


@pytest.mark.parametrize("is_required", [False, True])
def test_a_process_that_clears_its_environment_has_its_limits_all_the_same(card: GatedCard, is_required: bool) -> None:
    body = 'unsetenv("MILLPOND_GATE"), unsetenv("LD_PRELOAD"), say(start()), say(take(65)), say(take(64));'
    env = {"MILLPOND_GATE_REQUIRED": "1"} if is_required else {}
    assert said(card.slice(cap_mib=64), program(card, body), **env) == "0\n2\n0\n"


@pytest.mark.parametrize("damage", [b"", b"\xff" * 4096], ids=["cut short", "garbage"])
def test_a_card_file_that_a_neighbour_damaged_keeps_no_program_from_starting(card: GatedCard, damage: bytes) -> None:
    task = card.slice(cap_mib=64)
    (card.card_folder / "card").write_bytes(damage)
    with Program(task.env | {"MILLPOND_GATE_REQUIRED": "1"}) as started:
        assert started("start") == [0]
        assert started("launch", 1000, 3) == [0]
        assert started("alloc", 65 * MIB)[0] == OUT_OF_MEMORY
    assert not task.region.verify_card()
    assert task.region.verify_card()


def test_a_program_that_passes_bus_errors_on_outlives_a_card_file_that_is_cut_short(card: GatedCard) -> None:
    body = """
    struct sigaction own = {.sa_handler = pass_on, .sa_flags = SA_NODEFER};
    start(), launch();
    sigaction(SIGBUS, &own, &before);
    for (int times = 0; times < 3; times++) {
        if (truncate("CARD", 0)) return 1;
        for (int launches = 0; launches < 1000; launches++) launch();
    }
    say(cuCtxSynchronize());
    """
    body = body.replace("CARD", str(card.card_folder / "card"))
    assert said(card.slice(), program(card, body)) == "0\n"


def test_a_program_that_has_closed_its_output_does_not_get_a_file_of_the_gate_in_place_of_it(card: GatedCard) -> None:
    body = """
    char opened[3][4096] = {{0}};
    close(0), close(1);
    if (start()) return 2;
    for (int file = 0; file < 3; file++) {
        char name[32];
        snprintf(name, sizeof name, "/proc/self/fd/%d", file);
        if (readlink(name, opened[file], 4095) > 0 && strstr(opened[file], "/usage")) return 3;
    }
"""
    assert said(card.slice(), program(card, body)) == ""


def test_a_program_may_count_itself_in_its_slice_whichever_user_it_becomes(card: GatedCard) -> None:
    assert (card.slice().region.folder / USAGE).stat().st_mode & 0o777 == 0o666


def test_a_program_whose_user_may_not_open_its_gate_is_told_so(card: GatedCard) -> None:
    task = card.slice()
    usage = task.region.folder / USAGE
    usage.chmod(0)
    path = program(card, "if (!geteuid() && setuid(65534)) return 2; say(start());")
    env = {**os.environ, **task.env, "MILLPOND_GATE_REQUIRED": "1"}
    done = subprocess.run([path], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "802\n"
    reason = f"millpond: no gate in {task.region.folder}, which this user may not open"
    assert done.stderr == f"{reason}; this program is refused the card\n"


def test_what_a_thread_counted_as_its_process_ended_is_no_charge(card: GatedCard) -> None:
    task = card.slice(cap_mib=64)
    program = task.start()
    with Program(task.env) as ending:
        assert ending("start") == [0]
    write_slot(task, 1, pid=0, used_bytes=60 * MIB)
    assert program("alloc", 40 * MIB)[0] == 0
    write_slot(task, 1, pid=0, used_bytes=60 * MIB)
    assert task.region.reap() == 1
    assert program("info")[1] == 24 * MIB


def test_a_halted_process_that_has_the_lock_of_the_cap_does_not_halt_the_others(timed_card: GatedCard) -> None:
    task = timed_card.slice(cap_mib=64)
    program = task.start()
    assert program("alloc", 40 * MIB)[0] == 0
    with (task.region.folder / USAGE).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, CHARGE_LOCK)
        program.send("alloc", 40 * MIB)
        timed_card.until(program.has_answered)
    assert program.answer()[0] == OUT_OF_MEMORY


def test_a_halted_process_that_is_about_to_take_memory_does_not_halt_the_others(card: GatedCard) -> None:
    task = card.slice(cap_mib=64)
    program = task.start()
    with Program(task.env) as second:
        assert second("start") == [0]
    write_slot(task, 1, claimed_bytes=60 * MIB)
    with (task.region.folder / USAGE).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)  # its process lives
        program.send("alloc", 40 * MIB)
        until(program.has_answered)
        assert program.answer()[0] == OUT_OF_MEMORY
    assert program("alloc", 40 * MIB)[0] == 0


def test_a_thread_that_is_cancelled_while_it_is_held_back_leaves_nothing_behind(card: GatedCard) -> None:
    task = card.slice()
    body = """
    pthread_t thread;
    start(), say(0), getchar();
    pthread_create(&thread, NULL, launch_in_a_thread, NULL);
    say(0), getchar();
    pthread_cancel(thread), say(0), pthread_join(thread, NULL), say(0), getchar();
"""
    with started(task, program(card, body)) as cancelling:
        assert cancelling.stdout is not None
        assert cancelling.stdin is not None
        cancelling.stdout.readline()
        task.region.set(paused=True)
        cancelling.stdin.write("\n")
        cancelling.stdout.readline()
        until(lambda: any(slot.last_launch_ns for slot in task.region.usage().processes.values()))
        cancelling.stdin.write("\n")
        cancelling.stdout.readline()
        task.region.set(paused=False)
        cancelling.stdout.readline()
        until(lambda: task.region.usage().launches == 1)
        cancelling.communicate("\n")


@pytest.mark.parametrize("milliseconds", [0.1, 20])  # of so much, two in flight keep others back
def test_a_thread_in_a_launch_keeps_no_other_back_for_ever_and_cancelled_leaves_no_work_that_never_ends(
    card: GatedCard, milliseconds: float
) -> None:
    task = card.slice()
    body = f"""
    pthread_t thread;
    nanoseconds = {milliseconds * 1e6:.0f};
    start(), launch(), cuCtxSynchronize(), nanoseconds = 100000, say(0), getchar();
    pthread_create(&thread, NULL, launch_in_a_thread, NULL), say(0), getchar();
    for (int number = 0; number < 5; number++) launch();
    pthread_cancel(thread), pthread_join(thread, NULL);
    for (int number = 0; number < 600; number++) launch();
    cuCtxSynchronize(), say(0), getchar();
"""
    with started(task, program(card, body)) as cancelling:
        assert cancelling.stdout is not None
        assert cancelling.stdin is not None
        cancelling.stdout.readline()
        until(lambda: task.region.usage().launches == 1)
        before = last_launch_ns(task)
        card.driver.plan("cuLaunchKernel", Action.HANG, pid=cancelling.pid, times=1)
        cancelling.stdin.write("\n")
        cancelling.stdout.readline()
        until(lambda: last_launch_ns(task) != before)
        cancelling.stdin.write("\n")
        assert cancelling.stdout.readline() == "0\n"
        until(lambda: task.region.usage().launches == 607)
        until(lambda: [slot.in_flight for slot in task.region.usage().processes.values()] == [0])
        cancelling.communicate("\n")


AN_HOUR_AHEAD = ("unshare", "--time", "--monotonic", "3600")


@pytest.mark.long
def test_a_process_with_a_clock_of_its_own_uses_up_no_time_to_come_of_the_others(card: GatedCard) -> None:
    if subprocess.run([*AN_HOUR_AHEAD, "true"], capture_output=True).returncode:
        pytest.skip("no time namespace may be made here")
    task, path = card.slice(limit_milli=500), program(card, "start(); for (int n = 0; n < 200; n++) launch();")
    for command in ([*AN_HOUR_AHEAD, path], [path], [*AN_HOUR_AHEAD, path]):
        subprocess.run(command, env={**os.environ, **task.env}, check=True, timeout=60)
    assert task.region.usage().launches > 0


WITHOUT_THREADS = """
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
int pthread_create(void *thread, const void *attributes, void *(*run)(void *), void *argument) {
    static int refused;
    int (*next)() = dlsym(RTLD_NEXT, "pthread_create");
    return refused++ < 3 ? EAGAIN : next(thread, attributes, run, argument);
}
"""


def test_a_program_that_may_have_no_threads_for_a_while_is_measured_once_it_may(
    timed_card: GatedCard, tmp_path: Path
) -> None:
    library = tmp_path / "libnothreads.so"
    command = ["gcc", "-w", "-shared", "-fPIC", "-D_GNU_SOURCE", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=WITHOUT_THREADS, text=True, check=True)
    task = timed_card.slice()
    task.env["LD_PRELOAD"] = f"{library}{os.pathsep}{task.env['LD_PRELOAD']}"
    program = task.start()
    for _ in range(4):
        assert program("launch", 1000) == [0]
        timed_card.pass_time(0.05)
    before = task.region.usage()
    assert program("launch", 1000, 3) == [0]
    timed_card.until(lambda: task.region.usage().launches == before.launches + 3)
    assert task.region.usage().unmeasured == before.unmeasured


def test_an_allocation_that_the_driver_refuses_needs_no_place_for_its_pointer(card: GatedCard) -> None:
    card.driver.plan("cuMemAllocAsync", result=1)
    assert said(card.slice(), program(card, "start(), say(cuMemAllocAsync(NULL, 1 << 20, NULL));")) == "1\n"
