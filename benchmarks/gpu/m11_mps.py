"""NVIDIA's multi-process service: how well its limits hold, and what one client's fault does to the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu import mps
from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import ChildError
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind

_LIMIT_MIB = 1024
_PERCENTS = (10, 25, 30, 50, 100)
_ANSWER_S = 20.0


def measure(bench: Bench) -> dict[str, Any]:
    """Limits first; then somebody faults."""
    with mps.pack(bench) as pack:
        figures = {
            "memory": _memory(bench, pack),
            "threads": [_threads(bench, pack, percent) for percent in _PERCENTS],
            "fault": _fault(bench, pack),
        }
        with bench.passing():
            figures["new_client_works"] = bench.child(pack.client()).ask("repeat", kind=Kind.TINY, count=1) > 0
    return figures


def judge(figures: Mapping[str, Any]) -> Verdict:
    """Accuracy is recorded; a limit that is exceeded, or a card that stays broken, is a failure."""
    given = figures["memory"]["given_mib"]
    return held(
        (given <= _LIMIT_MIB, f"a client limited to {_LIMIT_MIB} MiB was given {given}"),
        (figures["new_client_works"], "no new client works after a fault"),
    )


def _memory(bench: Bench, pack: mps.Pack) -> dict[str, Any]:
    with bench.passing():
        child = bench.child(pack.client(memory_mib=_LIMIT_MIB))
        told = child.ask("allocate_until_refused", most_mib=2 * _LIMIT_MIB)
        return {"limit_mib": _LIMIT_MIB, "given_mib": told["mib"], "refusal": told["refusal"]}


def _threads(bench: Bench, pack: mps.Pack, percent: int) -> dict[str, Any]:
    """The multiprocessors that the client is told of, and how long its kernels take."""
    with bench.passing():
        child = bench.child(pack.client(limit_milli=percent * 10), started=False)
        seen = child.ask("start")["multiprocessors"]
        return {"percent": percent, "multiprocessors": seen, "large_ns": child.ask("unit_ns", kind=Kind.LARGE)}


def _fault(bench: Bench, pack: mps.Pack) -> dict[str, Any]:
    with bench.passing():
        faulty, neighbour = bench.child(pack.client()), bench.child(pack.client())
        return {"faulty": _said(faulty, "fault"), "neighbour": _said(neighbour, "repeat", kind=Kind.TINY, count=1)}


def _said(child: Any, order: str, **arguments: Any) -> str:
    child.send(order, **arguments)
    try:
        child.answer(_ANSWER_S)
    except ChildError as error:
        return error.name
    return "ok"


MEASUREMENT = Measurement(
    "m11_mps",
    "how well limits of MPS hold, and what a fault of one client does",
    "memory limit not exceeded; a new client works after a fault",
    25,
    measure,
    judge,
)
