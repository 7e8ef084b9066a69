"""A slice gets as much device memory as its cap says, to the byte, whichever way its programs ask for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from allocating import ROWS
from gated import GatedCard, until

from fake_driver.driver import MIB, Action, FakeDriver
from fake_driver.program import Program

OUT_OF_MEMORY, NOT_SUPPORTED = 2, 801
ALLOCATING = Path(__file__).with_name("allocating.py")


def run(card: GatedCard, env: dict[str, str], *command: str) -> str:
    done = subprocess.run([*command], env={**os.environ, **env}, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def linked(card: GatedCard, source: str, target: Path, *flags: str) -> Path:
    """A C program linked against the driver."""
    flags = (*flags, f"-L{card.driver.libraries}", "-lcuda", "-Wl,--allow-shlib-undefined")
    subprocess.run(["gcc", "-x", "c", "-", "-o", target, *flags], input=source, text=True, check=True)
    return target


def test_every_entry_point_is_refused_exactly_at_the_cap_and_refunded(card: GatedCard) -> None:
    task = card.slice(cap_mib=64)
    found = json.loads(run(card, task.env, sys.executable, str(ALLOCATING)))
    exact = {"bytes": 64 * MIB, "again": 64 * MIB, "refusal": OUT_OF_MEMORY, "failed_frees": 0}
    assert found == dict.fromkeys(ROWS, exact)
    assert task.region.usage().used_bytes == 0
    assert task.region.usage().denials == 2 * len(ROWS)


def test_every_function_of_the_driver_that_makes_device_memory_has_a_row(fake_driver: FakeDriver) -> None:
    names = subprocess.run(
        ["nm", "-D", "--defined-only", fake_driver.libraries / "libcuda.so.1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    makes_memory = re.compile(r"^cu(Mem(Alloc|Create)|.*Array(3D)?Create|GraphAdd(MemAlloc)?Node)")
    of_the_host = {"cuMemAllocHost_v2"}
    assert {name for name in names if makes_memory.match(name)} - of_the_host == set(ROWS)


def test_an_allocation_that_the_driver_refuses_costs_nothing(card: GatedCard) -> None:
    task = card.slice(cap_mib=64)
    for name in ROWS:
        card.driver.plan(name.removesuffix("_ptsz"), result=OUT_OF_MEMORY)
    found = json.loads(run(card, task.env, sys.executable, str(ALLOCATING)))
    assert {name for name, row in found.items() if row["bytes"] or row["refusal"] != OUT_OF_MEMORY} == set()
    assert task.region.usage().denials == 0


def test_memory_behind_a_handle_counts_until_it_is_neither_held_nor_mapped(card: GatedCard) -> None:
    source = """
import ctypes
from allocating import *
context, space = c_void_p(), c_uint64()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)
free, total = c_size_t(), c_size_t()
def left():
    cuda.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value // MIB
