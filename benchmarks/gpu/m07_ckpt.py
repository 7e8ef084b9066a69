"""A program's memory to the host and back: how fast, how often, and is it the same afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.results import Verdict, held, spread
from benchmarks.gpu.swapping import BACK, OUT, cycle, gigabytes_per_s, helper, move
from benchmarks.gpu.working import Kind
from millpond.node.sharing.helper import CheckpointHelper

_SIZES_MIB = (1024, 16 * 1024, 48 * 1024)
_RATED_FROM_MIB = 4 * 1024
"""In smaller moves what every move costs outweighs the bytes."""
_CYCLES = 20
_CYCLED_MIB = 1024
_PINNED_MIB = 256
_FRESH = 3
_LEAST_GB_PER_S = 5.0
_STEPS = 40


def measure(bench: Bench) -> dict[str, Any]:
    """Sizes first, then what is special, then the same over and over while there is time."""
    until = time.monotonic() + bench.seconds
    with helper(bench) as driver:
        with bench.passing():
            computes = bench.child().ask("kernels_compute")
        sizes = []
        for mib in _that_fit(bench):
            sizes.append(_of_size(bench, driver, mib))
            bench.journal.case(f"{mib} MiB", sizes[-1])
        special = {"graph": _graph(bench, driver), "pinned": _pinned(bench, driver)}
        if bench.has_torch:
            special |= {"losses": _losses(bench, driver), "compiled": _compiled(bench, driver)}
        return {
            "kernels_compute": computes,
            "sizes": sizes,
            "unchanged": special,
            "fresh_helper_s": _with_fresh_helpers(bench),
            "cycles": _over_and_over(bench, driver, until),
        }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """The same bytes, nothing left on the card, and fast enough; the aim is told apart from the line."""
    sizes, cycles = figures["sizes"], figures["cycles"]
    rated = [row for row in sizes if row["mib"] >= _RATED_FROM_MIB]
    slowest = min((min(row["out_gb_per_s"], row["back_gb_per_s"]) for row in rated), default=0.0)
    changed = [name for name, same in figures["unchanged"].items() if not same]
    return held(
        (figures["kernels_compute"], "the kernels do not compute, so their sums prove nothing"),
        (all(row["equal"] for row in sizes) and cycles["equal"], "memory came back changed"),
        (not changed, f"came back changed: {', '.join(changed)}"),
        (
            all(not row["left_mib"] and row["freed_mib"] >= row["mib"] for row in sizes),
            "something was left on the card",
        ),
        (cycles["count"] >= _CYCLES, f"there was time for {cycles['count']} cycles"),
        (bool(rated), f"there was room for nothing of {_RATED_FROM_MIB} MiB"),
        (not rated or slowest >= _LEAST_GB_PER_S, f"only {slowest} GB/s"),
    )


def _that_fit(bench: Bench) -> list[int]:
    room = min(bench.free_mib() * 0.9, bench.host_mib * 0.8)
    return [mib for mib in _SIZES_MIB if mib <= room]


def _of_size(bench: Bench, driver: CheckpointHelper, mib: int) -> dict[str, Any]:
    with bench.passing():
        child = bench.child()
        child.ask("hold", mib=mib)
        before = child.ask("checksum")
        took = cycle(bench, driver, child.pid)
        return {
            "mib": mib,
            **took,
            "out_gb_per_s": gigabytes_per_s(mib, took["lock_s"], took["checkpoint_s"]),
            "back_gb_per_s": gigabytes_per_s(mib, took["restore_s"], took["unlock_s"]),
            "equal": child.ask("checksum") == before,
        }


def _graph(bench: Bench, driver: CheckpointHelper) -> bool:
    """A graph made before still runs afterwards."""
    with bench.passing():
        child = bench.child()
        child.ask("repeat", kind=Kind.GRAPH, count=2)
        cycle(bench, driver, child.pid)
        return bool(child.ask("repeat", kind=Kind.GRAPH, count=2) > 0)


def _pinned(bench: Bench, driver: CheckpointHelper) -> bool:
    """Host memory that the card reaches stays what it was."""
    with bench.passing():
        child = bench.child()
        before = child.ask("pin", mib=_PINNED_MIB)
        cycle(bench, driver, child.pid)
        return bool(child.ask("pinned_digest") == before)


def _losses(bench: Bench, driver: CheckpointHelper) -> bool:
    """A training that was away in the middle of it has the losses, bit by bit, of one that was not."""
    with bench.passing():
        moved, stays = bench.child(torch=True), bench.child(torch=True)
        expected = [stays.ask("train", steps=_STEPS) for _ in range(2)]
        first = moved.ask("train", steps=_STEPS)
        moved.send("train", steps=_STEPS)
        cycle(bench, driver, moved.pid)
        return [first, moved.answer()] == expected


def _compiled(bench: Bench, driver: CheckpointHelper) -> bool:
    with bench.passing():
        child = bench.child(torch=True)
        before = child.ask("compile")
        cycle(bench, driver, child.pid)
        return bool(child.ask("compile") == before)


def _with_fresh_helpers(bench: Bench) -> dict[str, float]:
    """What a move costs when the process that asks for it has to be started each time."""
    with bench.passing():
        child = _small(bench)
        took = []
        for _ in range(_FRESH):
            since = time.monotonic()
            for steps in (OUT, BACK):
                with helper(bench) as fresh:
                    move(fresh, child.pid, *steps)
            took.append(time.monotonic() - since)
        return spread(took)


def _over_and_over(bench: Bench, driver: CheckpointHelper, until: float) -> dict[str, Any]:
    with bench.passing():
        child = _small(bench)
        before, took = child.ask("checksum"), []
        while len(took) < _CYCLES and time.monotonic() < until:
            since = time.monotonic()
            cycle(bench, driver, child.pid)
            took.append(time.monotonic() - since)
        return {
            "count": len(took),
            "mib": _CYCLED_MIB,
            "seconds": spread(took),
            "equal": child.ask("checksum") == before,
        }


def _small(bench: Bench) -> Child:
    child = bench.child()
    child.ask("hold", mib=_CYCLED_MIB)
    return child


MEASUREMENT = Measurement(
    "m07_ckpt",
    "how fast memory moves to the host and back, and is it the same",
    "20 cycles without a bit changed, nothing left on the card, 5 GB/s each way (aim 10)",
    70,
    measure,
    judge,
)
