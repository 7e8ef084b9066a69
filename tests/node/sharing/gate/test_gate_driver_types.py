"""What the gate knows of the driver's types is what its vendor publishes."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from importlib import resources
from pathlib import Path

import pytest

from fake_driver.building import what_is_missing

HEADERS = {
    "nvidia-cuda-runtime-cu12": "nvidia/cuda_runtime/include",
    "nvidia-cuda-runtime": "nvidia/cu13/include",
}
GATE = Path(str(resources.files("millpond"))) / "native" / "gate"

# Handles have the same names on both sides, and are the same.
TOGETHER = r"""
#include <stddef.h>
#define CUresult own_result
#define CUDA_SUCCESS OWN_SUCCESS
#include "OURS"
#undef CUresult
#undef CUDA_SUCCESS
#include <cuda.h>
#define SAME(one, other) _Static_assert((long)(one) == (long)(other), #one);
#define AS_LARGE(own, theirs) SAME(sizeof(struct own), sizeof(theirs))
#define LIES_AT(own, field, theirs, member)                                      \
    SAME(offsetof(struct own, field), offsetof(theirs, member))                  \
    SAME(sizeof(((struct own *)0)->field), sizeof(((theirs *)0)->member))
CHECKS
"""

OF_ALL = """
AS_LARGE(array_descriptor, CUDA_ARRAY_DESCRIPTOR)
LIES_AT(array_descriptor, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels)
AS_LARGE(array3d_descriptor, CUDA_ARRAY3D_DESCRIPTOR)
LIES_AT(array3d_descriptor, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags)
AS_LARGE(launch_config, CUlaunchConfig)
AS_LARGE(pool_properties, CUmemPoolProps)
LIES_AT(pool_properties, type, CUmemPoolProps, allocType)
LIES_AT(allocation_properties, location, CUmemAllocationProp, location)
LIES_AT(launch_config, stream, CUlaunchConfig, hStream)
AS_LARGE(launch_parameters, CUDA_LAUNCH_PARAMS)
LIES_AT(launch_parameters, stream, CUDA_LAUNCH_PARAMS, hStream)
LIES_AT(pool_properties, location_type, CUmemPoolProps, location.type)
AS_LARGE(alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS)
LIES_AT(alloc_node, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize)
LIES_AT(alloc_node, pointer, CUDA_MEM_ALLOC_NODE_PARAMS, dptr)
LIES_AT(graph_node, type, CUgraphNodeParams, type)
SAME(offsetof(struct graph_node, allocation.bytes), offsetof(CUgraphNodeParams, alloc.bytesize))
AS_LARGE(copy2d, CUDA_MEMCPY2D)
LIES_AT(copy2d, from.device, CUDA_MEMCPY2D, srcDevice)
LIES_AT(copy2d, to.type, CUDA_MEMCPY2D, dstMemoryType)
LIES_AT(copy2d, height, CUDA_MEMCPY2D, Height)
AS_LARGE(copy3d, CUDA_MEMCPY3D)
LIES_AT(copy3d, from.type, CUDA_MEMCPY3D, srcMemoryType)
LIES_AT(copy3d, to.device, CUDA_MEMCPY3D, dstDevice)
LIES_AT(copy3d, depth, CUDA_MEMCPY3D, Depth)
AS_LARGE(array_map, CUarrayMapInfo)
LIES_AT(array_map, operation, CUarrayMapInfo, memOperationType)
LIES_AT(array_map, handle, CUarrayMapInfo, memHandle.memHandle)
SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY)
SAME(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
SAME(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)
SAME(CUDA_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY)
SAME(CUDA_STREAM_PER_THREAD, CU_STREAM_PER_THREAD)
SAME(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
SAME(CUDA_GRAPH_NODE, CU_GRAPH_NODE_TYPE_GRAPH)
SAME(CUDA_MEM_ALLOC_NODE, CU_GRAPH_NODE_TYPE_MEM_ALLOC)
SAME(CUDA_MEM_FREE_NODE, CU_GRAPH_NODE_TYPE_MEM_FREE)
SAME(CUDA_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
SAME(CUDA_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
SAME(CUDA_OPERATION_MAP, CU_MEM_OPERATION_TYPE_MAP)
SAME(CUDA_GRAPHS_USED, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
SAME(CUDA_GRAPHS_RESERVED, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
SAME(CUDA_ARRAY_LAYERED, CUDA_ARRAY3D_LAYERED)
SAME(CUDA_ARRAY_CUBEMAP, CUDA_ARRAY3D_CUBEMAP)
SAME(CUDA_ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE)
SAME(CUDA_ARRAY_DEFERRED, CUDA_ARRAY3D_DEFERRED_MAPPING)
"""
OF_CUDA_13 = {
    "CUDA_POOL_LOCATION_TYPE": "CU_MEMPOOL_ATTR_LOCATION_TYPE",
    "CUDA_MANAGED_ALLOCATION": "CU_MEM_ALLOCATION_TYPE_MANAGED",
}


def own_names() -> set[str]:
    """Constants of the gate's header that stand for one of the vendor's."""
    text = (GATE / "cuda.h").read_text()
    return set(re.findall(r"#define (CUDA_\w+) ", text)) | set(re.findall(r"^    (CUDA_\w+) = ", text, re.MULTILINE))


@pytest.mark.parametrize("wheel", HEADERS)
def test_types_and_numbers_are_those_of_the_vendors_header(tmp_path: Path, wheel: str) -> None:
    published = Path(sysconfig.get_path("platlib")) / HEADERS[wheel]
    if missing := what_is_missing() or ("" if published.exists() else f"the wheel {wheel} is not installed"):
        pytest.skip(missing)
    newer = [f"SAME({own}, {theirs})" for own, theirs in OF_CUDA_13.items()] if "cu13" in HEADERS[wheel] else []
    source = tmp_path / "together.c"
    source.write_text(TOGETHER.replace("OURS", str(GATE / "cuda.h")).replace("CHECKS", "\n".join([OF_ALL, *newer])))
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", f"-I{published}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_number_of_the_gate_is_held_against_one_of_the_vendors() -> None:
    held = set(re.findall(r"SAME\((CUDA_\w+),", OF_ALL)) | set(OF_CUDA_13)
    assert own_names() - {"CUDA_SUCCESS"} == held
