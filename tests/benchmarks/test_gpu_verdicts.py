"""What each measurement calls passed and failed, by made-up figures; and how the figures are made of what was seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.gpu import m05_colocate, m06_freeze
from benchmarks.gpu.catalogue import CATALOGUE
from benchmarks.gpu.results import Status, held, percentile, spread

MS = 1_000_000


def latency(p99: float) -> dict[str, float]:
    return {"count": 100, "p50": 1.0, "p99": p99, "max": p99}


def arm(p99_ratio: float, of_gaps: float | None) -> dict[str, Any]:
    return {"load": 0.5, "p99_ratio": p99_ratio, "of_gaps": of_gaps}


GREEDY = {"refusal": "CUDA_ERROR_OUT_OF_MEMORY", "others_did": [3] * 7, "did_then": {"units": 1, "seconds": 0.1}}
SIZE = {"mib": 4096, "freed_mib": 4500, "left_mib": None, "out_gb_per_s": 6.0, "back_gb_per_s": 6.0, "equal": True}

GOOD: dict[str, dict[str, Any]] = {
    "m00_probe": {},
    "m01_context": {"contexts": 8},
    "m02_memcap": {
        "cap_mib": 4096,
        "context_mib": 512,
        "driver": {
            "given_mib": {"plain": [3584] * 8, "async": [3583] * 8, "physical": [3582] * 8},
            "refused": [True] * 24,
            "seen_total_mib": [4096] * 8,
            "contexts_mib": 4000,
            "used_mib": 32768,
            "greedy": GREEDY,
        },
        "torch": {"given_mib": [3500] * 8, "greedy": GREEDY | {"refusal": "OutOfMemoryError"}},
    },
    "m03_overhead": {"kinds": {"tiny": {"overhead_percent": 1.9}, "large": {"overhead_percent": 0.4}}},
    "m04_share": {"alone": [{"kind": "large", "wanted": "10 %", "error_points": -2.9}], "pairs": []},
    "m05_colocate": {"arms": {"native": arm(2.0, 1.0), "gate, floor 0 %": arm(1.2, 0.5)}},
    "m06_freeze": {"slow_pulses": 9, "queued_ms": 4.0, "quiet_ms": latency(103.0), "losses_equal": True},
    "m07_ckpt": {
        "kernels_compute": True,
        "sizes": [SIZE | {"mib": 1024, "out_gb_per_s": 2.0}, SIZE],
        "unchanged": {"graph": True, "losses": True},
        "cycles": {"count": 20, "equal": True},
    },
    "m08_ckpt_edges": {
        "cases": {"managed": {"lock": "ok", "checkpoint": "X"}, "stopped": {"lock": "hung"}},
        "works_afterwards": True,
    },
    "m09_swap": {"units": [5, 5], "equal": True, "switches": [{}], "useful": 0.71},
    "m10_telemetry": {"of_a_core_at_1_hz_with_8": 0.009},
    "m11_mps": {"memory": {"given_mib": 900}, "new_client_works": True},
    "m12_xid": {"heard_after_s": 1.9, "program": "CUDA_ERROR_ILLEGAL_ADDRESS", "neighbour": {"units": 5}},
    "m13_remap": {
        "identity": ("ok", "locked"),
        "equal": True,
        "wrong": ("CUDA_ERROR_INVALID_VALUE", "checkpointed"),
        "partial": None,
    },
    "m14_account": {"cases": {"a graph": {"off": -0.02}, "a training": {"child": "ended"}, "odd sizes": {"off": None}}},
    "m15_rates": {"rows": [{"programs": 8, "ratio": 0.95}]},
    "m16_exits": {"exits": {"0": 200}, "left_mib": 0},
}

BAD: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("m01_context", lambda seen: seen.update(contexts=7), "only 7"),
    ("m02_memcap", lambda seen: seen["driver"]["given_mib"].update(plain=[3586]), "2 MiB off"),
    ("m02_memcap", lambda seen: seen["driver"].update(refused=[True, False]), "refused nothing"),
    ("m02_memcap", lambda seen: seen["driver"].update(used_mib=36769), "more than their caps"),
    ("m02_memcap", lambda seen: seen["driver"].update(seen_total_mib=[81920]), "another size of card"),
    ("m02_memcap", lambda seen: seen["driver"]["greedy"].update(others_did=[3, 0]), "did nothing"),
    ("m02_memcap", lambda seen: seen["torch"]["greedy"].update(refusal=""), "heard nothing"),
    ("m02_memcap", lambda seen: seen["torch"].update(given_mib=[4097]), "PyTorch"),
    ("m03_overhead", lambda seen: seen["kinds"]["tiny"].update(overhead_percent=2.1), "tiny: 2.1 %"),
    ("m03_overhead", lambda seen: seen["kinds"]["large"].update(overhead_percent=0.6), "large: 0.6 %"),
    ("m04_share", lambda seen: seen["alone"][0].update(error_points=3.1), "10 %: 3.1 points"),
    ("m05_colocate", lambda seen: seen["arms"].update({"gate, floor 0 %": arm(1.21, 0.9)}), "no setting"),
    ("m05_colocate", lambda seen: seen["arms"].update({"gate, floor 0 %": arm(1.0, 0.4)}), "no setting"),
    ("m06_freeze", lambda seen: seen.update(quiet_ms=latency(105.0)), "105.0 ms"),
    ("m06_freeze", lambda seen: seen.update(slow_pulses=0), "nothing can be said"),
    ("m06_freeze", lambda seen: seen.update(losses_equal=False), "losses"),
    ("m07_ckpt", lambda seen: seen.update(kernels_compute=False), "do not compute"),
    ("m07_ckpt", lambda seen: seen["sizes"][1].update(equal=False), "came back changed"),
    ("m07_ckpt", lambda seen: seen["sizes"][1].update(back_gb_per_s=4.9), "only 4.9 GB/s"),
    ("m07_ckpt", lambda seen: seen["sizes"][1].update(left_mib=500), "left on the card"),
    ("m07_ckpt", lambda seen: seen["sizes"][1].update(freed_mib=4000), "left on the card"),
    ("m07_ckpt", lambda seen: seen["unchanged"].update(losses=False), "changed: losses"),
    ("m07_ckpt", lambda seen: seen["cycles"].update(count=19), "19 cycles"),
    ("m07_ckpt", lambda seen: seen["sizes"].pop(), "room for nothing"),
    ("m08_ckpt_edges", lambda seen: seen["cases"]["managed"].update(lock="hung"), "hung: managed"),
    ("m08_ckpt_edges", lambda seen: seen["cases"].update(busy={"state": "hung"}), "hung: busy"),
    ("m08_ckpt_edges", lambda seen: seen.update(works_afterwards=False), "afterwards"),
    ("m09_swap", lambda seen: seen.update(useful=0.69), "only 69%"),
    ("m09_swap", lambda seen: seen.update(units=[5, 0]), "did nothing"),
    ("m10_telemetry", lambda seen: seen.update(of_a_core_at_1_hz_with_8=0.011), "1.10%"),
    ("m11_mps", lambda seen: seen["memory"].update(given_mib=1025), "was given 1025"),
    ("m11_mps", lambda seen: seen.update(new_client_works=False), "no new client"),
    ("m12_xid", lambda seen: seen.update(heard_after_s=None), "nothing was heard"),
    ("m12_xid", lambda seen: seen.update(heard_after_s=2.5), "2.5 s"),
    ("m12_xid", lambda seen: seen.update(neighbour={"units": 0}), "neighbour"),
    ("m13_remap", lambda seen: seen.update(elsewhere="CUDA_ERROR_INVALID_VALUE"), "onto another card"),
    ("m13_remap", lambda seen: seen.update(wrong=("ok", "locked")), "by a wrong map"),
    ("m13_remap", lambda seen: seen.update(partial=("ok", "locked")), "too short"),
    ("m14_account", lambda seen: seen["cases"]["a graph"].update(off=0.031), "a graph: +3.1% off"),
    ("m14_account", lambda seen: seen["cases"].pop("a graph"), "names no process"),
    ("m15_rates", lambda seen: seen["rows"][0].update(ratio=0.949), "8 programs: 0.949"),
    ("m16_exits", lambda seen: seen["exits"].update({"-11": 1}), "{'-11': 1} of 201"),
    ("m16_exits", lambda seen: seen.update(left_mib=2), "2 MiB were left"),
    ("m13_remap", lambda seen: seen.update(identity=("X", "checkpointed")), "by the right map: X"),
]


@pytest.mark.parametrize("name", CATALOGUE)
def test_figures_on_the_line_pass(name: str) -> None:
    assert CATALOGUE[name].judge(GOOD[name]).status is Status.PASS


@pytest.mark.parametrize(("name", "spoil", "why"), BAD)
def test_figures_beyond_the_line_fail_and_say_which(
    name: str, spoil: Callable[[dict[str, Any]], object], why: str
) -> None:
    figures = copy.deepcopy(GOOD[name])
    spoil(figures)
    verdict = CATALOGUE[name].judge(figures)
    assert verdict.status is Status.FAIL
    assert why in verdict.reason


def test_of_settings_that_meet_the_line_the_one_that_trains_most_is_best() -> None:
    arms = {"gate, floor 0 %": arm(1.1, 0.6), "gate, floor 0.5 %": arm(1.2, 0.8)}
    others = {"mps priority": arm(1.0, 0.9), "long graphs, gate": arm(1.0, None)}
    assert m05_colocate.best(arms | others) == "gate, floor 0.5 %"
    assert m05_colocate.best(others) is None


def test_a_card_is_quiet_after_the_last_slow_pulse_and_one_much_later_is_chance() -> None:
    stops = [(100 * MS, 200 * MS), (300 * MS, 400 * MS)]
    slow = [(98 * MS, 102 * MS), (103 * MS, 107 * MS), (150 * MS, 151 * MS), (203 * MS, 205 * MS), (299 * MS, 301 * MS)]
    assert m06_freeze.when_quiet(stops, slow) == [7.0, 1.0]
    assert m06_freeze.when_back(stops, slow) == [3.0]
    assert m06_freeze.when_quiet(stops, []) == [0.0, 0.0]


def test_a_verdict_names_every_claim_that_does_not_hold() -> None:
    assert held((True, "a"), (False, "b"), (False, "c")).reason == "b; c"
    assert held((True, "a")).status is Status.PASS


def test_percentiles_are_of_what_was_seen_and_never_beyond_it() -> None:
    assert percentile([5.0], 99) == 5.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([1.0, 2.0], 99) <= 2.0
    assert spread([3.0, 1.0, 2.0]) == {"count": 3, "p50": 2.0, "p99": percentile([1.0, 2.0, 3.0], 99), "max": 3.0}
    assert spread([]) == {"count": 0}
