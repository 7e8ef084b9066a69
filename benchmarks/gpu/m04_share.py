"""Shares of the card's time: one program held to a part of it, and two that both want all of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.gated import Slice, cut
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind

_KINDS = (Kind.GRAPH,)
_LIMITS_MILLI = (100, 250, 500, 750)
_PAIRS_MILLI = ((300, 700), (500, 500), (200, 800))
_WHOLE_MILLI = 1000
_MOST_POINTS = 3.0
_NOTICE_S = 0.1


def measure(bench: Bench) -> dict[str, Any]:
    """Two programs in a slice each, whose settings change while they run."""
    slices = [cut(bench, name) for name in ("one", "other")]
    children = [bench.worker(each.env) for each in slices]
    each_s = bench.seconds / (len(_KINDS) * (len(_LIMITS_MILLI) + len(_PAIRS_MILLI)) + 6)
    alone, pairs = [], []
    for kind in _KINDS:
        unit_ns = children[0].ask("unit_ns", kind=kind)
        children[1].ask("repeat", kind=kind, count=1)
        for limit in _LIMITS_MILLI:
            alone.append(_alone(children[0], slices[0], kind, limit, unit_ns, each_s))
            bench.journal.case(f"limit {limit / 10:g} %", alone[-1])
        for guarantees in _PAIRS_MILLI:
            pairs.append(_pair(children, slices, kind, guarantees, each_s))
            bench.journal.case(pairs[-1]["wanted"], pairs[-1])
    return {"alone": alone, "pairs": pairs}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """No share is further off than allowed."""
    rows = [*figures["alone"], *figures["pairs"]]
    return held(
        *(
            (
                abs(row["error_points"]) <= _MOST_POINTS,
                f"{row['kind']} {row['wanted']}: {row['error_points']} points off",
            )
            for row in rows
        )
    )


def _alone(child: Child, part: Slice, kind: Kind, limit_milli: int, unit_ns: float, seconds: float) -> dict[str, Any]:
    part.region.set(limit_milli=limit_milli, guarantee_milli=limit_milli)
    did = child.ask("work", kind=kind, seconds=seconds)
    part.region.set(limit_milli=_WHOLE_MILLI)
    share = did["units"] * unit_ns / did["seconds"] / 1e9 * 100
    return _row(kind, f"{limit_milli / 10:g} %", share, limit_milli / 10)


def _pair(
    children: list[Child], slices: list[Slice], kind: Kind, guarantees: tuple[int, int], seconds: float
) -> dict[str, Any]:
    for part, guarantee in zip(slices, guarantees, strict=True):
        part.region.set(guarantee_milli=guarantee, limit_milli=_WHOLE_MILLI)
    start_s = time.monotonic() + _NOTICE_S
    for child in children:
        child.send("work", kind=kind, seconds=seconds, start_s=start_s)
    rates = [did["units"] / did["seconds"] for did in (child.answer() for child in children)]
    share = rates[0] / sum(rates) * 100
    return _row(kind, f"{guarantees[0] / 10:g}/{guarantees[1] / 10:g}", share, guarantees[0] / 10)


def _row(kind: Kind, wanted: str, share: float, target: float) -> dict[str, Any]:
    return {
        "kind": kind.value,
        "wanted": wanted,
        "share_percent": round(share, 2),
        "error_points": round(share - target, 2),
    }


MEASUREMENT = Measurement(
    "m04_share",
    "how well shares of the card's time are kept, alone and against each other",
    "every share within 3 points",
    30,
    measure,
    judge,
)
