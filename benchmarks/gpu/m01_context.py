"""What a program takes of the card before it has done anything: memory, and power."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.results import Verdict, held

_CONTEXTS = 8
_EVERY_S = 0.1


def measure(bench: Bench) -> dict[str, Any]:
    """Watch memory and power while contexts come up, one after the other."""
    watching_s = bench.seconds / 5
    used, bare_w = [bench.used_mib()], power_w(bench, watching_s)
    with bench.passing():
        bench.child()
        used.append(bench.used_mib())
        one_w = power_w(bench, watching_s)
        for _ in range(_CONTEXTS - 1):
            bench.child()
            used.append(bench.used_mib())
        all_w = power_w(bench, watching_s)
    return {
        "contexts": len(used) - 1,
        "context_mib": [after - before for before, after in pairwise(used)],
        "torch_mib": _of_torch(bench) if bench.has_torch else None,
        "idle_w": {"no context": bare_w, "one context": one_w, "eight contexts": all_w},
    }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """Eight fit."""
    return held((figures["contexts"] == _CONTEXTS, f"only {figures['contexts']} contexts fit"))


def power_w(bench: Bench, seconds: float) -> float | None:
    """The mean over some seconds; None where the driver does not tell."""
    end, seen = time.monotonic() + seconds, []
    while True:
        milliwatts = bench.nvml.ask("nvmlDeviceGetPowerUsage", bench.handle)
        if milliwatts is None:
            return None
        seen.append(milliwatts / 1000)
        if time.monotonic() >= end:
            return round(statistics.fmean(seen), 1)
        time.sleep(min(_EVERY_S, seconds))


def _of_torch(bench: Bench) -> int:
    with bench.passing():
        before = bench.used_mib()
        bench.child(torch=True)
        return bench.used_mib() - before


MEASUREMENT = Measurement(
    "m01_context",
    "how much memory and power a context takes that does nothing",
    "eight contexts fit",
    15,
    measure,
    judge,
)
