"""What the gate costs a program that shares the card with nobody at the moment."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from gpu.bench import Bench, Measurement
from gpu.gated import cut
from gpu.results import Verdict, held
from gpu.working import Kind

_KINDS = (Kind.TINY, Kind.GRAPH, Kind.LARGE, Kind.STEP)
_ROUNDS = 9
_MOST_PERCENT = {Kind.TINY: 2.0}
_MOST_PERCENT_ELSE = 0.5


def measure(bench: Bench) -> dict[str, Any]:
    """The same work by a program with the gate and one without, by turns; each round swaps who goes first."""
    gated, plain = bench.worker(cut(bench, "slice").env), bench.worker()
    figures = {}
    for kind in _KINDS:
        each_s = bench.seconds / len(_KINDS) / (_ROUNDS + 2) / 2
        count = max(1, round(each_s * 1e9 / plain.ask("unit_ns", kind=kind)))
        gated.ask("repeat", kind=kind, count=1)
        took: dict[int, list[float]] = {gated.pid: [], plain.pid: []}
        for round_ in range(_ROUNDS):
            for child in (gated, plain) if round_ % 2 else (plain, gated):
                took[child.pid].append(child.ask("repeat", kind=kind, count=count))
        ratios = [slow / fast for slow, fast in zip(took[gated.pid], took[plain.pid], strict=True)]
        figures[kind.value] = {
            "overhead_percent": round((statistics.median(ratios) - 1) * 100, 3),
            "lowest_percent": round((min(ratios) - 1) * 100, 3),
            "highest_percent": round((max(ratios) - 1) * 100, 3),
            "unit_us": round(statistics.median(took[plain.pid]) / count * 1e6, 3),
            "count": count,
        }
    return {"kinds": figures, "rounds": _ROUNDS}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """By the median of the rounds."""
    return held(
        *(
            (
                row["overhead_percent"] <= _MOST_PERCENT.get(Kind(kind), _MOST_PERCENT_ELSE),
                f"{kind}: {row['overhead_percent']} % slower",
            )
            for kind, row in figures["kinds"].items()
        )
    )


MEASUREMENT = Measurement(
    "m03_overhead",
    "how much slower the gate makes a program",
    "tiny kernels at most 2 %, graphs, large kernels and training steps 0.5 %",
    40,
    measure,
    judge,
)
