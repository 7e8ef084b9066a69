"""A service and a training on one card: how late the answers come, how much is trained, by each way of sharing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpu import mps
from gpu.bench import Bench, Measurement
from gpu.children import Child
from gpu.gated import granted
from gpu.results import Verdict, held, spread
from gpu.working import Kind
from millpond.model.errors import UnavailableError
from millpond.model.sharing import ShareClass

_LOAD = 0.5
_FLOORS_MILLI = (0, 5)
_MOST_P99 = 1.20
_LEAST_OF_GAPS = 0.5
_ARMS = 7
_NOTICE_S = 0.1


@dataclass(frozen=True, slots=True)
class Alone:
    """What each does when the other does nothing.

    Attributes:
        requests, steps: a second; each request begun when the one before is answered.
    """

    requests: float
    steps: float


def measure(bench: Bench) -> dict[str, Any]:
    """Requests at random moments; between them, and while they are answered, the other trains."""
    each_s = bench.seconds / (_ARMS + 1)
    arms: dict[str, Any] = {}

    def done(name: str, row: dict[str, Any]) -> None:
        arms[name] = row
        bench.journal.case(name, row)

    with bench.passing():
        online, offline = bench.worker(), bench.worker()
        answer_ns = online.ask("unit_ns", kind=Kind.REQUEST, together=1)
        alone = Alone(1e9 / answer_ns, _rate(offline.ask("work", kind=Kind.STEP, seconds=each_s)))
        done("alone", _serve(online, None, alone, each_s))
        done("native", _serve(online, offline, alone, each_s))
    for name, row in _gated(bench, alone, each_s):
        done(name, row)
    notes = {}
    try:
        with mps.pack(bench) as pack, bench.passing():
            online, offline = bench.worker(pack.client()), bench.worker(pack.client() | mps.BELOW_NORMAL)
            done("mps priority", _serve(online, offline, alone, each_s))
    except UnavailableError as error:
        notes["mps priority"] = str(error)
    return {"alone": {"requests_per_s": alone.requests, "steps_per_s": alone.steps}, "arms": arms, "not_tried": notes}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """One setting of the gate has to do."""
    return held((best(figures["arms"]) is not None, "no setting of the gate meets the line"))


def best(arms: Mapping[str, Any]) -> str | None:
    """The arm of the gate that meets the line with the most trained; None when there is none."""
    most = _MOST_P99 * arms["alone"]["latency_ms"]["p99"]
    good = [
        name
        for name, row in arms.items()
        if name.startswith("gate") and row["latency_ms"]["p99"] <= most and row["of_gaps"] >= _LEAST_OF_GAPS
    ]
    return max(good, key=lambda name: arms[name]["of_gaps"], default=None)


def _gated(bench: Bench, alone: Alone, each_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """As the agent would have it but for the floor; then beside graphs that nothing interrupts."""
    first = granted(bench, "online", ShareClass.ONLINE)
    second = granted(bench, "offline", ShareClass.BACKFILL)
    with bench.passing():
        online, offline = bench.worker(first.env), bench.worker(second.env)
        for floor in _FLOORS_MILLI:
            second.region.set(floor_milli=floor)
            yield f"gate, floor {floor / 10:g} %", _serve(online, offline, alone, each_s)
        second.region.set(floor_milli=0)
        yield "long graphs, gate", _serve(online, offline, alone, each_s, Kind.LONG)


def _serve(
    online: Child, offline: Child | None, alone: Alone, seconds: float, kind: Kind = Kind.STEP
) -> dict[str, Any]:
    start_s = time.monotonic() + _NOTICE_S
    if offline is not None:
        offline.send("work", kind=kind, seconds=seconds, start_s=start_s, ahead=1 if kind is Kind.LONG else 4)
    late = online.ask("serve", rate=_LOAD * alone.requests, seconds=seconds, start_s=start_s)
    rate = _rate(offline.answer()) if offline is not None else 0.0
    of_gaps = round(rate / (alone.steps * (1 - _LOAD)), 3) if kind is Kind.STEP else None
    return {"load": _LOAD, "latency_ms": spread(late), "per_s": rate, "of_gaps": of_gaps}


def _rate(did: Mapping[str, float]) -> float:
    return did["units"] / did["seconds"]


MEASUREMENT = Measurement(
    "m05_colocate",
    "how a service fares beside a training, by each way of sharing",
    "p99 at most 1.20 x alone and half of the gaps used, with one setting of the gate",
    140,
    measure,
    judge,
)
