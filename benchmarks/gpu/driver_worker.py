"""A child that works by calls of the driver alone."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.gpu import guard
from benchmarks.gpu.driver_calls import MIB, OUT_OF_MEMORY, Cuda, RefusedError
from benchmarks.gpu.working import Kind, Work, main

_LENGTHS_US = {Kind.LARGE: 1000, Kind.STEP: 500}
_SMALL_US, _SMALL_COUNT = 20, 20
_REQUEST_US, _REQUEST_COUNT = 100, 20
_LONG_US, _LONG_COUNT = 1000, 30
_HANDLE_BYTES, _LAZY_PEER_ACCESS = 64, 1
_ODD_BYTES = (1, 511, 4097, MIB - 1, MIB + 1, 2 * MIB + 1, 5 * MIB - 1, 33 * MIB + 7)


class DriverWork(Work):
    """The orders, by calls of the driver."""

    def __init__(self) -> None:
        super().__init__()
        self._cuda: Cuda
        self._held: list[tuple[int, int]] = []
        self._pinned: Any = b""
        self._pipes: list[int] = []

    def start(self) -> dict[str, Any]:
        """See ``Work``."""
        self._cuda = Cuda()
        self._ns = self._cuda.ns_of_iteration()
        return {"workload": "calls of the driver", "multiprocessors": self._cuda.multiprocessors}

    def make(self, kind: Kind) -> Callable[[], None]:
        """See ``Work``."""
        if kind is Kind.TINY:
            return self._cuda.spinner(1)
        if kind in _LENGTHS_US:
            return self._kernel(_LENGTHS_US[kind])
        if kind is Kind.REQUEST:
            return _several(self._kernel(_REQUEST_US), _REQUEST_COUNT)
        if kind is Kind.GRAPH:
            return self._cuda.graph_of(self._kernel(_SMALL_US), _SMALL_COUNT)
        if kind is Kind.LONG:
            return self._cuda.graph_of(self._kernel(_LONG_US), _LONG_COUNT)
        return _several(self._kernel(_SMALL_US), _SMALL_COUNT)

    def wait(self) -> None:
        """See ``Work``."""
        self._cuda.synchronize()

    def mark(self) -> Callable[[], None]:
        """See ``Work``."""
        return self._cuda.mark()

    def launch(self, microseconds: float) -> None:
        """One kernel of about that length; not waited for."""
        self._kernel(microseconds)()

    def sync(self) -> None:
        """Wait for all that was launched."""
        self.wait()

    # ---- memory -----------------------------------------------------------------------------------------------------

    def allocate_until_refused(self, most_mib: int, way: str = "plain", keep: bool = False) -> dict[str, Any]:
        """See ``Work``; ways are ``plain``, ``async`` and ``physical``."""
        take = {"plain": self._cuda.allocate, "async": self._cuda.allocate_async}.get(way, self._cuda.create_physical)
        taken: list[int] = []
        given, step, refusal = 0, 256, ""
        least = 2 if way == "physical" else 1  # it comes in pages of 2 MiB
        while step >= least and given < most_mib:
            try:
                taken.append(take(step * MIB))
                given += step
            except RefusedError as error:
                if error.name != OUT_OF_MEMORY:
                    raise
                refusal, step = error.name, step // 2
        if not keep:
            for pointer in taken:
                self._cuda.free(pointer, way)
        return {"mib": given, "refusal": refusal}

    def odd_sizes(self, count: int) -> None:
        """Memory in sizes that no page fits, kept."""
        for number in range(count):
            self._cuda.allocate(_ODD_BYTES[number % len(_ODD_BYTES)])

    def pool_keeps(self, mib: int) -> None:
        """Memory of the device's pool, freed again, which the pool keeps for itself."""
        self._cuda.keep_in_pool()
        self._cuda.free(self._cuda.allocate_async(mib * MIB), "async")

    def heap_limit(self, mib: int) -> None:
        """Memory that kernels may allocate of; the driver takes it with the first that does."""
        limit = self._cuda.binding.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE
        self._cuda.call("cuCtxSetLimit", limit, mib * MIB)
        self._cuda.allocate_in_kernel()

    def lookups(self, names: list[str]) -> dict[str, Any]:
        """Which exported function a look-up through the driver gives, by the name asked for."""
        return {name: guard.looked_up(name) for name in names}

    def hold(self, mib: int, seed: int = 1) -> None:
        """Memory in blocks of a GiB, each filled, and kept."""
        for at in range(0, mib, 1024):
            size = min(1024, mib - at) * MIB
            pointer = self._cuda.allocate(size)
            self._held.append((pointer, size))
            self._cuda.fill(pointer, size, seed + at)
            self._cuda.call("cuMemsetD8", pointer, (seed + at) % 251 + 1, 4096)

    def checksum(self) -> dict[str, Any]:
        """Of all that is held: by the card over every word, by the host over the beginning of each block."""
        sums = [self._cuda.checksum(pointer, size) for pointer, size in self._held]
        sample = hashlib.sha256(b"".join(self._cuda.read(pointer, 4096) for pointer, _ in self._held)).hexdigest()
        return {"card": sums, "host": sample}

    def kernels_compute(self) -> bool:
        """Whether the kernels do what they should."""
        return self._cuda.kernels_compute()

    def info(self) -> dict[str, int]:
        """Free and total memory in MiB, as this program is told."""
        free, total = self._cuda.free_and_total()
        return {"free_mib": free // MIB, "total_mib": total // MIB}

    def managed(self, mib: int) -> None:
        """A little managed memory."""
        error, _ = guard.allocate_managed(mib * MIB, self._cuda.free_and_total()[0])
        if error.value:
            raise RefusedError(error.name, "cuMemAllocManaged")

    def pin(self, mib: int) -> str:
        """Host memory that the card reaches, written to; its digest."""
        address = int(self._cuda.call("cuMemHostAlloc", mib * MIB, 0))
        self._pinned = (ctypes.c_char * (mib * MIB)).from_address(address)
        ctypes.memmove(self._pinned, bytes(range(256)) * (mib * MIB // 256), mib * MIB)
        return self.pinned_digest()

    def pinned_digest(self) -> str:
        """Of the pinned host memory."""
        return hashlib.sha256(self._pinned).hexdigest()

    # ---- what is hard to move ---------------------------------------------------------------------------------------

    def export(self) -> str:
        """Let other processes open what is held first (IPC); its handle."""
        handle = self._cuda.call("cuIpcGetMemHandle", self._held[0][0])
        return ctypes.string_at(handle.getPtr(), _HANDLE_BYTES).hex()

    def open_exported(self, handle: str) -> None:
        """Open what another process holds, for as long as this one lives."""
        found = self._cuda.binding.CUipcMemHandle()
        ctypes.memmove(found.getPtr(), bytes.fromhex(handle), _HANDLE_BYTES)
        self._cuda.call("cuIpcOpenMemHandle", found, _LAZY_PEER_ACCESS)

    def fork(self) -> int:
        """A child that never uses the card; its process id. It ends with us."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        self._pipes.append(writing)
        return pid

    def launch_aside(self, microseconds: float) -> None:
        """Launch from another thread, which may be held back there."""
        threading.Thread(target=self.launch_here, args=(microseconds,), daemon=True).start()

    def launch_here(self, microseconds: float) -> None:
        """As a thread that has not used the card before has to."""
        self._cuda.call("cuCtxSetCurrent", self._cuda.call("cuDevicePrimaryCtxRetain", self._cuda.device))
        self.launch(microseconds)

    def fault(self) -> None:
        """Write where nothing is: this program's context is broken afterwards."""
        self._cuda.fault()

    def _kernel(self, microseconds: float) -> Callable[[], None]:
        return self._cuda.spinner(max(1, round(microseconds * 1000 / self._ns)))


def _several(launch: Callable[[], None], count: int) -> Callable[[], None]:
    def go() -> None:
        for _ in range(count):
            launch()

    return go


if __name__ == "__main__":
    sys.exit(main(DriverWork()))
