"""Programs that spend their time on launching, side by side: what they do together, with the gate and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.gated import cut
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind

_COUNTS = (1, 2, 4, 8)
_LEAST_RATIO = 0.95
_NOTICE_S = 0.1
_ROUNDS = 6


def measure(bench: Bench) -> dict[str, Any]:
    """All are there from the beginning; of those with the gate and those without, as many work as are asked."""
    most = _COUNTS[-1]
    envs = [cut(bench, f"slice-{number}").env for number in range(most)]
    children = bench.children([*envs, *[{}] * most], torch=bench.has_torch)
    gated, native = children[:most], children[most:]
    for child in children:
        child.ask("repeat", kind=Kind.SMALL, count=1)
    each_s = bench.seconds / (len(_COUNTS) * _ROUNDS * 2 + 4)
    rows = []
    for count in _COUNTS:
        rates = []
        for number in range(_ROUNDS):
            order = (native, gated) if number % 2 else (gated, native)
            rate = {group is gated: _rate(_some(group, count, number), each_s) for group in order}
            rates.append((rate[False], rate[True]))
        rows.append(
            {
                "programs": count,
                "native": statistics.median(plain for plain, _ in rates),
                "gated": statistics.median(with_gate for _, with_gate in rates),
                "ratio": round(statistics.median(with_gate / plain for plain, with_gate in rates), 3),
            }
        )
        bench.journal.case(f"{count} programs", rows[-1])
    return {"rows": rows}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """However many there are."""
    return held(
        *(
            (row["ratio"] >= _LEAST_RATIO, f"{row['programs']} programs: {row['ratio']} of native")
            for row in figures["rows"]
        )
    )


def _some(group: Sequence[Child], count: int, number: int) -> list[Child]:
    """Others each round: how fast a program launches depends on where it lies, and is the same as long as it runs."""
    return [group[(number + place) % len(group)] for place in range(count)]


def _rate(children: Sequence[Child], seconds: float) -> float:
    """Units a second of all together."""
    start_s = time.monotonic() + _NOTICE_S
    for child in children:
        child.send("work", kind=Kind.SMALL, seconds=seconds, ahead=1, start_s=start_s)
    return sum(did["units"] / did["seconds"] for did in [child.answer() for child in children])


MEASUREMENT = Measurement(
    "m15_rates",
    "what programs that launch all the time do together, with the gate and without",
    "1, 2, 4 and 8 programs do at least 0.95 of what they do without the gate",
    60,
    measure,
    judge,
)
