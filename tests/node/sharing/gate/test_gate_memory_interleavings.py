"""Programs whose threads take memory in every way at the same time, each in contexts, pools and graphs of its own and
of others: whenever they rest, what the gate has counted is what is on the card."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gated import GatedCard, Task
from sanitized import UNDER, SanitizedCard, what_is_missing

from fake_driver.building import compile_program
from fake_driver.driver import MIB, FakeDriver
from seeds import few_then_many

CONTEXT_MIB = 20
ROUNDS = 10
PATIENCE_S = 300

RANDOM_WALK = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
typedef unsigned u;
typedef unsigned long long ull;
int cuInit(u), cuDevicePrimaryCtxRetain(void **, int), cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuCtxCreate_v2(void **, u, int), cuCtxDestroy_v2(void *), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuCtxPushCurrent_v2(void *), cuCtxPopCurrent_v2(void **), cuCtxSetLimit(int, size_t);
int cuStreamCreate(void **, u), cuStreamDestroy_v2(void *), cuStreamSynchronize(void *);
int cuStreamWaitEvent(void *, void *, u), cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **);
int cuEventCreate(void **, u), cuEventDestroy_v2(void *), cuEventRecord(void *, void *), cuEventSynchronize(void *);
int cuLaunchKernel(void *, u, u, u, u, u, u, u, void *, void **, void **);
int cuGraphInstantiateWithFlags(void **, void *, ull), cuGraphLaunch(void *, void *), cuGraphExecDestroy(void *);
int cuGraphDestroy(void *), cuDeviceGraphMemTrim(int), cuMemGetInfo_v2(size_t *, size_t *);
int cuMemAlloc_v2(ull *, size_t), cuMemFree_v2(ull), cuMemAllocAsync(ull *, size_t, void *);
int cuMemFreeAsync(ull, void *), cuMemAllocFromPoolAsync(ull *, size_t, void *, void *);
int cuMemPoolCreate(void **, const void *), cuMemPoolDestroy(void *), cuMemPoolTrimTo(void *, size_t);
int cuMemCreate(ull *, size_t, const void *, ull), cuMemRelease(ull);
int cuMemAddressReserve(ull *, size_t, size_t, ull, ull);
int cuMemMap(ull, size_t, size_t, ull, ull), cuMemUnmap(ull, size_t), cuMemAddressFree(ull, size_t);

#define THREADS 6
#define STEPS 40
#define GRANULE (2ul << 20)
#define WRONG(...) do { fprintf(stderr, __VA_ARGS__); _exit(3); } while (0)
#define OK(call) do { int result_ = (call); if (result_) WRONG("%s: %d\n", #call, result_); } while (0)

static void *context, *kernel, *shared[2], *graph_of_all;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned seed;
static __thread void *stream;

static int below(int most) { return (int)(rand_r(&seed) % (unsigned)most); }
static size_t some(void) { return (1 + (size_t)below(4)) * GRANULE; }

static void launch(void *on) {
    for (int count = 1 + below(6); count > 0; count--) {
        ull nanoseconds = 1000 + (ull)below(60) * 1000;
        void *parameters[] = {&nanoseconds};
        OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, parameters, NULL));
    }
}

static void launch_anywhere(void) { launch(below(2) ? stream : shared[below(2)]); }

// Which others may trim or be destroyed beside, and that may be destroyed before its memory is freed.
static void use_pool_of_its_own(void) {
    void *pool;
    int about[22] = {1, 0, 1, 0}, count = 1 + below(4), is_destroyed_first = below(2);
    ull pointers[4];
    OK(cuMemPoolCreate(&pool, about));
    for (int index = 0; index < count; index++) OK(cuMemAllocFromPoolAsync(&pointers[index], some(), pool, stream));
    launch_anywhere();
    if (is_destroyed_first) OK(cuMemPoolDestroy(pool));
    for (int index = 0; index < count; index++)
        if (below(2)) OK(cuMemFreeAsync(pointers[index], stream));
        else OK(cuMemFree_v2(pointers[index]));
    if (is_destroyed_first) return;
    if (below(2)) OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolDestroy(pool));
}

static void use_pool_of_all(void) {
    ull pointers[2];
    for (int index = 0; index < 2; index++) OK(cuMemAllocAsync(&pointers[index], some(), stream));
    launch_anywhere();
    for (int index = 0; index < 2; index++) OK(cuMemFreeAsync(pointers[index], stream));
}

// Launched on while another is current, and destroyed with all that is left in it.
static void use_context_of_its_own(void) {
    void *own, *inner;
    ull pointer;
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuMemAlloc_v2(&pointer, some()));
    OK(cuCtxSetLimit(2, (16ul + 16ul * (size_t)below(3)) << 20));
    OK(cuStreamCreate(&inner, 1));
    launch(inner), launch(NULL), launch((void *)2);
    OK(cuCtxPopCurrent_v2(NULL));
    launch(inner), launch(shared[0]);
    OK(cuCtxPushCurrent_v2(own));
    if (below(2)) OK(cuMemFree_v2(pointer));
    if (below(2)) OK(cuStreamDestroy_v2(inner));
    if (below(2)) OK(cuCtxSynchronize());
    OK(cuCtxDestroy_v2(own));
    OK(cuCtxSetCurrent(context));
}

// For others to launch; what they launched before goes.
static void capture(void) {
    void *graph, *runnable;
    ull pointer;
    int allocates = below(2);
    OK(cuStreamBeginCapture_v2(stream, 2));
    if (allocates) OK(cuMemAllocAsync(&pointer, some(), stream));
    launch(stream);
    if (allocates) OK(cuMemFreeAsync(pointer, stream));
    OK(cuStreamEndCapture(stream, &graph));
    pthread_mutex_lock(&mutex);
    OK(cuGraphInstantiateWithFlags(&runnable, graph, 0));
    OK(cuGraphLaunch(runnable, stream));
    if (graph_of_all) OK(cuGraphExecDestroy(graph_of_all));
    graph_of_all = runnable;
    pthread_mutex_unlock(&mutex);
    OK(cuGraphDestroy(graph));
}

static void launch_graph_of_all(void) {
    pthread_mutex_lock(&mutex);
    if (graph_of_all) OK(cuGraphLaunch(graph_of_all, stream));
    pthread_mutex_unlock(&mutex);
}

static void map(void) {
    struct { int type, handles, location[2]; void *metadata; ull flags; } about = {1, 0, {1, 0}, NULL, 0};
    ull handle, space;
    size_t bytes = some();
    int is_released_first = below(2);
    OK(cuMemCreate(&handle, bytes, &about, 0));
    OK(cuMemAddressReserve(&space, bytes, 0, 0, 0));
    OK(cuMemMap(space, bytes, 0, handle, 0));
    if (is_released_first) OK(cuMemRelease(handle));
    launch_anywhere();
    OK(cuMemUnmap(space, bytes));
    if (!is_released_first) OK(cuMemRelease(handle));
    OK(cuMemAddressFree(space, bytes));
}

static void wait_for_another_stream(void) {
    void *event;
    OK(cuEventCreate(&event, 0));
    launch(shared[0]);
    OK(cuEventRecord(event, shared[0]));
    OK(cuStreamWaitEvent(stream, event, 0));
    launch(stream);
    if (below(2)) OK(cuEventSynchronize(event));
    OK(cuEventDestroy_v2(event));
}

static void fork_one(void) {
    pid_t child = fork();
    int status;
    if (!child) _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status) WRONG("a child ended with %d\n", status);
}

static void use_another_stream(void) {
    OK(cuStreamDestroy_v2(stream));
    OK(cuStreamCreate(&stream, 1));
}

static void *walk(void *given) {
    static void (*const ways[])(void) = {
        use_pool_of_its_own, use_pool_of_all, use_context_of_its_own, capture, launch_graph_of_all,
        map, wait_for_another_stream, use_another_stream, launch_anywhere,
    };
    seed = (unsigned)(uintptr_t)given;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    for (int number = 0; number < STEPS; number++) {
        int way = below(12);
        if (way < 9) ways[way]();
        else if (way == 9) OK(cuCtxSynchronize());
        else if (way == 10) OK(cuStreamSynchronize(stream));
        else if (!below(4)) fork_one();
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

// Says what is counted, and reads what is on the card.
static void check(size_t at_first) {
    size_t available, total, on_card;
    OK(cuCtxSynchronize());
    cuMemGetInfo_v2(&available, &total);
    printf("counted\n"), fflush(stdout);
    if (scanf("%zu", &on_card) != 1) _exit(4);
    if (total - available != on_card) WRONG("%zu counted, %zu on the card\n", total - available, on_card);
    if (graph_of_all) OK(cuGraphExecDestroy(graph_of_all));
    graph_of_all = NULL;
    OK(cuDeviceGraphMemTrim(0));
    cuMemGetInfo_v2(&available, &total);
    if (available != at_first) WRONG("%zu counted, and nothing taken\n", at_first - available);
}

int main(int count, char **values) {
    void *module;
    pthread_t threads[THREADS];
    size_t at_first, total;
    unsigned first = (unsigned)atol(values[1]);
    if (count != 3) return 2;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, "kernels"));
    OK(cuModuleGetFunction(&kernel, module, "spin"));
    for (int index = 0; index < 2; index++) OK(cuStreamCreate(&shared[index], 1));
    cuMemGetInfo_v2(&at_first, &total);
    for (int round = 0; round < atoi(values[2]); round++) {
        uintptr_t live = 2 + (first + (unsigned)round) % (THREADS - 1);
        for (uintptr_t index = 0; index < live; index++)
            pthread_create(&threads[index], NULL, walk, (void *)((first * 1000 + (unsigned)round) * 31 + index));
        for (uintptr_t index = 0; index < live; index++) pthread_join(threads[index], NULL);
        check(at_first);
    }
    return 0;
}
"""


