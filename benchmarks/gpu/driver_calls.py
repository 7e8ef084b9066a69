"""The CUDA driver by its bindings: a context, kernels of chosen length, memory of each kind, graphs."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

from benchmarks.gpu import guard, ptx

MIB = 1024 * 1024
GIB = 1024 * MIB
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"

_THREADS = 256
_MARKS = 4
_SAMPLE_BYTES = MIB
_CALIBRATION = 200_000


class RefusedError(Exception):
    """The driver refused a call.

    Attributes:
        name: its own name for the error, such as ``CUDA_ERROR_OUT_OF_MEMORY``.
    """

    def __init__(self, name: str, call: str) -> None:
        super().__init__(f"{call}: {name}")
        self.name = name


class Cuda:
    """The first visible card, with a context and the kernels of ``ptx``. All work goes to one stream.

    Raises:
        RefusedError: there is no card that can be used.
        UnavailableError: the bindings are not installed.
    """

    def __init__(self) -> None:
        self.binding = guard.cuda()
        self.call("cuInit", 0)
        self.device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self.device))
        self.multiprocessors = self.attribute("MULTIPROCESSOR_COUNT")
        module = self.call("cuModuleLoadData", ptx.KERNELS.encode() + b"\0")
        self._kernels = {
            name: self.call("cuModuleGetFunction", module, name.encode())
            for name in ("spin", "fill", "checksum", "poke")
        }
        self.stream = self.call("cuStreamCreate", self.binding.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._out = self.call("cuMemAlloc", _SAMPLE_BYTES)
        self._marks = itertools.cycle([self.call("cuEventCreate", 0) for _ in range(_MARKS)])

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of the driver; what it gives, without the error code.

        Raises:
            RefusedError: the code was not success.
        """
        try:
            error, *values = getattr(self.binding, name)(*arguments)
        except RuntimeError as missing:  # the binding found no such function in the driver
            raise RefusedError("CUDA_ERROR_NOT_SUPPORTED", f"{name} ({missing})") from None
        if error.value:
            raise RefusedError(error.name, name)
        return values[0] if len(values) == 1 else tuple(values)

    def attribute(self, name: str) -> int:
        """Of the card, by the end of its name."""
        enum = self.binding.CUdevice_attribute
        return int(self.call("cuDeviceGetAttribute", getattr(enum, f"CU_DEVICE_ATTRIBUTE_{name}"), self.device))

    # ---- work -------------------------------------------------------------------------------------------------------

    def spinner(self, iterations: int) -> Callable[[], None]:
        """A kernel on the whole card, to be launched again and again."""
        return self._launcher("spin", ctypes.c_uint64(iterations), ctypes.c_uint64(int(self._out)))

    def allocate_in_kernel(self) -> None:
        """One kernel that takes memory of the heap."""
        module = self.call("cuModuleLoadData", ptx.ALLOCATING.encode() + b"\0")
        self._kernels["takes"] = self.call("cuModuleGetFunction", module, b"takes")
        self._launcher("takes", ctypes.c_uint64(int(self._out)))()
        self.synchronize()

    def graph_of(self, launch: Callable[[], None], count: int) -> Callable[[], None]:
        """So many launches, captured; the graph's launch."""
        mode = self.binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.call("cuStreamBeginCapture", self.stream, mode)
        for _ in range(count):
            launch()
        graph = self.call("cuStreamEndCapture", self.stream)
        runnable = self.call("cuGraphInstantiate", graph, 0)
        return lambda: self.call("cuGraphLaunch", runnable, self.stream)

    def synchronize(self) -> None:
        """Wait for all that was launched."""
        self.call("cuStreamSynchronize", self.stream)

    def mark(self) -> Callable[[], None]:
        """A wait for what has been launched so far; only the last few marks can be waited for."""
        event = next(self._marks)
        self.call("cuEventRecord", event, self.stream)
        return lambda: self.call("cuEventSynchronize", event)

    def ns_of_iteration(self) -> float:
        """How long the card takes for one, alone."""
        launch, marks = self.spinner(_CALIBRATION), [self.call("cuEventCreate", 0) for _ in range(2)]
        launch()
        self.call("cuEventRecord", marks[0], self.stream)
        launch()
        self.call("cuEventRecord", marks[1], self.stream)
        self.synchronize()
        return max(float(self.call("cuEventElapsedTime", *marks)) * 1e6 / _CALIBRATION, 1e-3)

    def fault(self) -> None:
        """Write where nothing is."""
        self._launcher("poke", ctypes.c_uint64(8))()
        self.synchronize()

    def _launcher(self, kernel: str, *values: Any) -> Callable[[], None]:
        # Packed once: the binding would do it anew at each launch, which takes longer than the launch itself.
        packed = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        launch, function, stream = self.binding.cuLaunchKernel, self._kernels[kernel], self.stream
        grid, address = (1 if kernel in ("poke", "takes") else self.multiprocessors), ctypes.addressof(packed)

        def go() -> None:
            (error,) = launch(function, grid, 1, 1, _THREADS, 1, 1, 0, stream, address, 0)
            if error.value:
                raise RefusedError(error.name, "cuLaunchKernel")

        go.holds = (packed, values)  # type: ignore[attr-defined]
        return go

    # ---- memory -----------------------------------------------------------------------------------------------------

    def free_and_total(self) -> tuple[int, int]:
        """Bytes, as a program is told."""
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def allocate(self, size: int) -> int:
        """Bytes by plain ``cuMemAlloc``; the pointer."""
        return int(self.call("cuMemAlloc", size))

    def allocate_async(self, size: int) -> int:
        """Bytes of the device's pool, in the order of the stream."""
        pointer = int(self.call("cuMemAllocAsync", size, self.stream))
        self.synchronize()
        return pointer

    def keep_in_pool(self) -> None:
        """Have the device's pool give nothing back."""
        pool = self.call("cuDeviceGetDefaultMemPool", self.device)
        attribute = self.binding.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self.call("cuMemPoolSetAttribute", pool, attribute, self.binding.cuuint64_t(2**64 - 1))

    def create_physical(self, size: int) -> int:
        """Bytes without an address, as frameworks take them for segments that grow; the handle."""
        binding = self.binding
        wanted = binding.CUmemAllocationProp()
        wanted.type = binding.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = binding.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = 0
        least = int(self.call("cuMemGetAllocationGranularity", wanted, _least(binding)))
        return int(self.call("cuMemCreate", -(-size // least) * least, wanted, 0))

    def free(self, pointer: int, kind: str = "plain") -> None:
        """Give back what one of the above took."""
        if kind == "async":
            self.call("cuMemFreeAsync", pointer, self.stream)
            self.synchronize()
        else:
            self.call("cuMemRelease" if kind == "physical" else "cuMemFree", pointer)

    def fill(self, pointer: int, size: int, seed: int) -> None:
        """Write words that depend on place and seed."""
        words = ctypes.c_uint64(size // 4)
        self._launcher("fill", ctypes.c_uint64(pointer), words, ctypes.c_uint32(seed))()
        self.synchronize()

    def checksum(self, pointer: int, size: int) -> int:
        """Of all words, weighed by their place; computed by the card."""
        self.call("cuMemsetD8", self._out, 0, 8)
        arguments = (ctypes.c_uint64(pointer), ctypes.c_uint64(size // 4), ctypes.c_uint64(int(self._out)))
        self._launcher("checksum", *arguments)()
        self.synchronize()
        return int.from_bytes(self.read(int(self._out), 8), "little")

    def read(self, pointer: int, size: int = _SAMPLE_BYTES) -> bytes:
        """A copy on the host."""
        room = bytearray(size)
        self.call("cuMemcpyDtoH", room, pointer, size)
        return bytes(room)

    def kernels_compute(self) -> bool:
        """Whether the kernels do what they should; on a pretended card they do not."""
        words, seed = 4096, 7
        pointer = self.allocate(words * 4)
        try:
            self.fill(pointer, words * 4, seed)
            expected = ptx.filled(words, seed)
            written = list(memoryview(self.read(pointer, words * 4)).cast("I"))
            return written == expected and self.checksum(pointer, words * 4) == ptx.summed(expected)
        finally:
            self.free(pointer)


def _least(binding: Any) -> Any:
    return binding.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
