"""What the gate says that a slice has on its card is what the driver says, in whatever way a program holds memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gated import GatedCard
from holding import WAYS

from fake_driver.driver import MIB, Action

HOLDING = Path(__file__).with_name("holding.py")
TOLERANCE = 0.02


def figures(card: GatedCard, way: str, cap_mib: int = 2048, context_mib: int = 0) -> tuple[int, int]:
    """Bytes by the gate's count, and by the driver's."""
    card.driver.set("context_bytes", context_mib * MIB)
    task = card.slice(cap_mib=cap_mib, context_mib=context_mib)
    program = subprocess.Popen(
        [sys.executable, str(HOLDING), way],
        env=os.environ | task.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "holds\n"
        found = task.region.usage().used_bytes, card.driver.bytes_of(program.pid, card.driver.cards[0])
        program.communicate("\n")
    assert program.returncode == 0
    assert task.region.usage().used_bytes == 0
    return found


@pytest.mark.parametrize("way", WAYS)
def test_the_count_of_the_gate_is_that_of_the_driver(card: GatedCard, way: str) -> None:
    counted, on_card = figures(card, way, context_mib=20)
    assert on_card >= 25 * MIB
    assert counted == pytest.approx(on_card, rel=TOLERANCE)


POOLS = """
from holding import *
context = c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)
def take(mib):
    return cuda.cuMemAllocAsync(byref(c_uint64()), c_size_t(mib * MIB), None)
def left():
    free, total = c_size_t(), c_size_t()
    cuda.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value // MIB
"""


def said(card: GatedCard, source: str, **settings: int) -> list[str]:
    return card.python(card.slice(**settings), POOLS + source, PYTHONPATH=str(HOLDING.parent)).split()


def test_what_a_pool_keeps_is_given_back_before_an_allocation_is_refused(card: GatedCard) -> None:
    source = "kept_by_the_threshold_of_a_pool(); print(left()); allocate(50 * MIB, 1); print(left())"
    assert said(card, source, cap_mib=64) == ["34", "6"]
    source = "captured_and_launched_no_more(); print(left()); allocate(50 * MIB, 1); print(left())"
    assert said(card, source, cap_mib=64) == ["44", "14"]


def test_memory_of_a_pool_is_freed_while_the_driver_gives_back_what_pools_keep(card: GatedCard) -> None:
    source = """
import os
from allocating import begin_stuck
pointer = c_uint64()
cuda.cuMemAllocAsync(byref(pointer), c_size_t(10 * MIB), None)
begin_stuck(lambda: cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(60 * MIB)))
print(cuda.cuMemFreeAsync(pointer, None), flush=True)
os._exit(0)
"""
    card.driver.plan("cuMemPoolTrimTo", Action.HANG)
    assert said(card, source, cap_mib=64) == ["0"]


def test_an_allocation_for_which_a_pool_takes_more_than_the_cap_is_undone(card: GatedCard) -> None:
    card.driver.set("pool_piece_bytes", 32 * MIB)
    source = "print(take(2), take(30), take(2)); cuda.cuCtxSynchronize(); print(left())"
    assert said(card, source, cap_mib=48) == ["0", "0", "2", "16"]


def test_what_a_pool_has_may_be_used_again_by_a_slice_whose_cap_has_become_less(card: GatedCard) -> None:
    task = card.slice(cap_mib=100)
    source = """
kept_by_the_threshold_of_a_pool()
print(left(), flush=True)
input()
print(take(10), take(40))
"""
    program = subprocess.Popen(
        [sys.executable, "-c", POOLS + source],
        env=os.environ | task.env | {"PYTHONPATH": str(HOLDING.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "70\n"
    task.region.set(cap_mib=20)
    assert program.communicate("\n")[0] == "0 2\n"


def test_a_program_with_hundreds_of_pools_has_all_of_them_counted_and_gives_them_back(card: GatedCard) -> None:
    source = """
