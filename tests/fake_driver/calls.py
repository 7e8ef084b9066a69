"""A small program of the driver: it does what it reads, line by line.

Each line of its input is one call of ``COMMANDS`` with numbers; each answer is one line, the result of the call first.
Hundreds of these are started by the tests, so it imports little.
"""

from __future__ import annotations

import ctypes
import sys
import time

WORD = 4096
"""The address of a word on which streams wait for each other."""


class Driver:
    """The calls, through ctypes: light, and resolved by dlsym as many programs do."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.spin, self.poke_kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.streams_made: list[ctypes.c_void_p] = [ctypes.c_void_p()]
        self.graphs: list[ctypes.c_void_p] = []

    def start(self, device: int = 0) -> tuple[int, ...]:
        """cuInit, the primary context of a device, and a kernel."""
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        result = self.cuda.cuInit(0) or self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if not result:
            self.cuda.cuCtxSetCurrent(context)
            result = self.cuda.cuModuleLoadData(ctypes.byref(module), b"kernels")
            result = result or self.cuda.cuModuleGetFunction(ctypes.byref(self.spin), module, b"spin")
            result = result or self.cuda.cuModuleGetFunction(ctypes.byref(self.poke_kernel), module, b"poke")
        return (result,)

    def alloc(self, size: int) -> tuple[int, ...]:
        """Bytes of memory; answers the pointer too."""
        pointer = ctypes.c_uint64()
        return self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), pointer.value

    def free(self, pointer: int) -> tuple[int, ...]:
        """Memory given back."""
        return (self.cuda.cuMemFree_v2(ctypes.c_uint64(pointer)),)

    def managed(self, size: int) -> tuple[int, ...]:
        """Managed memory, which cannot be checkpointed."""
        pointer = ctypes.c_uint64()
        return self.cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1), pointer.value

    def info(self) -> tuple[int, ...]:
        """Free and total memory, as the program sees it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        return self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), free.value, total.value

    def fill(self, pointer: int, value: int, size: int) -> tuple[int, ...]:
        """Writes memory."""
        return (self.cuda.cuMemsetD8_v2(ctypes.c_uint64(pointer), value, ctypes.c_size_t(size)),)

    def sum(self, pointer: int, size: int) -> tuple[int, ...]:
        """The sum of bytes of memory."""
        room = ctypes.create_string_buffer(size)
        return self.cuda.cuMemcpyDtoH_v2(room, ctypes.c_uint64(pointer), ctypes.c_size_t(size)), sum(room.raw)

    def poke(self, pointer: int) -> tuple[int, ...]:
        """Writes a word by a kernel, wherever it is told, and waits for what comes of it."""
        address = ctypes.c_uint64(pointer)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        result = self.cuda.cuLaunchKernel(self.poke_kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
        return (result or self.cuda.cuCtxSynchronize(),)

    def launch(self, nanoseconds: int, count: int = 1, stream: int = 0) -> tuple[int, ...]:
        """Kernels of so many nanoseconds."""
        duration = ctypes.c_uint64(nanoseconds)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
        for _ in range(count):
            result = self.cuda.cuLaunchKernel(
                self.spin, 1, 1, 1, 1, 1, 1, 0, self.streams_made[stream], parameters, None
            )
            if result:
                return (result,)
        return (0,)

    def stream(self) -> tuple[int, ...]:
        """A stream of its own; answers its number."""
        made = ctypes.c_void_p()
        result = self.cuda.cuStreamCreate(ctypes.byref(made), 1)
        self.streams_made.append(made)
        return result, len(self.streams_made) - 1

    def streams(self, count: int) -> tuple[int, ...]:
        """Several at once."""
        return (max(self.stream()[0] for _ in range(count)),)

    def spread(self, nanoseconds: int, count: int) -> tuple[int, ...]:
        """Kernels on all streams by turns."""
        for number in range(count):
            if result := self.launch(nanoseconds, 1, number % len(self.streams_made))[0]:
                return (result,)
        return (0,)

    def await_word(self, stream: int, value: int) -> tuple[int, ...]:
        """What is launched on a stream from now on waits until a word of memory has a value, or a greater one."""
        return (self.cuda.cuStreamWaitValue32_v2(self.streams_made[stream], ctypes.c_uint64(WORD), value, 0),)

    def write_word(self, stream: int, value: int) -> tuple[int, ...]:
        """Writes it, after what was launched on a stream."""
        return (self.cuda.cuStreamWriteValue32_v2(self.streams_made[stream], ctypes.c_uint64(WORD), value, 0),)

    def paced(self, nanoseconds: int, between_ns: int, count: int) -> tuple[int, ...]:
        """Kernels with so much computing between them, which takes time of the test's own alone."""
        span = (ctypes.c_long * 2)(0, between_ns)
        for _ in range(count):
            if result := self.launch(nanoseconds)[0]:
                return (result,)
            ctypes.CDLL(None).clock_nanosleep(time.CLOCK_PROCESS_CPUTIME_ID, 0, span, None)
        return (0,)

    def retain_and_release(self) -> tuple[int, ...]:
        """The primary context once more, and once less."""
        context = ctypes.c_void_p()
        result = self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        return (result or self.cuda.cuDevicePrimaryCtxRelease_v2(0),)

    def graph(self, nanoseconds: int, count: int) -> tuple[int, ...]:
        """A graph of so many kernels, captured; answers its number and its nodes."""
        made, runnable, nodes = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        _, stream = self.stream()
        result = self.cuda.cuStreamBeginCapture_v2(self.streams_made[stream], 0)
        result = result or self.launch(nanoseconds, count, stream)[0]
        result = self.cuda.cuStreamEndCapture(self.streams_made[stream], ctypes.byref(made)) or result
        if not result:
            self.cuda.cuGraphGetNodes(made, None, ctypes.byref(nodes))
            result = self.cuda.cuGraphInstantiateWithFlags(ctypes.byref(runnable), made, ctypes.c_uint64(0))
        self.graphs.append(runnable)
        return result, len(self.graphs) - 1, nodes.value

    def replay(self, graph: int, count: int = 1) -> tuple[int, ...]:
        """Launches a graph."""
        for _ in range(count):
            if result := self.cuda.cuGraphLaunch(self.graphs[graph], None):
                return (result,)
        return (0,)

    def mixed(self, nanoseconds: int, kernels: int, graph: int, milliseconds: int) -> tuple[int, ...]:
        """So many kernels and a graph by turns for a time."""
        began, result = time.monotonic(), 0
        while not result and time.monotonic() < began + milliseconds / 1000:
            result = self.launch(nanoseconds, kernels)[0] or self.replay(graph)[0]
        return (result,)

    def replay_all(self, milliseconds: int) -> tuple[int, ...]:
        """Launches all graphs by turns for a time."""
        began, count = time.monotonic(), 0
        while time.monotonic() < began + milliseconds / 1000:
            if result := self.replay(count % len(self.graphs))[0]:
                return (result,)
            count += 1
        return 0, count

    def sync(self) -> tuple[int, ...]:
        """Waits for all that was launched."""
        return (self.cuda.cuCtxSynchronize(),)

    def busy(self, nanoseconds: int, milliseconds: int, graph: int = -1) -> tuple[int, ...]:
        """Launches back to back for a time, then waits; answers how many, and in how many nanoseconds all were done."""
        began, count, result = time.monotonic(), 0, 0
        while not result and time.monotonic() < began + milliseconds / 1000:
            result = (self.launch(nanoseconds) if graph < 0 else self.replay(graph))[0]
            count += not result
        result = result or self.cuda.cuCtxSynchronize()
        return result, count, round((time.monotonic() - began) * 1e9)

    def serve(self, nanoseconds: int, milliseconds: int) -> tuple[int, ...]:
        """Launches and waits, one at a time, for a time; answers the median and the 99th percentile in nanoseconds."""
        end, result, took = time.monotonic() + milliseconds / 1000, 0, []
        while not result and time.monotonic() < end:
            began = time.monotonic_ns()
            result = self.launch(nanoseconds)[0] or self.cuda.cuCtxSynchronize()
            took.append(time.monotonic_ns() - began)
        took.sort()
        return result, took[len(took) // 2], took[len(took) * 99 // 100]

    def answer_requests(self, nanoseconds: int, kernels: int, mean_gap_ns: int, count: int) -> tuple[int, ...]:
        """Requests at random moments, each so many kernels, one after the other; answers as ``serve`` does."""
        import random

        drawn, arrives, took = random.Random(1), time.monotonic_ns(), []
        for _ in range(count):
            arrives += round(drawn.expovariate(1 / mean_gap_ns))
            time.sleep(max(arrives - time.monotonic_ns(), 0) / 1e9)
            if result := self.launch(nanoseconds, kernels)[0] or self.cuda.cuCtxSynchronize():
                return (result,)
            took.append(time.monotonic_ns() - arrives)
        took.sort()
        return 0, took[len(took) // 2], took[len(took) * 99 // 100]


COMMANDS = {name: call for name, call in vars(Driver).items() if not name.startswith("_")}


def main() -> None:
    """Does what it reads until there is nothing more."""
    driver = Driver()
    for line in sys.stdin:
        command, *numbers = line.split()
        if command not in COMMANDS:
            raise SystemExit(f"no such command: {command}")
        print(*COMMANDS[command](driver, *map(int, numbers)), flush=True)


if __name__ == "__main__":
    main()
