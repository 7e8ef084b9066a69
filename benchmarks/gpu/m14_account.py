"""What a slice is charged against what the driver says is on the card: by the gate alone, and as the agent has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child, ChildError
from benchmarks.gpu.gated import Slice, cut
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind
from millpond.node.sharing.gate_enforcer import CONTEXT_MIB

_MOST_OFF = 0.02
_MIB = 1024 * 1024
_OPENED = "memory that a sibling opened"


def measure(bench: Bench) -> dict[str, Any]:
    """Each case with a program of its own."""
    cases = dict(_CASES)
    if bench.has_torch:
        cases |= _OF_TORCH
    found = {}
    for name, act in cases.items():
        with bench.passing():
            try:
                found[name] = _counted(bench, name, act, torch=name in _OF_TORCH)
            except ChildError as error:
                found[name] = {"child": error.name}
        bench.journal.case(name, found[name])
    with bench.passing():
        found[_OPENED] = _counted_of_two(bench)
    bench.journal.case(_OPENED, found[_OPENED])
    return {"context_mib": CONTEXT_MIB, "cases": found}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """Within two parts in a hundred, where the driver tells."""
    off = {name: row["off"] for name, row in figures["cases"].items() if row.get("off") is not None}
    return held(
        (bool(off), "the driver names no process, or nothing could be tried"),
        *((abs(each) <= _MOST_OFF, f"{name}: {each:+.1%} off") for name, each in off.items()),
    )


def _counted(bench: Bench, name: str, act: Callable[[Child], Any], torch: bool) -> dict[str, Any]:
    part = cut(bench, name.replace(" ", "-"), context_mib=CONTEXT_MIB)
    child = bench.child(part.env, torch=torch)
    act(child)
    return _held_against_driver(bench, part, [child])


def _counted_of_two(bench: Bench) -> dict[str, Any]:
    """Memory of one program of a slice that another of it opens: the gate counts it once, and the driver?"""
    part = cut(bench, "opened", context_mib=CONTEXT_MIB)
    one, other = bench.children([part.env, part.env])
    try:
        one.ask("hold", mib=1024)
        other.ask("open_exported", handle=one.ask("export"))
    except ChildError as error:
        return {"child": error.name}
    return _held_against_driver(bench, part, [one, other])


def _held_against_driver(bench: Bench, part: Slice, children: Sequence[Child]) -> dict[str, Any]:
    counted, each_on_card = part.region.usage().used_bytes, [bench.bytes_of(child.pid) for child in children]
    on_card = None if None in each_on_card else sum(each or 0 for each in each_on_card)
    if not on_card:
        return {"counted_mib": counted / _MIB, "on_card_mib": on_card, "off": None}
    part.region.match_driver(on_card, counted)
    charged = counted + part.region.settings.uncounted_bytes
    return {
        "counted_mib": counted / _MIB,
        "charged_mib": charged / _MIB,
        "on_card_mib": on_card / _MIB,
        "gate_off": round(counted / on_card - 1, 4),
        "off": round(charged / on_card - 1, 4),
    }


_CASES: dict[str, Callable[[Child], Any]] = {
    "a bare context": lambda child: None,
    "one large allocation": lambda child: child.ask("hold", mib=4096),
    "odd sizes": lambda child: child.ask("odd_sizes", count=200),
    "a pool that keeps": lambda child: child.ask("pool_keeps", mib=1024),
    "a heap for kernels": lambda child: child.ask("heap_limit", mib=512),
    "a graph": lambda child: child.ask("repeat", kind=Kind.GRAPH, count=2),
}
_OF_TORCH: dict[str, Callable[[Child], Any]] = {
    "a training": lambda child: child.ask("repeat", kind=Kind.STEP, count=5),
    "a graph of PyTorch": lambda child: child.ask("repeat", kind=Kind.GRAPH, count=2),
    "compiled (Triton)": lambda child: child.ask("compile"),
}

MEASUREMENT = Measurement(
    "m14_account",
    "how far what a slice is charged for is from what lies on the card",
    "within 2 % in every case",
    45,
    measure,
    judge,
)
