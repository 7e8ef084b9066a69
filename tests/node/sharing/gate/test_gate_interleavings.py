"""Programs of many threads and streams that fork, are signalled and end, by chance: none hangs or breaks, and what the
gate has counted is what they have on the card."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from gated import GatedCard
from holding import WAYS
from sanitized import UNDER, SanitizedCard, what_is_missing

from fake_driver.building import compile_program
from fake_driver.driver import FakeDriver
from seeds import few_then_many

CAP_MIB = 1024
ROUNDS = 10
PLACES = (0, 1, 2, 2)
"""The slices of programs that run at the same time."""

LONGEST_STEP_MS = 1000
"""Beyond what the machine itself did not let a thread run that only sleeps."""

RETURNING, FROM_A_THREAD, AT_ONCE, KILLED = WAYS_TO_END = range(4)
"""With work in flight; the last two while threads go on launching."""

RANDOM_WALK = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long), cuMemGetInfo_v2(size_t *, size_t *);
typedef unsigned u;
int cuLaunchKernel(void *, u, u, u, u, u, u, u, void *, void **, void **);

#define THREADS 5
#define STEPS 30
#define OWN 6
#define GRANULE (2ul << 20)
#define STALL_MS 20
#define WRONG(...) do { fprintf(stderr, __VA_ARGS__); _exit(3); } while (0)

struct thread {
    pthread_t id;
    unsigned seed;
    int streams, allocations;
    void *stream[OWN];
    unsigned long long allocation[OWN];
    size_t granules[OWN];
};
static void *context, *kernel, *shared[2];
static struct thread threads[THREADS];
static int live;
static volatile int goes_on;
static long longest_ms;
static volatile long stalled_ms;

static int below(struct thread *thread, int most) { return (int)(rand_r(&thread->seed) % (unsigned)most); }
static void ignore(int number) { (void)number; }

static void launch(struct thread *thread) {
    void *streams[] = {NULL, (void *)2, shared[0], shared[1], thread->streams ? thread->stream[0] : NULL};
    void *stream = streams[below(thread, 5)];
    for (int count = 1 + below(thread, 8); count > 0; count--) {
        unsigned long long nanoseconds = 1000 + below(thread, 50) * 1000;
        void *parameters[] = {&nanoseconds};
        if (cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL)) WRONG("a launch failed\n");
    }
}

static void fork_one(struct thread *thread) {
    pid_t child = fork();
    if (!child) _exit(0);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status) WRONG("a child ended with %d\n", status);
}

static void step(struct thread *thread) {
    void *again;
    int last;
    switch (below(thread, 12)) {
        case 0:
            if (thread->streams < OWN && cuStreamCreate(&thread->stream[thread->streams++], 1)) WRONG("no stream\n");
            break;
        case 1:
            if (thread->streams && cuStreamDestroy_v2(thread->stream[--thread->streams])) WRONG("a stream stays\n");
            break;
        case 2:
            if ((last = thread->allocations) == OWN) break;
            thread->granules[last] = 1 + (size_t)below(thread, 8);
            if (cuMemAlloc_v2(&thread->allocation[last], thread->granules[last] * GRANULE)) WRONG("no memory\n");
            thread->allocations++;
            break;
        case 3:
            if (thread->allocations && cuMemFree_v2(thread->allocation[--thread->allocations])) WRONG("memory stays\n");
            break;
        case 4:
            if (cuDevicePrimaryCtxRetain(&again, 0) || cuDevicePrimaryCtxRelease_v2(0)) WRONG("the context is lost\n");
            break;
        case 5:
            if (!below(thread, 4)) fork_one(thread);
            break;
        case 6:
            pthread_kill(threads[below(thread, live)].id, SIGUSR1);
            break;
        case 7:
            if (cuCtxSynchronize()) WRONG("the card is lost\n");
            break;
        case 8:
            usleep((unsigned)below(thread, 200));
            break;
        default: launch(thread);
    }
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// How long the machine let nobody here run: what a thread oversleeps that asks for a millisecond at a time.
static void *watch_machine(void *nothing) {
    for (long before = now_ms(), now; !nothing; before = now) {
        usleep(1000);
        now = now_ms();
        if (now - before > STALL_MS) stalled_ms += now - before;
    }
    return nothing;
}

static void *walk(void *given) {
    struct thread *thread = given;
    cuCtxSetCurrent(context);
    for (int number = 0; number < STEPS || goes_on; number++) {
        long from = now_ms(), stalled_before = stalled_ms;
        step(thread);
        long took = now_ms() - from, stalled = stalled_ms - stalled_before;
        if (took > longest_ms + stalled) WRONG("a step took %ld ms, of which the machine stalled %ld\n", took, stalled);
    }
    return NULL;
}

// With signals blocked, so that each thread lives when another one signals it.
static void begin(unsigned seed) {
    sigset_t own;
    sigemptyset(&own), sigaddset(&own, SIGUSR1);
    live = 2 + (int)(seed % (THREADS - 1));
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    for (int index = 0; index < live; index++) {
        threads[index].seed = seed * 31 + (unsigned)index;
        threads[index].id = pthread_self();
    }
    for (int index = 0; index < live; index++) pthread_create(&threads[index].id, NULL, walk, &threads[index]);
}

static void check(size_t at_first) {
    size_t available, total, taken = 0;
    for (int index = 0; index < THREADS; index++)
        for (int number = 0; number < threads[index].allocations; number++)
            taken += threads[index].granules[number] * GRANULE;
    cuMemGetInfo_v2(&available, &total);
    if (available + taken != at_first) WRONG("%zu counted, %zu taken\n", at_first - available, taken);
}

static void *leave(void *code) { exit((int)(long)code); }

int main(int count, char **values) {
    void *module;
    size_t available, total;
    unsigned seed = (unsigned)atol(values[1]);
    int rounds = atoi(values[2]), is_alone = atoi(values[3]), way = atoi(values[4]);
    if (count != 6) return 2;
    longest_ms = atol(values[5]);
    signal(SIGUSR1, ignore);
    pthread_t watch;
    pthread_create(&watch, NULL, watch_machine, NULL);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    cuModuleLoadData(&module, "kernels"), cuModuleGetFunction(&kernel, module, "spin");
    cuStreamCreate(&shared[0], 1), cuStreamCreate(&shared[1], 1);
    cuMemGetInfo_v2(&available, &total);
    for (int round = 0; round < rounds; round++) {
        begin(seed * 1000 + (unsigned)round);
        for (int index = 0; index < live; index++) pthread_join(threads[index].id, NULL);
        if (is_alone) check(available);
    }
    goes_on = way > 1;
    begin(seed);
    usleep(seed % 2000);
    if (way == 2) _exit(0);
    if (way == 3) raise(SIGKILL);
    for (int index = 0; index < live; index++) pthread_join(threads[index].id, NULL);
    launch(&threads[0]);
    if (way == 1) {
        pthread_t last;
        pthread_create(&last, NULL, leave, NULL);
        pause();
    }
    return 0;
}
"""


