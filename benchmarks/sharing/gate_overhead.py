"""What the gate costs launches and allocations, and how fast it pauses: on the pretended driver, whose own launch costs
little.

A C program behind the gate launches empty kernels in blocks, by turns through the gate and past it (it asks the C
library itself for the driver's function), and takes the CPU time of each block; the median difference of neighbouring
blocks is the gate's. Three cases: one stream, and a card that nobody else shares; the same with a neighbour, idle in a
slice of its own; two streams by turns. Pausing is measured from the agent's word to the last launch that reaches the
driver, with a program that launches all the time.

Allocations are measured the same way, each freed again, over millions of them and beside some that stay. They come from
a driver of five functions that hands out numbers: the pretended one maps memory for each.

    python -m benchmarks.sharing.gate_overhead [--blocks 200] [--launches 5000] [--pairs 16000000] [--json FILE]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.calibration import calibration_rate
from benchmarks.reporting import Table, command_line, emit, program
from benchmarks.sharing.gated_cards import Cards, pretended_cards
from millpond.node.sharing.gate.region import GateSettings

TARGET_LAUNCH_NS = 100
TARGET_PAIR_NS = 200
TARGET_PAUSE_MS = 10
PAIR_BLOCKS = 16
KEPT_ALLOCATIONS = 1000
PAUSES = 20
SETTINGS = GateSettings(cap_mib=1024)
CASES = {"one stream": (1, False), "an idle neighbour": (1, True), "two streams": (2, False)}
"""Streams, and whether another slice shares the card."""

LOOP = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef struct stream *stream; typedef struct function *function;
typedef unsigned u;
typedef int launch(function, u, u, u, u, u, u, u, stream, void **, void **);
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
int cuModuleLoadData(void **, const void *); int cuModuleGetFunction(function *, void *, const char *);
int cuStreamCreate(stream *, unsigned);
launch cuLaunchKernel;
static double block(launch *call, function kernel, stream *streams, int used, long launches) {
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (long number = 0; number < launches; number++)
        call(kernel, 1, 1, 1, 1, 1, 1, 0, streams[number % used], NULL, NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)launches;
}
int main(int count, char **values) {
    void *context, *module; function kernel; stream streams[8];
    long blocks = atol(values[1]), launches = atol(values[2]); int used = atoi(values[3]);
    void *libc = dlopen("libc.so.6", RTLD_LAZY), *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    void *(*look_up)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(libc, "dlsym", "GLIBC_2.34");
    launch *bare = (launch *)look_up(cuda, "cuLaunchKernel");
    (void)count;
    cuInit(0); cuDevicePrimaryCtxRetain(&context, 0); cuCtxSetCurrent(context);
    cuModuleLoadData(&module, "kernels"); cuModuleGetFunction(&kernel, module, "empty");
    for (int index = 0; index < used; index++) cuStreamCreate(&streams[index], 1);
    for (long number = 0; number < blocks; number++) {
        double past = block(bare, kernel, streams, used, launches);
        printf("%f %f\n", past, block(cuLaunchKernel, kernel, streams, used, launches));
    }
    return bare == cuLaunchKernel;
}
"""


NUMBERS = r"""
static unsigned long long last = 0x7f0000000000ull;
int cuInit(unsigned flags) { return (int)flags; }
int cuCtxGetCurrent(void **context) { *context = &last; return 0; }
int cuMemAlloc_v2(unsigned long long *pointer, unsigned long bytes) { *pointer = last += bytes; return 0; }
int cuMemFree_v2(unsigned long long pointer) { return pointer > last; }
int cuMemGetInfo_v2(unsigned long *available, unsigned long *total) { *available = *total = 1ul << 36; return 0; }
"""

PAIRS = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef int allocate(unsigned long long *, unsigned long);
typedef int release(unsigned long long);
int cuInit(unsigned);
allocate cuMemAlloc_v2; release cuMemFree_v2;
static double block(allocate *take, release *give, long pairs) {
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (long number = 0; number < pairs; number++) {
        unsigned long long pointer;
        if (take(&pointer, 512) || give(pointer)) exit(1);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)pairs;
}
int main(int count, char **values) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY), *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    void *(*look_up)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(libc, "dlsym", "GLIBC_2.34");
    allocate *take = (allocate *)look_up(cuda, "cuMemAlloc_v2");
    release *give = (release *)look_up(cuda, "cuMemFree_v2");
    unsigned long long pointer;
    cuInit(0);
    for (long number = atol(values[3]); number > 0; number--) cuMemAlloc_v2(&pointer, 512);
    for (long number = atol(values[1]); number > 0; number--) {
        double past = block(take, give, atol(values[2]));
        printf("%f %f\n", past, block(cuMemAlloc_v2, cuMemFree_v2, atol(values[2])));
    }
    return count == 0;
}
"""


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print, and give back what ``--json`` gets."""
    parser = command_line(__doc__)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--launches", type=int, default=5000)
    parser.add_argument("--pairs", type=int, default=16_000_000)
    options = parser.parse_args(arguments)
    with pretended_cards() as cards:
        loop = cards.compile(LOOP)
        rows = [_row(cards, loop, case, options) for case in CASES]
        pairs = _pairs(cards, options.pairs)
        pauses = _pauses_ms(cards)
    result: dict[str, object] = {
        "rows": rows,
        "target_launch_ns": TARGET_LAUNCH_NS,
        "allocations": pairs | {"target_ns": TARGET_PAIR_NS},
        "pause_ms": {"median": statistics.median(pauses), "worst": max(pauses), "target": TARGET_PAUSE_MS},
        "calibration_rate": calibration_rate(),
    }
    emit(result, options.json, _lines(rows, pairs, pauses))
    return result