handle, properties = c_uint64(), AllocationProperties(type=1, location=(1, 0))
cuda.cuMemCreate(byref(handle), c_size_t(2 * MIB), byref(properties), c_uint64(0))
cuda.cuMemAddressReserve(byref(space), c_size_t(2 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
cuda.cuMemMap(space, c_size_t(2 * MIB), c_size_t(0), handle, c_uint64(0))
cuda.cuMemRelease(handle)
print(left())
again = c_uint64()
cuda.cuMemRetainAllocationHandle(byref(again), c_void_p(space.value))
cuda.cuMemUnmap(space, c_size_t(2 * MIB))
print(left())
cuda.cuMemRelease(again)
print(left())
"""
    task = card.slice(cap_mib=64)
    assert card.python(task, source, PYTHONPATH=str(ALLOCATING.parent)).split() == ["62", "62", "64"]


def test_processes_of_one_task_share_its_cap_and_the_dead_give_theirs_back(card: GatedCard) -> None:
    task = card.slice(cap_mib=100)
    other = task.start()
    with Program(task.env) as killed:
        assert killed("start") == [0]
        assert killed("alloc", 60 * MIB)[0] == 0
        assert other("alloc", 41 * MIB)[0] == OUT_OF_MEMORY
        assert other("alloc", 40 * MIB)[0] == 0
        assert task.region.usage().processes.keys() == {killed.pid, other.pid}
    assert other("alloc", 60 * MIB)[0] == 0


TOGETHER = """
#include <pthread.h>
#include <stdio.h>
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(void *); int cuMemGetInfo_v2(unsigned long *, unsigned long *);
static pthread_barrier_t ready;
static void *retain(void *context) {
    pthread_barrier_wait(&ready);
    cuDevicePrimaryCtxRetain(&context, 0);
    return context;
}
int main(void) {
    pthread_t threads[8];
    unsigned long least = ~0ul, available, total;
    void *context;
    cuInit(0), pthread_barrier_init(&ready, 0, 8);
    for (int round = 0; round < 50; round++) {
        for (int index = 0; index < 8; index++) pthread_create(&threads[index], 0, retain, 0);
        for (int index = 0; index < 8; index++) pthread_join(threads[index], &context);
        cuCtxSetCurrent(context), cuMemGetInfo_v2(&available, &total);
        if (available < least) least = available;
        for (int index = 0; index < 8; index++) cuDevicePrimaryCtxRelease_v2(0);
    }
    printf("%lu\\n", least >> 20);
    return 0;
}
"""


def test_a_context_that_threads_retain_together_counts_once(card: GatedCard, tmp_path: Path) -> None:
    task = card.slice(cap_mib=1024, context_mib=100)
    assert run(card, task.env, str(linked(card, TOGETHER, tmp_path / "together", "-pthread"))) == "924\n"
    assert task.region.usage().used_bytes == 0


def test_a_thread_waits_for_another_that_makes_the_context_it_asks_for(card: GatedCard) -> None:
    card.driver.plan("cuDevicePrimaryCtxRetain", Action.HANG, times=1)
    source = """
import os
from allocating import *
def retain():
    return cuda.cuDevicePrimaryCtxRetain(byref(c_void_p()), 0)
cuda.cuInit(0)
begin_stuck(retain)
begin_stuck(retain)
print("both wait", flush=True)
os._exit(0)
"""
    assert card.python(card.slice(), source, PYTHONPATH=str(Path(__file__).parent)) == "both wait\n"


RACING = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long); int cuMemFree_v2(unsigned long long);
int main(int count, char **values) {
    int refused = 0, status;
    for (int child = 0; child < atoi(values[1]); child++) {
        if (fork()) continue;
        void *context; unsigned long long pointer;
        cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
        for (int number = 0; number < 300; number++)
            if (cuMemAlloc_v2(&pointer, 8ul << 20)) refused++;
            else cuMemFree_v2(pointer);
        _exit(refused ? 1 : 0);
    }
    while (wait(&status) > 0) refused += WEXITSTATUS(status);
    printf("%d\\n", refused);
    return count == 0;
}
"""


def test_processes_that_race_for_the_last_of_a_cap_are_refused_nothing_that_fits(
    card: GatedCard, tmp_path: Path
) -> None:
    program = linked(card, RACING, tmp_path / "racing")
    task = card.slice(cap_mib=32)
    assert run(card, task.env, str(program), "4") == "0\n"
    assert task.region.usage().denials == 0
    assert task.region.usage().used_bytes == 0


def test_the_agent_frees_what_a_dead_process_held(card: GatedCard) -> None:
    task = card.slice(cap_mib=100)
    with Program(task.env) as killed:
        killed("start")
        killed("alloc", 60 * MIB)
        assert task.region.reap() == 0
    assert task.region.reap() == 1
    assert task.region.usage().used_bytes == 0


def test_a_cap_can_be_changed_while_the_task_runs(card: GatedCard) -> None:
    task = card.slice(cap_mib=10)
    program = task.start()
    assert program("alloc", 20 * MIB)[0] == OUT_OF_MEMORY
    task.region.set(cap_mib=20)
    assert program("alloc", 20 * MIB)[0] == 0
    task.region.set(cap_mib=5)
    assert program("alloc", MIB)[0] == OUT_OF_MEMORY
    assert program("info") == [0, 0, 5 * MIB]


def test_a_task_sees_its_slice_as_the_whole_card(card: GatedCard) -> None:
    other = card.driver.add_card(8192)
    task = card.slice(cap_mib=512, uuid=card.driver.cards[0].uuid)
    source = """
import pynvml
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
driver.cuMemAlloc(100 << 20)
print([int(word) >> 20 for word in driver.cuMemGetInfo()[1:]], driver.cuDeviceTotalMem(0)[1] >> 20)
pynvml.nvmlInit()
for index in range(2):
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    plain = pynvml.nvmlDeviceGetMemoryInfo(card)
    newer = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
    print([word >> 20 for word in (plain.total, plain.free, plain.used, newer.total, newer.free, newer.used)])
"""
    said = card.python(task, source).splitlines()
    assert said[0] == "[412, 512] 512"
    assert said[1] == "[512, 412, 100, 512, 412, 100]"
    assert said[2].startswith(f"[{other.memory_mib}, ")


def test_a_context_counts_and_a_slice_that_has_no_room_for_one_is_refused(card: GatedCard) -> None:
    task = card.slice(cap_mib=600, context_mib=500)
    program = task.start()
    assert program("info")[1:] == [100 * MIB, 600 * MIB]
    small = card.slice(cap_mib=400, context_mib=500)
    with Program(small.env) as refused:
        assert refused("start") == [OUT_OF_MEMORY]


def test_memory_that_no_call_asked_for_counts_once_the_agent_has_seen_it(card: GatedCard) -> None:
    card.driver.set("context_bytes", 14 * MIB)
    card.driver.set("module_bytes", 10 * MIB)
    task = card.slice(cap_mib=100)
    program = task.start()
    assert program("alloc", 40 * MIB)[0] == 0
    charged = task.region.usage().used_bytes
    on_card = card.driver.bytes_of(program.pid, card.driver.cards[0])
    task.region.match_driver(on_card, charged)
    assert program("info") == [0, 36 * MIB, 100 * MIB]
    assert program("alloc", 37 * MIB)[0] == OUT_OF_MEMORY
    assert program("alloc", 36 * MIB)[0] == 0
    task.region.match_driver(on_card, charged)  # too late: more has been charged since
    task.region.match_driver(0, charged)
    assert program("info") == [0, 0, 100 * MIB]


def test_managed_memory_is_refused_where_a_task_is_to_be_movable(card: GatedCard) -> None:
    program = card.slice(refuse_managed=True).start()
    assert program("managed", MIB)[0] == NOT_SUPPORTED


@pytest.mark.parametrize(("is_movable", "results"), [(True, ["801"] * 3), (False, ["0"] * 3)])
def test_pools_of_managed_memory_are_refused_where_that_is(
    card: GatedCard, is_movable: bool, results: list[str]
) -> None:
    source = """
from ctypes import *
cuda, context, pool = CDLL("libcuda.so.1"), c_void_p(), c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)
MANAGED, ON_THE_DEVICE = 2, (c_int * 2)(1, 0)
print(cuda.cuMemPoolCreate(byref(pool), (c_int * 22)(MANAGED, 0, *ON_THE_DEVICE)))
for get in (cuda.cuMemGetDefaultMemPool, cuda.cuMemGetMemPool):
    result = get(byref(pool), ON_THE_DEVICE, MANAGED)
    print(result or cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(2**21), pool, None))
pinned = [get(byref(pool), ON_THE_DEVICE, 1) for get in (cuda.cuMemGetDefaultMemPool, cuda.cuMemGetMemPool)]
pinned.append(cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(2**21), pool, None))
assert pinned == [0, 0, 0]
"""
    task = card.slice(refuse_managed=is_movable)
    assert card.python(task, source).split() == results


def test_what_a_destroyed_context_held_is_free_again(card: GatedCard) -> None:
    source = """
from allocating import *
context = c_void_p()
cuda.cuInit(0)
for attempt in range(3):
    cuda.cuCtxCreate_v2(byref(context), 0, 0)
    print(fill(ROWS["cuMemAlloc_v2"][1])[0], cuda.cuCtxDestroy_v2(context))
for attempt in range(2):
    cuda.cuDevicePrimaryCtxRetain(byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    print(fill(ROWS["cuMemAlloc_v2"][1])[0], cuda.cuDevicePrimaryCtxRelease_v2(0))
"""
    task = card.slice(cap_mib=20, context_mib=4)
    assert card.python(task, source, PYTHONPATH=str(ALLOCATING.parent)).splitlines() == ["16 0"] * 5


@pytest.mark.parametrize("way", ["cuCtxCreate_v2(byref(other), 0, 0)", "cuDevicePrimaryCtxRetain(byref(other), 0)"])
def test_a_context_is_made_while_the_driver_has_not_ended_another(card: GatedCard, way: str) -> None:
    source = f"""
import os
from allocating import *
ended, other = c_void_p(), c_void_p()
cuda.cuInit(0), cuda.cuCtxCreate_v2(byref(ended), 0, 0)
begin_stuck(lambda: cuda.cuCtxDestroy_v2(ended))
print(cuda.{way}, flush=True)
os._exit(0)
"""
    task = card.slice(context_mib=4)
    card.driver.plan("cuCtxDestroy_v2", Action.HANG)
    assert card.python(task, source, PYTHONPATH=str(ALLOCATING.parent)) == "0\n"


def test_what_a_context_holds_that_was_attached_to_is_free_with_the_last_to_detach(card: GatedCard) -> None:
    source = """
from allocating import *
made, again, free, total = c_void_p(), c_void_p(), c_size_t(), c_size_t()
def left():
    cuda.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value // MIB
cuda.cuInit(0), cuda.cuCtxCreate_v2(byref(made), 0, 0), cuda.cuCtxAttach(byref(again), 0)
cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(10 * MIB))
print(cuda.cuCtxDetach(made), left(), cuda.cuCtxDetach(made))
cuda.cuDevicePrimaryCtxRetain(byref(again), 0), cuda.cuCtxSetCurrent(again)
print(left())
"""
    task = card.slice(cap_mib=64)
    assert card.python(task, source, PYTHONPATH=str(ALLOCATING.parent)).split() == ["0", "54", "0", "64"]


def test_one_slice_that_asks_for_too_much_disturbs_none_of_seven_others(card: GatedCard) -> None:
    tasks = card.programs(*[{"cap_mib": 512}] * 8)
    greedy, *others = [task.program for task in tasks if task.program is not None]
    for program in others:
        program.send("busy", 1_000_000, 300)
    assert greedy("alloc", 513 * MIB)[0] == OUT_OF_MEMORY
    assert greedy("alloc", 512 * MIB)[0] == 0
    assert [program.answer()[0] for program in others] == [0] * 7
    assert [program("alloc", 512 * MIB)[0] for program in others] == [0] * 7
    assert card.driver.used_bytes(card.driver.cards[0]) == 4096 * MIB


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_children_have_a_place_of_their_own_in_the_slice(card: GatedCard, how: str) -> None:
    source = """
import os, subprocess, sys
from allocating import *
def take(how):
    context = c_void_p()
    cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)
    print(how, fill(ROWS["cuMemAlloc_v2"][1])[0], flush=True)
if sys.argv[1] == "child":
    take("child")
elif sys.argv[1] == "exec":
    subprocess.run([sys.executable, "-c", SOURCE, "child"])
elif os.fork() == 0:
    take("child")
else:
    os.wait()
    take("parent")
"""
    source = f"SOURCE = {source!r}\n{source}"
    task = card.slice(cap_mib=30)
    said = run(card, task.env | {"PYTHONPATH": str(ALLOCATING.parent)}, sys.executable, "-c", source, how).splitlines()
    assert said == (["child 30", "parent 30"] if how == "fork" else ["child 30"])
    until(lambda: task.region.usage().processes == {})
