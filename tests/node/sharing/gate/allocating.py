"""Run behind a gate: takes memory through each entry point until it is refused, gives it back, and prints the outcome.

Each row of ``ROWS`` is one exported function that makes device memory.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
import threading
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

MIB = 1024 * 1024
OUT_OF_MEMORY = 2


@functools.cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


class Driver:
    """Loaded at the first call: the table below is read where there is no driver, too."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return getattr(library(), name)


cuda = Driver()


def begin_stuck(call: Callable[[], int]) -> None:
    """Returns once a thread sleeps in a call of the driver that hangs."""
    begun: list[bool] = []
    sys.setswitchinterval(1000)  # from the mark on, it runs up to the driver
    thread = threading.Thread(target=lambda: (begun.append(True), call()), daemon=True)
    thread.start()
    stat = Path(f"/proc/self/task/{thread.native_id}/stat")
    while not begun or stat.read_text().split()[2] != "S":
        pass


class AllocationProperties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int * 2),
        ("metadata", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class ArrayDescriptor(ctypes.Structure):
    _fields_ = (("width", c_size_t), ("height", c_size_t), ("format", c_uint), ("channels", c_uint))


class Array3dDescriptor(ctypes.Structure):
    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("format", c_uint),
        ("channels", c_uint),
        ("flags", c_uint),
    )


class AllocNode(ctypes.Structure):
    _fields_ = (
        ("pool", ctypes.c_ubyte * 88),
        ("access", c_void_p),
        ("access_count", c_size_t),
        ("bytes", c_size_t),
        ("pointer", c_uint64),
    )


class GraphNode(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("reserved", ctypes.c_int * 3), ("allocation", AllocNode))


Made = tuple[int, Callable[[], int]]


def linear(
    symbol: str, free: str = "cuMemFree_v2", *more: object, free_more: tuple[object, ...] = ()
) -> Callable[[], Made]:
    def make() -> Made:
        pointer = c_uint64()
        result = getattr(cuda, symbol)(byref(pointer), c_size_t(MIB), *more)
        return result, lambda: getattr(cuda, free)(pointer, *free_more)

    return make


def pitched() -> Made:
    pointer, pitch = c_uint64(), c_size_t()
    result = cuda.cuMemAllocPitch_v2(byref(pointer), byref(pitch), c_size_t(1000), c_size_t(1024), 4)
    return result, lambda: cuda.cuMemFree_v2(pointer)


def by_handle() -> Made:
    handle, properties = c_uint64(), AllocationProperties(type=1, location=(1, 0))
    result = cuda.cuMemCreate(byref(handle), c_size_t(2 * MIB), byref(properties), c_uint64(0))
    return result, lambda: cuda.cuMemRelease(handle)


def array() -> Made:
    handle, about = c_void_p(), ArrayDescriptor(512, 512, 0x20, 1)
    result = cuda.cuArrayCreate_v2(byref(handle), byref(about))
    return result, lambda: cuda.cuArrayDestroy(handle)


def array_3d() -> Made:
    handle, about = c_void_p(), Array3dDescriptor(64, 64, 64, 0x01, 4, 0)
    result = cuda.cuArray3DCreate_v2(byref(handle), byref(about))
    return result, lambda: cuda.cuArrayDestroy(handle)


def mipmapped() -> Made:
    handle, about = c_void_p(), Array3dDescriptor(512, 512, 0, 0x10, 2, 0)
    result = cuda.cuMipmappedArrayCreate(byref(handle), byref(about), 1)
    return result, lambda: cuda.cuMipmappedArrayDestroy(handle)


def node_of(add: Callable[[c_void_p, c_void_p], int]) -> Callable[[], Made]:
    """A graph takes memory with its first launch or upload, and the driver keeps it until it is trimmed."""

    def make() -> Made:
        graph, node, runnable = c_void_p(), c_void_p(), c_void_p()
        cuda.cuGraphCreate(byref(graph), 0)
        if refusal := add(node, graph):
            return refusal, lambda: 0
        assert cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)) == 0
        cuda.cuGraphDestroy(graph)
        result = cuda.cuGraphUpload(runnable, None)

        def free() -> int:
            return cuda.cuGraphExecDestroy(runnable) or cuda.cuDeviceGraphMemTrim(0)

        if result:
            free()
        return result, free

    return make


