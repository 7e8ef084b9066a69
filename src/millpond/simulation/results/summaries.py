"""Results as plain data: what ``pond replay --json`` writes and its table shows."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

from millpond.simulation.kernel import World
from millpond.simulation.packing import PackingResult, one_by_one
from millpond.simulation.queueing import QueueingResult
from millpond.simulation.results.fragmentation import mean_fragmentation_percent
from millpond.simulation.results.metrics import Spread
from millpond.simulation.scenario import SYNTHETIC_FORMAT, Packing, Scenario

_PARTS = (("avg", "mean"), ("median", "median"), ("p99", "p99"), ("max", "max"))


def parameters(scenario: Scenario) -> dict[str, Any]:
    """Every parameter in force, by name; what has no meaning for the format is left out."""
    if scenario.packs:
        scenario = replace(scenario, settings=one_by_one(scenario.settings))
    plain = asdict(scenario)
    for name in _idle_parameters(scenario):
        del plain[name]
    settings = plain.pop("settings")
    settings.pop("typical_mix")
    settings.pop("seed")
    return {"format": plain.pop("trace_format"), **plain, **settings}


def flat(parameters: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Parameters whose groups have become names with dots."""
    named: dict[str, Any] = {}
    for key, value in parameters.items():
        named.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return named


def _idle_parameters(scenario: Scenario) -> tuple[str, ...]:
    if scenario.packs:
        return ("durations", "costs", "load", "speeds", "until" if scenario.order else "order")
    made_up = scenario.trace_format == SYNTHETIC_FORMAT
    unused = () if scenario.speeds else ("speeds",)
    return ("until", "order", *unused) if made_up else ("until", "order", "load", *unused)


def packing_summary(
    scenario: Scenario, packing: Packing, known: PackingResult, learnt: PackingResult, process_cpu_s: float
) -> dict[str, Any]:
    """A packing replay: with the mix of shapes known beforehand, and under ``learnt_mix`` with it learnt.

    Args:
        process_cpu_s: processor time of the whole program so far, reading the trace included.
    """
    plain = {
        **_packing_figures(known),
        "process_cpu_s": process_cpu_s,
        "arrivals": known.arrivals,
        "pods": len(packing.pods.jobs),
        "nodes": len(packing.nodes),
        "skipped_rows": len(packing.pods.skipped),
        "learnt_mix": _packing_figures(learnt),
        "parameters": parameters(scenario),
    }
    return finite(plain)


def queueing_summary(scenario: Scenario, world: World, result: QueueingResult, process_cpu_s: float) -> dict[str, Any]:
    """A queueing replay: times in seconds.

    Args:
        process_cpu_s: processor time of the whole program so far, reading the trace included.
    """
    metrics = result.metrics
    plain = {
        "jobs": metrics.jobs,
        "unfinished": metrics.unfinished,
        **_four("jct_s", metrics.jct_s),
        **_four("wait_s", metrics.wait_s),
        **_four("response_s", metrics.response_s),
        **_four("slowdown", metrics.slowdown),
        "makespan_s": metrics.makespan_s,
        "jobs_per_hour": metrics.jobs_per_hour,
        "allocation_percent": metrics.allocation_percent,
        "utilisation_percent": metrics.utilisation_percent,
        "fragmentation_percent": mean_fragmentation_percent(result.history, world.workload),
        "jain_index": metrics.jain_index,
        "worst_rho": metrics.worst_rho,
        "deadlines": metrics.deadlines,
        "deadline_misses": metrics.deadline_misses,
        "preemptions": metrics.preemptions,
        "overhead_gpu_hours": metrics.overhead_gpu_hours,
        "lost_gpu_hours": metrics.lost_gpu_hours,
        "cycles": result.cycles,
        "cpu_s": result.cpu_s,
        "process_cpu_s": process_cpu_s,
        "jobs_per_cpu_s": metrics.jobs / result.cpu_s if result.cpu_s else float("nan"),
        "skipped_rows": len(world.workload.skipped),
        "dropped_rows": world.workload.dropped,
        "forecasts": None if result.forecasts is None else asdict(result.forecasts),
        "parameters": parameters(scenario),
    }
    return finite(plain)


def _packing_figures(result: PackingResult) -> dict[str, Any]:
    return {
        "allocated_gpu_percent": result.allocated_gpu_percent,
        "unallocated_gpus": result.unallocated_gpus,
        "fragmented_gpu_milli": result.fragmented_gpu_milli,
        "placed": result.placed,
        "failed": result.failed,
        "cpu_s": result.cpu_s,
    }


def _four(name: str, spread: Spread) -> dict[str, float]:
    return {f"{part}_{name}": getattr(spread, field) for part, field in _PARTS}


def finite(plain: dict[str, Any]) -> dict[str, Any]:
    """Numbers rounded to a millionth; what is not finite becomes null, which JSON can say."""
    return {key: finite(item) if isinstance(item, dict) else _rounded(item) for key, item in plain.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
