"""Programs that end while their work is on the card, in slices: does each end well, and is nothing left?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.gated import cut
from benchmarks.gpu.results import Verdict, held

_AT_ONCE = 4
_WITHIN_S = 10.0


def measure(bench: Bench) -> dict[str, Any]:
    """As many as there is time for, some at once, all in one slice."""
    part, until, codes = cut(bench, "slice"), time.monotonic() + bench.seconds, Counter[str]()
    before = bench.used_mib()
    try:
        while not codes or time.monotonic() < until:
            _begin_and_end_some(bench, part.env, codes)
    finally:
        bench.journal.case("exits", dict(codes))  # of one that is ended, too
    return {"exits": dict(codes), "left_mib": bench.used_mib() - before}


def _begin_and_end_some(bench: Bench, env: Mapping[str, str], codes: Counter[str]) -> None:
    with bench.passing():
        children = bench.children([env] * _AT_ONCE)
        for child in children:
            child.send("leave")
        for child in children:
            code = child.exit_code(_WITHIN_S)
            codes["hung" if code is None else str(code)] += 1


def judge(figures: Mapping[str, Any]) -> Verdict:
    """All of them."""
    bad = {code: count for code, count in figures["exits"].items() if code != "0"}
    return held(
        (not bad, f"exit codes {bad} of {sum(figures['exits'].values())}"),
        (figures["left_mib"] <= 0, f"{figures['left_mib']} MiB were left on the card"),
    )


MEASUREMENT = Measurement(
    "m16_exits",
    "do programs in a slice end well while their work is on the card",
    "every exit code is 0, and nothing is left on the card",
    20,
    measure,
    judge,
)
