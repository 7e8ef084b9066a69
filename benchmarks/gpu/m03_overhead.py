"""What the gate costs a program that shares the card with nobody at the moment."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.gated import cut
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind

_KINDS = (Kind.TINY, Kind.GRAPH, Kind.LARGE, Kind.STEP)
_PAIRS = 8
_ROUNDS = 3
_MOST_PERCENT = {Kind.TINY: 2.0}
_MOST_PERCENT_ELSE = 0.5


def measure(bench: Bench) -> dict[str, Any]:
    """The same work by programs with the gate and without, one at a time, by turns.

    How fast a program launches depends on where it lies, and stays as long as it runs: so there are several of each.
    """
    envs = [cut(bench, f"slice-{number}").env for number in range(_PAIRS)]
    children = bench.children([*envs, *[{}] * _PAIRS], torch=bench.has_torch)
    pairs = list(zip(children[:_PAIRS], children[_PAIRS:], strict=True))
    figures = {}
    for kind in _KINDS:
        each_s = bench.seconds / len(_KINDS) / _PAIRS / (_ROUNDS + 1) / 2
        count = max(1, round(each_s * 1e9 / pairs[0][1].ask("unit_ns", kind=kind)))
        took = [[_least(child, kind, count) for child in pair] for pair in pairs]
        slow, fast = (statistics.median(each[place] for each in took) for place in (0, 1))
        ratios = [with_gate / plain for with_gate, plain in took]
        figures[kind.value] = {
            "overhead_percent": round((slow / fast - 1) * 100, 3),
            "lowest_percent": round((min(ratios) - 1) * 100, 3),
            "highest_percent": round((max(ratios) - 1) * 100, 3),
            "unit_us": round(fast / count * 1e6, 3),
            "count": count,
        }
        bench.journal.case(kind.value, figures[kind.value])
    return {"kinds": figures, "pairs": _PAIRS, "rounds": _ROUNDS}


def _least(child: Child, kind: Kind, count: int) -> float:
    """Seconds for so many units, in the best of some rounds."""
    child.ask("repeat", kind=kind, count=1)
    return min(child.ask("repeat", kind=kind, count=count) for _ in range(_ROUNDS))


def judge(figures: Mapping[str, Any]) -> Verdict:
    """By the medians of the programs."""
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
