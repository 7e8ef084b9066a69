"""Two jobs of more than half of the card each take turns on it, each on the host while the other computes.

Where the host cannot hold two such jobs, or they would not be moved in time, they are smaller, take turns all the same,
and the figures say so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.swapping import BACK, OUT, gigabytes_per_s, helper, move
from benchmarks.gpu.working import Kind
from millpond.model.errors import UnavailableError
from millpond.node.sharing.helper import CheckpointHelper

_PART = 0.54
"""Of the card's memory: 75 of 139 GiB."""
_LEAST_MIB = 1024
_OF_HOST = 0.8
_QUANTUM_S = 30.0
_LEAST_USEFUL = 0.7
_MOVED_MIB_PER_S = 2000
"""At the least, by which a job is sized that is out within a tenth of the time that there is."""


def measure(bench: Bench) -> dict[str, Any]:
    """Both work by the clock and know nothing of each other; whoever is on the host waits in its next call."""
    mib = _size(bench)
    with helper(bench) as driver:
        first = _job(bench, mib)
        unit_ns, sums = first.ask("unit_ns", kind=Kind.STEP), {first.pid: first.ask("checksum")}
        move(driver, first.pid, *OUT)
        second = _job(bench, mib)
        sums[second.pid] = second.ask("checksum")
        jobs, switches = [second, first], []
        quantum_s = min(_QUANTUM_S, bench.seconds / 3)
        began, until = time.monotonic(), time.monotonic() + bench.seconds
        for job in jobs:
            job.send("work", kind=Kind.STEP, seconds=bench.seconds)
        while time.monotonic() + quantum_s < until:
            time.sleep(quantum_s)
            switches.append(_switch(driver, *jobs, mib=mib))
            jobs.reverse()
        did = [jobs[0].answer()["units"]]
        wall_s = time.monotonic() - began
        _switch(driver, *jobs, mib=mib)
        did.append(jobs[1].answer()["units"])
        unchanged = [jobs[1].ask("checksum") == sums[jobs[1].pid]]
        _switch(driver, *reversed(jobs), mib=mib)
        unchanged.append(jobs[0].ask("checksum") == sums[jobs[0].pid])
        return {
            "job_mib": mib,
            "fit_together": 2 * mib < bench.device.memory_mib,
            "quantum_s": quantum_s,
            "switches": switches,
            "units": did,
            "useful": round(sum(did) * unit_ns / 1e9 / wall_s, 3),
            "equal": all(unchanged),
        }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """Both get on, and most of the time is worked."""
    return held(
        (all(figures["units"]), "one of the two did nothing"),
        (figures["equal"], "memory came back changed"),
        (bool(figures["switches"]), "there was time for no turn"),
        (figures["useful"] >= _LEAST_USEFUL, f"only {figures['useful']:.0%} of the time was worked"),
    )


def _size(bench: Bench) -> int:
    """Of a job; while they change places both are on the host, which then has to hold two, and the time has to do."""
    most = min(int(bench.host_mib * _OF_HOST) // 2, int(bench.seconds / 10 * _MOVED_MIB_PER_S))
    mib = min(int(bench.device.memory_mib * _PART), most)
    if mib < _LEAST_MIB:
        raise UnavailableError(f"host memory is short: {mib} MiB for a job", "measure on a machine with more")
    return mib


def _job(bench: Bench, mib: int) -> Child:
    child = bench.child()
    child.ask("hold", mib=mib)
    return child


def _switch(driver: CheckpointHelper, leaves: Child, returns: Child, mib: int) -> dict[str, float]:
    out, back = move(driver, leaves.pid, *OUT), move(driver, returns.pid, *BACK)
    return {
        **out,
        **back,
        "out_gb_per_s": gigabytes_per_s(mib, *out.values()),
        "back_gb_per_s": gigabytes_per_s(mib, *back.values()),
    }


MEASUREMENT = Measurement(
    "m09_swap",
    "do two jobs that do not fit together take turns, and what is lost by that",
    "both get on, and at least 70 % of the time is worked",
    45,
    measure,
    judge,
)
