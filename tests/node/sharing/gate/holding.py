"""Run behind a gate: holds device memory in one way, says so, and waits; each function is one way.

It gives back what the program waits with, so that nothing is freed before the test has looked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from allocating import MIB, AllocationProperties, AllocNode, Array3dDescriptor, cuda


def allocate(size: int, count: int) -> None:
    for _ in range(count):
        assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(size)) == 0


def many_small_ones() -> None:
    allocate(1000, 40_000)


def some_of_small_ones_freed() -> None:
    pointers = [c_uint64() for _ in range(40_000)]
    for pointer in pointers:
        assert cuda.cuMemAlloc_v2(byref(pointer), c_size_t(1000)) == 0
    for pointer in pointers[20_000:]:
        assert cuda.cuMemFree_v2(pointer) == 0


def just_above_a_granule() -> None:
    allocate(2 * MIB + 1, 20)


def below_a_granule() -> None:
    allocate(3 * MIB // 2, 20)


def of_all_sizes() -> None:
    for power in range(9, 26):
        allocate(2**power + 2 ** (power - 2), 3)


def rows() -> None:
    for _ in range(10):
        assert cuda.cuMemAllocPitch_v2(byref(c_uint64()), byref(c_size_t()), c_size_t(1000), c_size_t(3000), 4) == 0


def managed() -> None:
    for _ in range(10):
        assert cuda.cuMemAllocManaged(byref(c_uint64()), c_size_t(5 * MIB), 1) == 0


def pooled(count: int = 20) -> list[c_uint64]:
    pointers = [c_uint64() for _ in range(count)]
    for pointer in pointers:
        assert cuda.cuMemAllocAsync(byref(pointer), c_size_t(1500 * 1000), None) == 0
    return pointers


def free(pointers: list[c_uint64]) -> None:
    for pointer in pointers:
        assert cuda.cuMemFreeAsync(pointer, None) == 0


def in_a_pool() -> None:
    pooled()


def freed_to_a_pool() -> None:
    free(pooled())


def freed_to_a_pool_and_waited() -> None:
    free(pooled()[:15])
    cuda.cuCtxSynchronize()


def current_pool() -> c_void_p:
    pool = c_void_p()
    assert cuda.cuDeviceGetMemPool(byref(pool), 0) == 0
    return pool


def kept_by_the_threshold_of_a_pool() -> None:
    assert cuda.cuMemPoolSetAttribute(current_pool(), 4, byref(c_uint64(2**64 - 1))) == 0
    free(pooled()[:15])
    cuda.cuCtxSynchronize()


def trimmed_from_a_pool() -> None:
    kept_by_the_threshold_of_a_pool()
    assert cuda.cuMemPoolTrimTo(current_pool(), c_size_t(0)) == 0


def used_again_from_a_pool() -> None:
    kept_by_the_threshold_of_a_pool()
    pooled(12)


def pool_with_an_allocation() -> tuple[c_void_p, c_uint64]:
    pool, pointer, properties = c_void_p(), c_uint64(), (c_int * 22)(1, 0, 1, 0)
    assert cuda.cuMemPoolCreate(byref(pool), properties) == 0
    assert cuda.cuMemAllocFromPoolAsync(byref(pointer), c_size_t(20 * MIB), pool, None) == 0
    return pool, pointer


def in_a_pool_that_is_destroyed() -> None:
    pool, pointer = pool_with_an_allocation()
    assert cuda.cuMemFree_v2(pointer) == 0
    assert cuda.cuMemPoolDestroy(pool) == 0
    allocate(10 * MIB, 1)


def in_a_pool_that_was_destroyed_before() -> None:
    pool, _ = pool_with_an_allocation()
    assert cuda.cuMemPoolDestroy(pool) == 0


def freed_to_a_pool_that_was_destroyed_before() -> None:
    for free in (lambda pointer: cuda.cuMemFreeAsync(pointer, None), cuda.cuMemFree_v2):
        pool, pointer = pool_with_an_allocation()
        assert cuda.cuMemPoolDestroy(pool) == 0
        assert free(pointer) == 0
    cuda.cuCtxSynchronize()
    allocate(10 * MIB, 1)


def in_a_pool_that_nobody_may_destroy() -> None:
    pooled()
    assert cuda.cuMemPoolDestroy(current_pool()) != 0
    pooled()


def in_a_pool_of_the_host() -> None:
    pool, properties = c_void_p(), (c_int * 22)(1, 0, 2, 0)
    assert cuda.cuMemPoolCreate(byref(pool), properties) == 0
    assert cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(200 * MIB), pool, None) == 0
    allocate(10 * MIB, 1)


def in_default_pools_of_the_host() -> None:
    pool, on_the_host = c_void_p(), (c_int * 2)(2, 0)
    for get in (cuda.cuMemGetDefaultMemPool, cuda.cuMemGetMemPool):
        assert get(byref(pool), on_the_host, 1) == 0
        assert cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(100 * MIB), pool, None) == 0
    allocate(10 * MIB, 1)


def captured(size: int = 20 * MIB) -> tuple[c_void_p, c_void_p]:
    stream, graph, runnable, pointer = c_void_p(), c_void_p(), c_void_p(), c_uint64()
    assert cuda.cuStreamCreate(byref(stream), 1) == 0
    assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
    assert cuda.cuMemAllocAsync(byref(pointer), c_size_t(size), stream) == 0
    assert cuda.cuMemFreeAsync(pointer, stream) == 0
    assert cuda.cuStreamEndCapture(stream, byref(graph)) == 0
    assert cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)) == 0
    return graph, runnable


def captured_and_not_launched() -> None:
    captured()
    allocate(10 * MIB, 1)


def captured_and_launched() -> None:
    graph, runnable = captured()
    assert cuda.cuGraphDestroy(graph) == 0
    for _ in range(3):
        assert cuda.cuGraphLaunch(runnable, None) == 0


def captured_and_launched_no_more() -> None:
    _, runnable = captured()
    assert cuda.cuGraphLaunch(runnable, None) == 0
    assert cuda.cuGraphExecDestroy(runnable) == 0


def captured_and_trimmed() -> None:
    captured_and_launched_no_more()
    assert cuda.cuDeviceGraphMemTrim(0) == 0
    allocate(10 * MIB, 1)


def freed_in_a_capture() -> None:
    stream, graph, pointer = c_void_p(), c_void_p(), c_uint64()
    assert cuda.cuStreamCreate(byref(stream), 1) == 0
    assert cuda.cuMemAlloc_v2(byref(pointer), c_size_t(20 * MIB)) == 0
    assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
    assert cuda.cuMemFreeAsync(pointer, stream) == 0
    assert cuda.cuStreamEndCapture(stream, byref(graph)) == 0


def a_graph_with_a_node() -> None:
    graph, node = c_void_p(), c_void_p()
    assert cuda.cuGraphCreate(byref(graph), 0) == 0
    about = AllocNode(bytes=100 * MIB)
    assert cuda.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(about)) == 0
    allocate(10 * MIB, 1)


def by_handle(location: int = 1) -> c_uint64:
    handle, properties = c_uint64(), AllocationProperties(type=1, location=(location, 0))
    assert cuda.cuMemCreate(byref(handle), c_size_t(20 * MIB), byref(properties), c_uint64(0)) == 0
    return handle


def held_by_a_mapping() -> None:
    handle, space = by_handle(), c_uint64()
    cuda.cuMemAddressReserve(byref(space), c_size_t(20 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
    assert cuda.cuMemMap(space, c_size_t(20 * MIB), c_size_t(0), handle, c_uint64(0)) == 0
    assert cuda.cuMemRelease(handle) == 0


def by_handle_of_the_host() -> None:
    for location in (2, 3, 4):
        by_handle(location)
    allocate(10 * MIB, 1)


def exported_and_released() -> None:
    handle = by_handle()
    assert cuda.cuMemExportToShareableHandle(byref(c_int()), handle, 1, c_uint64(0)) == 0
    assert cuda.cuMemRelease(handle) == 0


def mapped_into_an_array() -> None:
    handle = by_handle()
    about = (c_uint64 * 12)(0, 0, 0, 0, 0, 0, 0, 1, handle.value)  # word 7: the operation, and the kind of handle
    assert cuda.cuMemMapArrayAsync(about, 1, None) == 0
    assert cuda.cuMemRelease(handle) == 0


def levels_of_many_layers() -> None:
    about, layered = Array3dDescriptor(1024, 1024, 6, 0x20, 1, 0x01), c_void_p()
    assert cuda.cuMipmappedArrayCreate(byref(layered), byref(about), 11) == 0


def mapped_into_later() -> None:
    allocate(10 * MIB, 1)
    for flag in (0x40, 0x80):
        about, sparse = Array3dDescriptor(2048, 2048, 0, 0x20, 4, flag), c_void_p()
        assert cuda.cuArray3DCreate_v2(byref(sparse), byref(about)) == 0


def bound_to_a_multicast_object() -> None:
    multicast = c_uint64(0x1000000)
    for unbound in (True, False):
        handle = by_handle()
        assert cuda.cuMulticastBindMem(multicast, c_size_t(0), handle, c_size_t(0), c_size_t(2 * MIB), c_uint64(0)) == 0
        assert cuda.cuMemRelease(handle) == 0
        if unbound:
            assert cuda.cuMulticastUnbind(multicast, 0, c_size_t(0), c_size_t(2 * MIB)) == 0


def with_a_larger_heap() -> None:
    for size in (64 * MIB, 32 * MIB, 128 * MIB):
        assert cuda.cuCtxSetLimit(2, c_size_t(size)) == 0


def with_a_larger_stack() -> None:
    assert cuda.cuCtxSetLimit(0, c_size_t(2048)) == 0
    assert cuda.cuCtxSetLimit(1, c_size_t(40 * MIB)) == 0


def in_several_contexts() -> None:
    context = c_void_p()
    for call in (cuda.cuCtxCreate, cuda.cuGLCtxCreate_v2, cuda.cuCtxCreate_v2):
        assert call(byref(context), 0, 0) == 0
        allocate(10 * MIB, 1)
        assert cuda.cuCtxSetLimit(2, c_size_t(64 * MIB)) == 0
    assert cuda.cuCtxDestroy(context) == 0


def in_a_green_context() -> None:
    green, context = c_void_p(), c_void_p()
    for destroyed in (True, False):
        assert cuda.cuGreenCtxCreate(byref(green), None, 0, 1) == 0
        assert cuda.cuCtxFromGreenCtx(byref(context), green) == 0
        assert cuda.cuCtxPushCurrent_v2(context) == 0
        allocate(10 * MIB, 1)
        if destroyed:
            assert cuda.cuGreenCtxDestroy(green) == 0


WAYS: dict[str, Callable[[], object]] = {
    call.__name__: call
    for call in (
        many_small_ones,
        some_of_small_ones_freed,
        just_above_a_granule,
        below_a_granule,
        of_all_sizes,
        rows,
        managed,
        in_a_pool,
        freed_to_a_pool,
        freed_to_a_pool_and_waited,
        kept_by_the_threshold_of_a_pool,
        trimmed_from_a_pool,
        used_again_from_a_pool,
        in_a_pool_that_is_destroyed,
        in_a_pool_that_was_destroyed_before,
        freed_to_a_pool_that_was_destroyed_before,
        in_a_pool_that_nobody_may_destroy,
        in_a_pool_of_the_host,
        in_default_pools_of_the_host,
        captured_and_not_launched,
        captured_and_launched,
        captured_and_launched_no_more,
        captured_and_trimmed,
        freed_in_a_capture,
        a_graph_with_a_node,
        held_by_a_mapping,
        by_handle_of_the_host,
        exported_and_released,
        mapped_into_an_array,
        levels_of_many_layers,
        mapped_into_later,
        bound_to_a_multicast_object,
        with_a_larger_heap,
        with_a_larger_stack,
        in_several_contexts,
        in_a_green_context,
    )
}


def main() -> None:
    context = c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
    cuda.cuCtxSetCurrent(context)
    held = WAYS[sys.argv[1]]()
    print("holds", flush=True)
    sys.stdin.readline()
    del held


if __name__ == "__main__":
    main()
