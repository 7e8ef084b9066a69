"""Eight programs in slices of 4 GiB: is each refused at its cap, in every way of asking, and is nobody hurt?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.gated import Slice, cut
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.working import Kind
from millpond.node.sharing.gate_enforcer import CONTEXT_MIB

SLICES = 8
_CAP_MIB = 4096
_WAYS = ("plain", "async", "physical")
_OWN_MIB = 1
"""What ``driver_calls.Cuda`` takes for itself."""
_ABOVE_MIB, _BELOW_MIB = 1, 2
"""Physical memory comes in pages of 2 MiB."""
_EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def measure(bench: Bench) -> dict[str, Any]:
    """First by calls of the driver, then eight trainings with PyTorch where it is installed."""
    cap_mib = min(_CAP_MIB, bench.free_mib() // SLICES // 64 * 64)
    context_mib = CONTEXT_MIB if cap_mib > 2 * CONTEXT_MIB else 0
    slices = [cut(bench, f"slice-{n}", cap_mib=cap_mib, context_mib=context_mib) for n in range(SLICES)]
    figures = {"cap_mib": cap_mib, "context_mib": context_mib, "driver": _by_calls(bench, slices)}
    bench.journal.case("by calls of the driver", figures["driver"])
    if bench.has_torch:
        figures["torch"] = _by_torch(bench, slices)
    return figures


def judge(figures: Mapping[str, Any]) -> Verdict:
    """All refused at the cap; nobody disturbed; the card never holds more than it should."""
    driver, cap, context = figures["driver"], figures["cap_mib"], figures["context_mib"]
    errors = [mib - (cap - context) for given in driver["given_mib"].values() for mib in given]
    claims = [
        (
            all(-_BELOW_MIB <= error <= _ABOVE_MIB for error in errors),
            f"refused up to {_worst(errors)} MiB off the cap",
        ),
        (all(driver["refused"]), "somebody was refused nothing"),
        (driver["used_mib"] <= driver["contexts_mib"] + SLICES * cap, "together they took more than their caps"),
        (all(total == cap for total in driver["seen_total_mib"]), "somebody sees another size of card than its slice"),
        *_unhurt(driver["greedy"], "CUDA_ERROR_OUT_OF_MEMORY"),
    ]
    if "torch" in figures:
        torch = figures["torch"]
        claims.append((all(mib <= cap for mib in torch["given_mib"]), "PyTorch was given more than a cap"))
        claims += _unhurt(torch["greedy"], "OutOfMemoryError")
    return held(*claims)


def _by_calls(bench: Bench, slices: list[Slice]) -> dict[str, Any]:
    with bench.passing():
        before = bench.used_mib()
        children = bench.children([each.env for each in slices])
        contexts_mib, most = bench.used_mib() - before, 2 * slices[0].region.settings.cap_mib
        given: dict[str, list[int]] = {}
        refused = []
        for way in _WAYS:
            told = [child.ask("allocate_until_refused", most_mib=most, way=way) for child in children]
            given[way] = [each["mib"] + _OWN_MIB for each in told]
            refused += [bool(each["refusal"]) for each in told]
        seen = [child.ask("info")["total_mib"] for child in children]
        greedy = _one_is_greedy(children, bench.seconds / 10, most)
        for child in children:
            child.ask("allocate_until_refused", most_mib=most, keep=True)
        used_mib = bench.used_mib() - before
    return {
        "given_mib": given,
        "refused": refused,
        "seen_total_mib": seen,
        "contexts_mib": contexts_mib,
        "used_mib": used_mib,
        "greedy": greedy,
    }


def _by_torch(bench: Bench, slices: list[Slice]) -> dict[str, Any]:
    with bench.passing():
        envs = [each.env | (_EXPANDABLE if number % 2 else {}) for number, each in enumerate(slices)]
        children = bench.children(envs, torch=True)
        most = 2 * slices[0].region.settings.cap_mib
        given = [child.ask("allocate_until_refused", most_mib=most)["mib"] for child in children]
        return {"given_mib": given, "greedy": _one_is_greedy(children, bench.seconds / 6, most)}


def _one_is_greedy(children: list[Child], seconds: float, most_mib: int) -> dict[str, Any]:
    """All train, but the first, which asks for too much; then it trains, too."""
    greedy, *others = children
    for child in others:
        child.send("work", kind=Kind.STEP, seconds=seconds, ahead=1)
    refusal = greedy.ask("allocate_until_refused", most_mib=most_mib)["refusal"]
    others_did = [child.answer()["units"] for child in others]
    return {"refusal": refusal, "others_did": others_did, "did_then": greedy.ask("work", kind=Kind.STEP, seconds=0.1)}


def _unhurt(greedy: Mapping[str, Any], refusal: str) -> list[tuple[bool, str]]:
    return [
        (greedy["refusal"] == refusal, f"who asked for too much heard {greedy['refusal'] or 'nothing'}"),
        (all(greedy["others_did"]), "a neighbour of who asked for too much did nothing"),
        (greedy["did_then"]["units"] > 0, "who asked for too much could not go on"),
    ]


def _worst(errors: list[int]) -> int:
    return max(errors, key=abs)


MEASUREMENT = Measurement(
    "m02_memcap",
    "are eight slices refused at their caps, and are their neighbours left alone",
    "refused at the cap, +1 / -2 MiB; one that asks for too much hurts nobody",
    40,
    measure,
    judge,
)
