"""A service and a training on one card: how late the answers come, how much is trained, by each way of sharing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpu import mps
from gpu.bench import Bench, Measurement
from gpu.children import Child
from gpu.gated import cut
from gpu.results import Verdict, held, spread
from gpu.working import Kind
from millpond.model.errors import UnavailableError
from millpond.model.sharing import ShareClass

_LOADS = (0.2, 0.5)
_IN_FLIGHT = (1, 2, 4, 8)
_MOST_P99 = 1.20
_LEAST_OF_GAPS = 0.5
_FLOOR_MILLI = 50
_ARMS = 9
_NOTICE_S = 0.1


@dataclass(frozen=True, slots=True)
class Alone:
    """What each does when the other does nothing.

    Attributes:
        requests, steps: a second; requests one after the other.
    """

    requests: float
    steps: float


def measure(bench: Bench) -> dict[str, Any]:
    """Requests at random moments; between them, and while they are answered, the other trains."""
    each_s = bench.seconds / (len(_LOADS) * _ARMS + 5)
    with bench.passing():
        online, offline = bench.worker(), bench.worker()
        alone = Alone(
            1e9 / online.ask("unit_ns", kind=Kind.REQUEST), _rate(offline.ask("work", kind=Kind.STEP, seconds=each_s))
        )
        arms = {"alone": [_serve(online, None, alone, load, each_s) for load in _LOADS]}
        arms["native"] = [_serve(online, offline, alone, load, each_s) for load in _LOADS]
        arms["freeze"] = [_serve(online, offline, alone, load, each_s, halts=True) for load in _LOADS]
    for name, rows in _gated(bench, alone, each_s):
        arms[name] = rows
    notes = {}
    for name, limit_milli, env in (("mps priority", 1000, mps.BELOW_NORMAL), ("mps 30 %", 300, {})):
        try:
            with mps.pack(bench) as pack, bench.passing():
                online, offline = bench.worker(pack.client()), bench.worker(pack.client(limit_milli) | env)
                arms[name] = [_serve(online, offline, alone, load, each_s) for load in _LOADS]
        except UnavailableError as error:
            notes[name] = str(error)
    return {"alone": {"requests_per_s": alone.requests, "steps_per_s": alone.steps}, "arms": arms, "not_tried": notes}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """One setting of the gate has to do at every load."""
    return held((best(figures["arms"]) is not None, "no setting of the gate meets the line at every load"))


def best(arms: Mapping[str, Any]) -> str | None:
    """The arm of the gate that meets the line with the most trained; None when there is none."""
    base = [row["latency_ms"]["p99"] for row in arms["alone"]]

    def meets(rows: Any) -> bool:
        return all(
            row["latency_ms"]["p99"] <= _MOST_P99 * alone and row["of_gaps"] >= _LEAST_OF_GAPS
            for row, alone in zip(rows, base, strict=True)
        )

    good = [name for name, rows in arms.items() if name.startswith("gate") and meets(rows)]
    return max(good, key=lambda name: sum(row["of_gaps"] for row in arms[name]), default=None)


def _gated(bench: Bench, alone: Alone, each_s: float) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    first = cut(bench, "online", share_class=ShareClass.ONLINE)
    second = cut(bench, "offline", share_class=ShareClass.BACKFILL, floor_milli=_FLOOR_MILLI)
    with bench.passing():
        online, offline = bench.worker(first.env), bench.worker(second.env)
        for most in _IN_FLIGHT:
            second.region.set(in_flight_maximum=most)
            yield f"gate K={most}", [_serve(online, offline, alone, load, each_s) for load in _LOADS]


def _serve(
    online: Child, offline: Child | None, alone: Alone, load: float, seconds: float, halts: bool = False
) -> dict[str, Any]:
    start_s, halted = time.monotonic() + _NOTICE_S, offline.pid if offline is not None and halts else 0
    if offline is not None:
        offline.send("work", kind=Kind.STEP, seconds=seconds, start_s=start_s)
    late = online.ask("serve", rate=load * alone.requests, seconds=seconds, halts=halted, start_s=start_s)
    steps = _rate(offline.answer()) if offline is not None else 0.0
    return {
        "load": load,
        "latency_ms": spread(late),
        "of_gaps": round(steps / (alone.steps * (1 - load)), 3),
    }


def _rate(did: Mapping[str, float]) -> float:
    return did["units"] / did["seconds"]


MEASUREMENT = Measurement(
    "m05_colocate",
    "how a service fares beside a training, by each way of sharing",
    "p99 at most 1.20 x alone and half of the gaps used, with one setting of the gate",
    105,
    measure,
    judge,
)
