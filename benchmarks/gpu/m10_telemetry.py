"""What looking at a card costs, and what the driver tells of it here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu import guard
from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.nvml.sampling import NvidiaSampler

_LOOKS = 100
_DEVICES = 8
_MOST_OF_A_CORE = 0.01
_EVERY_S = 0.05


def measure(bench: Bench) -> dict[str, Any]:
    """The node's own samples, while a program works."""
    vendor = NvidiaVendor(guard.pynvml)
    vendor.discover()
    child, working_s = bench.child(), bench.seconds / 2
    child.send("work", kind=Kind.LARGE, seconds=working_s)
    energy = _energy(bench, working_s * 0.8)
    sample = next(each for each in vendor.sample() if each.device == bench.device.uuid)
    child.answer()
    alone_s = _cpu_s(bench)
    bench.child()
    return {
        "cpu_us_of_a_sample": round(alone_s * 1e6, 1),
        "cpu_us_with_two_processes": round(_cpu_s(bench) * 1e6, 1),
        "of_a_core_at_1_hz_with_8": round(alone_s * _DEVICES, 5),
        "energy": energy,
        "untold": [name for name in sample.__slots__ if getattr(sample, name) is None],
        "use_of_each_process_told": bool(sample.processes) and sample.processes[0].use_milli is not None,
    }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """A card's sample, eight times over, each second."""
    share = figures["of_a_core_at_1_hz_with_8"]
    return held((share <= _MOST_OF_A_CORE, f"{share:.2%} of a core"))


def _cpu_s(bench: Bench) -> float:
    """Of one sample, where one is taken each second."""
    seconds = itertools.count()
    sampler = NvidiaSampler(bench.nvml, {bench.device.uuid: bench.handle}, clock=lambda: float(next(seconds)))
    since = time.process_time()
    for _ in range(_LOOKS):
        sampler.sample()
    return (time.process_time() - since) / _LOOKS


def _energy(bench: Bench, seconds: float) -> dict[str, float] | None:
    """Joules by the card's counter, and by its power over time; None where it does not tell both."""
    ask, handle = bench.nvml.ask, bench.handle
    before = ask("nvmlDeviceGetTotalEnergyConsumption", handle)
    if before is None or ask("nvmlDeviceGetPowerUsage", handle) is None:
        time.sleep(seconds)
        return None
    last = time.monotonic()
    end, integrated = last + seconds, 0.0
    while last < end:
        time.sleep(_EVERY_S)
        now = time.monotonic()
        integrated += ask("nvmlDeviceGetPowerUsage", handle) / 1000 * (now - last)
        last = now
    counted = (ask("nvmlDeviceGetTotalEnergyConsumption", handle) - before) / 1000
    return {"counter_j": round(counted, 1), "integrated_j": round(integrated, 1)}


MEASUREMENT = Measurement(
    "m10_telemetry",
    "what a sample of every card each second costs, and what is told",
    "8 cards at 1 Hz at most 1 % of a core",
    12,
    measure,
    judge,
)