about, pools = (c_int * 22)(1, 0, 1, 0), [c_void_p() for _ in range(600)]
results = {cuda.cuMemPoolCreate(byref(pool), about) for pool in pools}
pointers = [c_uint64() for _ in pools]
results |= {cuda.cuMemAllocFromPoolAsync(byref(at), c_size_t(MIB), pool, None) for at, pool in zip(pointers, pools)}
print(*results, left())
results = {cuda.cuMemFreeAsync(at, None) for at in pointers} | {cuda.cuMemPoolDestroy(pool) for pool in pools}
print(*results, left())
"""
    assert said(card, source, cap_mib=2000) == ["0", "800", "0", "2000"]


def test_a_graph_that_needs_more_than_the_cap_is_not_launched(card: GatedCard) -> None:
    source = """
for size in (40, 20, 20):
    runnable = captured(size * MIB)[1]
    print(cuda.cuGraphLaunch(runnable, None), left())
"""
    assert said(card, source, cap_mib=50) == ["0", "10", "2", "10", "2", "10"]


def test_a_heap_for_which_there_is_no_room_is_refused_and_the_former_stays(card: GatedCard) -> None:
    source = """
size = c_size_t()
print(cuda.cuCtxSetLimit(2, c_size_t(64 * MIB)), cuda.cuCtxGetLimit(byref(size), 2), size.value // MIB, left())
"""
    assert said(card, source, cap_mib=40) == ["2", "0", "8", "40"]


WITHIN_THE_CARD = {
    "copies": "cuda.cuMemcpyDtoDAsync_v2(low, high, c_size_t(size), None)",
    "fills": "cuda.cuMemsetD8Async(low, 1, c_size_t(size), None)",
    "fills of a thread's stream": "driver.cuMemsetD8Async(low.value, 1, size, driver.CUstream(2))",
    "fills of rows": "cuda.cuMemsetD2D8Async(low, c_size_t(size // 4), 1, c_size_t(size // 4), c_size_t(4), None)",
    "copies of either memory": "cuda.cuMemcpyAsync(low, high, c_size_t(size), None)",
    "copies from peers": "cuda.cuMemcpyPeerAsync(low, None, high, None, c_size_t(size), None)",
    "several copies": "cuda.cuMemcpyBatchAsync_v2(two(low.value), two(high.value), two(size), c_size_t(2), *batch)",
    "copies of rows": "cuda.cuMemcpy2DAsync_v2(rows(low.value, high.value, size), None)",
}


@pytest.mark.parametrize("way", WITHIN_THE_CARD.values(), ids=WITHIN_THE_CARD)
def test_large_copies_and_fills_are_work_and_small_ones_are_not(card: GatedCard, way: str) -> None:
    card.driver.set("copy_bytes_per_ms", MIB)
    source = f"""
from cuda.bindings import driver
low, high = c_uint64(), c_uint64()
for each in (low, high):
    cuda.cuMemAlloc_v2(byref(each), c_size_t(4 * MIB))
def rows(to, since, size):
    return byref((c_uint64 * 16)(0, 0, 2, 0, since, 0, size // 4, 0, 0, 2, 0, to, 0, size // 4, size // 4, 4))
def two(value):
    return (c_uint64 * 2)(value, value)
batch = None, None, c_size_t(0), None
for size in (MIB // 4, 4 * MIB):
    {way}
cuda.cuCtxSynchronize()
"""
    task = card.slice()
    card.python(task, POOLS + source, PYTHONPATH=str(HOLDING.parent))
    assert task.region.usage().launches == 1


def test_copies_from_and_to_the_host_go_by(card: GatedCard) -> None:
    card.driver.set("copy_bytes_per_ms", MIB)
    source = """
import ctypes
room, memory = ctypes.create_string_buffer(4 * MIB), c_uint64()
cuda.cuMemAlloc_v2(byref(memory), c_size_t(4 * MIB))
host = c_uint64(ctypes.addressof(room))
cuda.cuMemcpyAsync(memory, host, c_size_t(4 * MIB), None), cuda.cuMemcpyAsync(host, memory, c_size_t(4 * MIB), None)
"""
    task = card.slice()
    card.python(task, POOLS + source, PYTHONPATH=str(HOLDING.parent))
    assert task.region.usage().launches == 0
