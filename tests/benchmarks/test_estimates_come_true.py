"""Estimated starts hold what they say, on a few days of small clusters; ``estimate_quality.py`` measures more.

In one small cluster most questions are about one backlog, whose fate they share: so several are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.traces import estimate_quality
from benchmarks.traces.estimate_quality import Row, figures, samples_of, with_tenants
from millpond.scheduling.scheduler import Scheduler
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import World
from millpond.simulation.synthetic import SyntheticOptions, synthesise

pytestmark = pytest.mark.long


def found(row: Row, seeds: Sequence[int], make: Callable[[World], World]) -> dict[str, float]:
    samples = []
    for seed in seeds:
        world = World(uniform_cluster("4x8"), synthesise(SyntheticOptions(jobs=350), 32, 8, seed=seed), "exact")
        samples += samples_of(make(world), row, 40)
    return figures(samples)


@pytest.mark.parametrize("ordering", ["fifo", "default"])
def test_most_starts_lie_in_their_interval(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_quality, "make_scheduler", Scheduler)
    row = Row("synthetic", ordering, preempt=False, durations="rough")
    figures = found(row, (2, 4, 6, 8), lambda world: world)
    assert figures["samples"] >= 80
    assert figures["unknown"] <= 0.05
    assert figures["covers"] >= 0.8
    assert figures["width"] <= 2.0
    assert figures["pinball"] < 1.0


def test_most_starts_lie_in_their_interval_where_queues_take_back_what_they_are_guaranteed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimate_quality, "make_scheduler", Scheduler)
    figures = found(Row("tenants", "default", preempt=False, durations="vague"), (4, 6), with_tenants)
    assert figures["samples"] >= 40
    assert figures["unknown"] <= 0.05
    assert figures["covers"] >= 0.7
    assert figures["pinball"] < 1.0
