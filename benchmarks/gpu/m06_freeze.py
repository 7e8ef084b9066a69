"""Stopping a program: how soon the card is free of it, how soon it is back, and does it compute the same."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.results import Verdict, held, percentile, spread
from benchmarks.gpu.working import Kind

_CYCLES = 100
_RUN_S, _STAND_S = 0.05, 0.1
_MOST_MS = 100.0
_AHEAD = 4
_SLOWER = 5.0
_SLOWER_NS = 200_000
_SILENCE_NS = 5_000_000
_STEPS = 60


def measure(bench: Bench) -> dict[str, Any]:
    """A neighbour's tiny kernels tell whether the card turns to somebody else: they wait for its turns, or do not."""
    target, neighbour = bench.child(), bench.child()
    step_ms = target.ask("unit_ns", kind=Kind.LARGE) / 1e6
    idle = [took for _, took in neighbour.ask("pulse", seconds=min(1.0, bench.seconds / 10))]
    slow_ns = max(_SLOWER * percentile(idle, 50), percentile(idle, 50) + _SLOWER_NS)
    cycles = max(3, min(_CYCLES, int(bench.seconds * 0.6 / (_RUN_S + _STAND_S))))
    stops, pulses = _cycles(target, neighbour, cycles)
    slow = [(since, since + took) for since, took in pulses if took > slow_ns]
    quiet, back = when_quiet(stops, slow), when_back(stops, slow)
    return {
        "cycles": cycles,
        "queued_ms": round(step_ms * _AHEAD, 3),
        "quiet_ms": spread(quiet),
        "back_ms": spread(back),
        "pulse_alone_ns": spread(idle),
        "slow_pulses": len(slow),
        "losses_equal": _losses_equal(bench) if bench.has_torch else None,
    }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """Quiet soon after what was queued, and nothing computed otherwise."""
    most = _MOST_MS + figures["queued_ms"]
    return held(
        (figures["slow_pulses"] > 0, "the neighbour noticed nothing, so nothing can be said"),
        (figures["quiet_ms"].get("p99", 0.0) <= most, f"quiet only after {figures['quiet_ms'].get('p99')} ms (p99)"),
        (figures["losses_equal"] is not False, "a training that was stopped computed other losses"),
    )


def when_quiet(stops: Sequence[tuple[int, int]], slow: Sequence[tuple[int, int]]) -> list[float]:
    """Milliseconds from each stop to the end of the last slow pulse; one after a long silence is chance."""
    found = []
    for stop, going in stops:
        quiet = stop
        for since, end in slow:
            if end > quiet and since < min(going, quiet + _SILENCE_NS):
                quiet = end
        found.append((quiet - stop) / 1e6)
    return found


def when_back(stops: Sequence[tuple[int, int]], slow: Sequence[tuple[int, int]]) -> list[float]:
    """Milliseconds from each going on to the first slow pulse; cycles in which there was none say nothing."""
    found = []
    for (_, going), (next_stop, _) in pairwise(stops):
        seen = [since for since, _ in slow if going <= since < next_stop]
        found += [(min(seen) - going) / 1e6] if seen else []
    return found


def _cycles(target: Child, neighbour: Child, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    lasting_s = count * (_RUN_S + _STAND_S) + 0.2
    target.send("work", kind=Kind.LARGE, seconds=lasting_s, ahead=_AHEAD)
    neighbour.send("pulse", seconds=lasting_s)
    stops = []
    for _ in range(count):
        time.sleep(_RUN_S)
        stop = target.signal(signal.SIGSTOP)
        time.sleep(_STAND_S)
        stops.append((stop, target.signal(signal.SIGCONT)))
    target.answer()
    return stops, [(since, took) for since, took in neighbour.answer()]


def _losses_equal(bench: Bench) -> bool:
    with bench.passing():
        child, same = bench.child(torch=True), bench.child(torch=True)
        expected = same.ask("train", steps=_STEPS)
        child.send("train", steps=_STEPS)
        for _ in range(10):
            time.sleep(_RUN_S)
            child.signal(signal.SIGSTOP)
            time.sleep(_RUN_S)
            child.signal(signal.SIGCONT)
        return bool(child.answer() == expected)


MEASUREMENT = Measurement(
    "m06_freeze",
    "how soon a stopped program is off the card, and back",
    "p99 at most 100 ms beyond what is queued; the same losses",
    35,
    measure,
    judge,
)
