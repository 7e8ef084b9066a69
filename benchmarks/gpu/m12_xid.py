"""A program writes where nothing is: is that heard of, and is its neighbour left alone?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import ChildError
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind
from millpond.model.errors import UnavailableError
from millpond.node.devices.nvml.faults import NvmlEvents

_MOST_S = 2.0
_PATIENCE_S = 5.0
_BEFORE_S = 0.2


def measure(bench: Bench) -> dict[str, Any]:
    """Listen as the node does."""
    events = NvmlEvents.open(bench.nvml, [bench.handle])
    if events is None:
        raise UnavailableError("the driver reports no faults of this card")
    faulty, neighbour = bench.child(), bench.child()
    listening_s = min(_PATIENCE_S, bench.seconds / 2)
    neighbour.send("work", kind=Kind.LARGE, seconds=listening_s)
    time.sleep(min(_BEFORE_S, listening_s / 2))
    since = time.monotonic()
    faulty.send("fault")
    heard = events.wait(listening_s)
    after_s = round(time.monotonic() - since, 3)
    try:
        faulty.answer(_PATIENCE_S)
        said = "ok"
    except ChildError as error:
        said = error.name
    return {
        "program": said,
        "heard_after_s": after_s if heard else None,
        "events": [{"text": event.text, "scope": event.scope.value} for event in heard],
        "neighbour": neighbour.answer(),
    }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """Heard in time, as the task's fault."""
    after_s = figures["heard_after_s"]
    return held(
        (after_s is not None and after_s <= _MOST_S, f"heard after {after_s} s" if after_s else "nothing was heard"),
        (figures["program"] != "ok", "the program noticed nothing"),
        (figures["neighbour"]["units"] > 0, "its neighbour did nothing"),
    )


MEASUREMENT = Measurement(
    "m12_xid",
    "how soon a fault of a program is heard of",
    "within 2 s, its neighbour unharmed",
    12,
    measure,
    judge,
)