def run(card: GatedCard, command: Sequence[str], task: Task, seed: int) -> tuple[int, str]:
    """The program's end, and what it said of what went wrong."""
    pipe, env = subprocess.PIPE, {**os.environ, **task.env}
    with subprocess.Popen(
        [*command, str(seed), str(ROUNDS)], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as walker:
        assert walker.stdin is not None
        assert walker.stdout is not None
        assert walker.stderr is not None
        late = threading.Timer(PATIENCE_S, walker.kill)
        late.start()
        for _ in walker.stdout:
            walker.stdin.write(f"{card.driver.bytes_of(walker.pid, card.driver.cards[0])}\n")
            walker.stdin.flush()
        said = walker.stderr.read()
        late.cancel()
    return walker.returncode, said


def walk(card: GatedCard, folder: Path, programs: int, under: Sequence[str] = ()) -> None:
    """Three slices with a program each at a time."""
    card.driver.set("context_bytes", CONTEXT_MIB * MIB)
    command = [*under, str(compile_program(RANDOM_WALK, card.driver.libraries, folder / "walk"))]
    tasks = [card.slice(context_mib=CONTEXT_MIB, guarantee_milli=milli) for milli in (200, 300, 500)]
    with ThreadPoolExecutor(len(tasks)) as walkers:
        for first in range(0, programs, len(tasks)):
            seeds = range(first, first + len(tasks))
            found = walkers.map(lambda task, seed: run(card, command, task, seed), tasks, seeds)
            assert list(found) == [(0, "")] * len(tasks), first


@pytest.mark.parametrize("rounds", few_then_many([60], [1_000], [10_000]))
def test_what_many_threads_take_in_every_way_is_counted_as_it_is_on_the_card(
    card: GatedCard, tmp_path: Path, rounds: int
) -> None:
    walk(card, tmp_path, rounds // ROUNDS)


@pytest.mark.long
def test_no_thread_touches_what_another_does_as_both_take_memory(fake_driver: FakeDriver, tmp_path: Path) -> None:
    if missing := what_is_missing("thread"):
        pytest.skip(missing)
    walk(SanitizedCard(fake_driver, tmp_path, "thread"), tmp_path, 6, UNDER["thread"])