def _row(cards: Cards, loop: Path, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Nanoseconds of CPU a launch: past the gate, through it, and the difference."""
    streams, neighbour = CASES[case]
    slices = [cards.slice(SETTINGS) for _ in range(1 + neighbour)]
    said = cards.run(loop, slices[0].env, str(options.blocks), str(options.launches), str(streams))
    for each in slices:
        each.region.close()
    pairs = [tuple(map(float, line.split())) for line in said.splitlines()]
    differences = [gated - bare for bare, gated in pairs]
    low, middle, high = statistics.quantiles(differences, n=4)
    bare = statistics.median(bare for bare, _ in pairs)
    return {"case": case, "bare_ns": bare, "gate_ns": middle, "quartiles_ns": [low, high]}


def _pairs(cards: Cards, pairs: int) -> dict[str, float]:
    """Nanoseconds of CPU that the gate adds to an allocation and its release: in the first block, and in the last."""
    numbers = cards.shared_library(NUMBERS, "libcuda.so.1")
    slice_ = cards.slice(SETTINGS)
    arguments = (str(PAIR_BLOCKS), str(max(pairs // PAIR_BLOCKS, 1)), str(KEPT_ALLOCATIONS))
    said = cards.run(cards.compile(PAIRS), slice_.env | {"LD_LIBRARY_PATH": str(numbers.parent)}, *arguments)
    slice_.region.close()
    differences = [gated - bare for bare, gated in (map(float, line.split()) for line in said.splitlines())]
    return {
        "pairs": pairs,
        "first_ns": differences[0],
        "median_ns": statistics.median(differences),
        "last_ns": differences[-1],
    }


def _pauses_ms(cards: Cards) -> list[float]:
    """From the word to the last launch that reached the driver, pause by pause."""
    found = []
    slices = [cards.slice(SETTINGS)]
    with cards.programs(slices) as [busy]:
        busy.send("busy", 50_000, 3_600_000)
        for _ in range(PAUSES):
            time.sleep(0.05)
            launches = cards.driver.launches_of(busy.pid)
            began = last = time.monotonic()
            slices[0].region.set(paused=True)
            while (now := time.monotonic()) < began + 0.1:
                if (seen := cards.driver.launches_of(busy.pid)) != launches:
                    launches, last = seen, now
            found.append((last - began) * 1000)
            slices[0].region.set(paused=False)
    return found


def _lines(rows: Sequence[dict[str, Any]], pairs: dict[str, float], pauses: Sequence[float]) -> list[Table | str]:
    table = Table("launches", "the driver", "the gate", "quartiles", "target", texts=1)
    for row in rows:
        met = "met" if row["gate_ns"] < TARGET_LAUNCH_NS else "MISSED"
        quartiles = "{:.0f} to {:.0f}".format(*row["quartiles_ns"])
        table.add(
            row["case"],
            f"{row['bare_ns']:.0f} ns",
            f"{row['gate_ns']:.0f} ns",
            quartiles,
            f"< {TARGET_LAUNCH_NS} ns, {met}",
        )
    allocations = "allocation and release: {median_ns:.0f} ns, the first {first_ns:.0f} ns, ".format(**pairs)
    allocations += "the last of {pairs:,} {last_ns:.0f} ns".format(**pairs)
    allocations += f", target < {TARGET_PAIR_NS} ns, {'met' if pairs['last_ns'] < TARGET_PAIR_NS else 'MISSED'}"
    met = "met" if max(pauses) < TARGET_PAUSE_MS else "MISSED"
    median = statistics.median(pauses)
    return [
        table,
        "",
        allocations,
        f"pause: median {median:.2f} ms, worst {max(pauses):.2f} ms, target < {TARGET_PAUSE_MS} ms, {met}",
    ]


if __name__ == "__main__":
    main()
