"""Policies times seeds on one trace, in parallel processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, replace
from typing import Any

from millpond.simulation import queueing
from millpond.simulation.report.figures import Figures, packing_figures, queueing_figures
from millpond.simulation.results.summaries import packing_summary, queueing_summary
from millpond.simulation.scenario import Scenario, read_packing, read_world
from millpond.simulation.worker_pool import worker_pool


@dataclass(frozen=True, slots=True)
class Replay:
    """One run: a policy under one seed.

    Attributes:
        summary: as ``pond replay --json`` gives it.
        skipped: bad rows that were left out.
    """

    label: str
    seed: int
    summary: dict[str, Any]
    figures: Figures
    skipped: tuple[str, ...] = ()


def compare(
    policies: Sequence[tuple[str, Scenario]],
    seeds: Sequence[int],
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Replay]:
    """Run every policy with every seed; one that no seed can change runs once.

    Args:
        policies: a label and a scenario each.
        workers: processes at work at a time.
        progress: called with the runs done and all runs.

    Returns:
        The runs by policy, then by seed.

    Raises:
        MillpondError: the first error of any run; the others are ended.
    """
    wanted = [
        (label, replace(scenario, seed=seed), seed == seeds[0])
        for label, scenario in policies
        for seed in (seeds if scenario.seed_matters else seeds[:1])
    ]
    with worker_pool(min(workers, len(wanted))) as pool:
        futures = [pool.submit(run_one, *one) for one in wanted]
        _await(futures, progress)
        return [future.result() for future in futures]


def run_one(label: str, scenario: Scenario, with_gantt: bool) -> Replay:
    """Replay one scenario in this process."""
    before = time.process_time()
    if scenario.packs:
        packing = read_packing(scenario)
        known = packing.run(scenario.seeded())
        learnt = packing.run(scenario.seeded(), mix_known=False)
        summary = packing_summary(scenario, packing, known, learnt, time.process_time() - before)
        return Replay(label, scenario.seed, summary, packing_figures(known, learnt), packing.pods.skipped)
    world = read_world(scenario)
    result = queueing.replay(world, scenario.seeded())
    summary = queueing_summary(scenario, world, result, time.process_time() - before)
    figures = queueing_figures(result.history, with_gantt=with_gantt)
    return Replay(label, scenario.seed, summary, figures, world.workload.skipped)


def _await(futures: Sequence[Future[Replay]], progress: Callable[[int, int], None] | None) -> None:
    for done, future in enumerate(as_completed(futures), 1):
        future.result()
        if progress is not None:
            progress(done, len(futures))