USES_WHAT_IS_FREE = """
import ctypes
libc, cuda = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
libc.malloc.restype = ctypes.c_void_p
sizes, pointers = ctypes.c_void_p(libc.malloc(8)), (ctypes.c_uint64 * 1)()
libc.free(sizes)
cuda.cuMemcpyBatchAsync_v2(pointers, pointers, sizes, ctypes.c_size_t(1), None, None, ctypes.c_size_t(0), None)
"""
"""In the gate, which looks at the sizes of all copies."""


@pytest.fixture
def program(card: GatedCard, tmp_path: Path) -> Path:
    return compile_program(RANDOM_WALK, card.driver.libraries, tmp_path / "random-walk")


def walk(
    card: GatedCard,
    program: Path,
    programs: int,
    ways_to_end: Sequence[int] = WAYS_TO_END,
    under: Sequence[str] = (),
    longest_ms: int = LONGEST_STEP_MS,
) -> None:
    """Three slices on the card, one of them with two programs; all that they say is of what went wrong."""
    tasks = [card.slice(cap_mib=CAP_MIB, guarantee_milli=milli, context_mib=0) for milli in (200, 300, 500)]
    for first in range(0, programs, len(PLACES)):
        seeds = range(first, first + len(PLACES))
        ways = {seed: ways_to_end[(seed + seed // 4) % len(ways_to_end)] for seed in seeds}
        running = {}
        for (seed, way), place in zip(ways.items(), PLACES, strict=True):
            numbers = (seed, ROUNDS, int(PLACES.count(place) == 1), way, longest_ms)
            command = [*under, str(program), *map(str, numbers)]
            env = {**os.environ, **tasks[place].env}
            running[seed] = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        for seed, each in running.items():
            _, said = each.communicate(timeout=300)
            assert (each.returncode, said) == (-signal.SIGKILL if ways[seed] == KILLED else 0, ""), seed
    for task in tasks:
        task.region.reap()
        usage = task.region.usage()
        assert (usage.processes, usage.used_bytes) == ({}, 0)


@pytest.mark.long
def test_programs_of_many_threads_go_on_and_end_whatever_they_do_meanwhile(card: GatedCard, program: Path) -> None:
    walk(card, program, 8)


@pytest.mark.parametrize("rounds", few_then_many((), [2_000], [10_000]))
def test_thousands_of_rounds_of_many_threads_leave_nothing_behind(card: GatedCard, program: Path, rounds: int) -> None:
    walk(card, program, rounds // ROUNDS)


@pytest.mark.long
def test_sanitizers_find_nothing_in_what_the_gate_does(fake_driver: FakeDriver, tmp_path: Path) -> None:
    if missing := what_is_missing("address"):
        pytest.skip(missing)
    card = SanitizedCard(fake_driver, tmp_path, "address")
    program = compile_program(RANDOM_WALK, fake_driver.libraries, tmp_path / "random-walk")
    walk(card, program, 40, longest_ms=60_000)
    takes_memory_in_every_way = [["allocating.py"], *(["holding.py", way] for way in WAYS)]
    for arguments in takes_memory_in_every_way:
        env = {**os.environ, **card.slice().env}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=Path(__file__).parent,
            input="\n",
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, ""), arguments
    with pytest.raises(AssertionError, match="heap-use-after-free"):
        card.python(card.slice(), USES_WHAT_IS_FREE)


@pytest.mark.long
def test_no_thread_touches_what_another_does_without_a_lock(fake_driver: FakeDriver, tmp_path: Path) -> None:
    if missing := what_is_missing("thread"):
        pytest.skip(missing)
    card = SanitizedCard(fake_driver, tmp_path, "thread")
    program = compile_program(RANDOM_WALK, fake_driver.libraries, tmp_path / "random-walk")
    walk(card, program, 2 * len(PLACES), (RETURNING,), UNDER["thread"], longest_ms=60_000)


@pytest.mark.long
def test_the_gate_touches_no_memory_that_is_not_its_own(card: GatedCard, program: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    valgrind = ("valgrind", "-q", "--error-exitcode=9")
    walk(card, program, len(PLACES), (RETURNING, FROM_A_THREAD), valgrind, longest_ms=60_000)
