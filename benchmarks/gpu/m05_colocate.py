"""A service and a training on one card: how late the answers come, how much is trained, by each way of sharing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu import mps
from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.gated import granted
from benchmarks.gpu.results import Verdict, held, spread
from benchmarks.gpu.working import Kind
from millpond.model.errors import UnavailableError
from millpond.model.sharing import ShareClass

_LOAD = 0.5
_FLOORS_MILLI = (0, 5)
_MOST_P99 = 1.20
_LEAST_OF_GAPS = 0.5
_ARMS = 5
_ROUNDS = 4
_FIRST_RATE = 100.0
_NOTICE_S = 0.1


@dataclass(frozen=True, slots=True)
class Pair:
    """A service and a training, and what each does when the other does nothing.

    Attributes:
        rate: requests a second, at random moments, that keep the service busy for half of the time.
        steps: of the training, a second.
    """

    online: Child
    offline: Child
    rate: float
    steps: float


def measure(bench: Bench) -> dict[str, Any]:
    """Each pair by turns: the service alone, and with the training beside it."""
    each_s = bench.seconds / (_ARMS + 2)
    arms: dict[str, Any] = {}

    def done(name: str, row: dict[str, Any]) -> None:
        arms[name] = row
        bench.journal.case(name, row)

    with bench.passing():
        done("native", _beside(_known(bench.worker(), bench.worker(), each_s), each_s))
    first, second = (granted(bench, each.value, each) for each in (ShareClass.ONLINE, ShareClass.BACKFILL))
    with bench.passing():
        pair = _known(bench.worker(first.env), bench.worker(second.env), each_s)
        for floor in _FLOORS_MILLI:
            second.region.set(floor_milli=floor)
            done(f"gate, floor {floor / 10:g} %", _beside(pair, each_s))
        second.region.set(floor_milli=0)
        done("long graphs, gate", _beside(pair, each_s, Kind.LONG))
    notes = {}
    try:
        with mps.pack(bench) as pack, bench.passing():
            online, offline = bench.worker(pack.client()), bench.worker(pack.client() | mps.BELOW_NORMAL)
            done("mps priority", _beside(_known(online, offline, each_s), each_s))
    except UnavailableError as error:
        notes["mps priority"] = str(error)
    return {"arms": arms, "not_tried": notes}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """One setting of the gate has to do."""
    return held((best(figures["arms"]) is not None, "no setting of the gate meets the line"))


def best(arms: Mapping[str, Any]) -> str | None:
    """The arm of the gate that meets the line with the most trained; None when there is none."""
    good = [
        name
        for name, row in arms.items()
        if name.startswith("gate") and row["p99_ratio"] <= _MOST_P99 and row["of_gaps"] >= _LEAST_OF_GAPS
    ]
    return max(good, key=lambda name: arms[name]["of_gaps"], default=None)


def _known(online: Child, offline: Child, each_s: float) -> Pair:
    """How fast a program launches depends on where it lies: so each pair is measured by itself."""
    steps = _rate(offline.ask("work", kind=Kind.STEP, seconds=each_s / 4))
    answers_ms = online.ask("serve", rate=_FIRST_RATE, seconds=each_s / 4)["took"]
    return Pair(online, offline, _LOAD * 1000 / statistics.mean(answers_ms), steps)


def _beside(pair: Pair, seconds: float, kind: Kind = Kind.STEP) -> dict[str, Any]:
    """The service alone and beside the other, by turns, with the same requests each time."""
    alone: list[Mapping[str, Any]] = []
    beside: list[Mapping[str, Any]] = []
    units = spent_s = 0.0
    for _ in range(_ROUNDS):
        each_s = seconds / _ROUNDS / 2
        alone.append(pair.online.ask("serve", rate=pair.rate, seconds=each_s))
        start_s = time.monotonic() + _NOTICE_S
        ahead = 1 if kind is Kind.LONG else 4
        pair.offline.send("work", kind=kind, seconds=each_s, start_s=start_s, ahead=ahead)
        beside.append(pair.online.ask("serve", rate=pair.rate, seconds=each_s, start_s=start_s))
        did = pair.offline.answer()
        units, spent_s = units + did["units"], spent_s + did["seconds"]
    told = {"alone": _told(alone), "beside": _told(beside)}
    load = pair.rate * told["alone"]["answer_ms"]["mean"] / 1000
    p99 = [told[name]["latency_ms"]["p99"] for name in ("beside", "alone")]
    of_gaps = round(units / spent_s / (pair.steps * (1 - load)), 3) if kind is Kind.STEP else None
    row = {"load": round(load, 3), "p99_ratio": round(p99[0] / p99[1], 3), "of_gaps": of_gaps}
    return {**row, **told, "requests_per_s": pair.rate, "per_s": units / spent_s, "steps_per_s_alone": pair.steps}


def _told(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    late, took = ([each for answers in rounds for each in answers[name]] for name in ("late", "took"))
    return {"latency_ms": spread(late), "answer_ms": {**spread(took), "mean": statistics.mean(took)}}


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