def alloc_node(node: c_void_p, graph: c_void_p) -> int:
    return cuda.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(AllocNode(bytes=2 * MIB)))


def any_node(node: c_void_p, graph: c_void_p) -> int:
    about = GraphNode(type=10, allocation=AllocNode(bytes=2 * MIB))
    return cuda.cuGraphAddNode(byref(node), graph, None, c_size_t(0), byref(about))


def any_node_v2(node: c_void_p, graph: c_void_p) -> int:
    about = GraphNode(type=10, allocation=AllocNode(bytes=2 * MIB))
    return cuda.cuGraphAddNode_v2(byref(node), graph, None, None, c_size_t(0), byref(about))


def any_node_v3(node: c_void_p, graph: c_void_p) -> int:
    about = GraphNode(type=10, allocation=AllocNode(bytes=2 * MIB))
    return cuda.cuGraphAddNode_v3(byref(node), graph, None, None, c_size_t(0), byref(about))


def pooled(symbol: str, free: str, *free_more: object) -> Callable[[], Made]:
    def make() -> Made:
        pool = c_void_p()
        cuda.cuDeviceGetDefaultMemPool(byref(pool), 0)
        result, release = linear(symbol, free, pool, None, free_more=free_more)()
        return result, lambda: release() or cuda.cuCtxSynchronize()

    return make


NO_STREAM = (c_void_p(),)
ROWS: dict[str, tuple[int, Callable[[], Made]]] = {
    "cuMemAlloc_v2": (MIB, linear("cuMemAlloc_v2")),
    "cuMemAllocPitch_v2": (MIB, pitched),
    "cuMemAllocManaged": (MIB, linear("cuMemAllocManaged", "cuMemFree_v2", 1)),
    "cuMemAllocAsync": (MIB, linear("cuMemAllocAsync", "cuMemFreeAsync", None, free_more=NO_STREAM)),
    "cuMemAllocAsync_ptsz": (MIB, linear("cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", None, free_more=NO_STREAM)),
    "cuMemAllocFromPoolAsync": (MIB, pooled("cuMemAllocFromPoolAsync", "cuMemFreeAsync", *NO_STREAM)),
    "cuMemAllocFromPoolAsync_ptsz": (MIB, pooled("cuMemAllocFromPoolAsync_ptsz", "cuMemFree_v2")),
    "cuMemCreate": (2 * MIB, by_handle),
    "cuArrayCreate_v2": (MIB, array),
    "cuArray3DCreate_v2": (MIB, array_3d),
    "cuMipmappedArrayCreate": (MIB, mipmapped),
    "cuGraphAddMemAllocNode": (2 * MIB, node_of(alloc_node)),
    "cuGraphAddNode": (2 * MIB, node_of(any_node)),
    "cuGraphAddNode_v2": (2 * MIB, node_of(any_node_v2)),
    "cuGraphAddNode_v3": (2 * MIB, node_of(any_node_v3)),
}


def fill(make: Callable[[], Made]) -> tuple[int, int, list[Callable[[], int]]]:
    """How often it went well, the result of the refusal, and how to give it all back."""
    undo: list[Callable[[], int]] = []
    while True:
        result, free = make()
        if result:
            return len(undo), result, undo
        undo.append(free)


def main() -> None:
    context = c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
    cuda.cuCtxSetCurrent(context)
    found = {}
    for name, (size, make) in ROWS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        count, refusal, undo = fill(make)
        freed = [free() for free in undo]
        again, _, undo = fill(make)
        freed += [free() for free in undo]
        found[name] = {
            "bytes": count * size,
            "again": again * size,
            "refusal": refusal,
            "failed_frees": sum(map(bool, freed)),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
