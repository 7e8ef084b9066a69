"""Estimated starts hold what they say, on a few days of a small cluster; ``estimate_quality.py`` measures more."""

from __future__ import annotations

import pytest

import estimate_quality
from estimate_quality import Row, figures, samples_of, with_tenants
from millpond.scheduling.scheduler import Scheduler
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import World
from millpond.simulation.synthetic import SyntheticOptions, synthesise


@pytest.mark.parametrize("ordering", ["fifo", "default"])
def test_most_starts_lie_in_their_interval(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_quality, "make_scheduler", Scheduler)
    workload = synthesise(SyntheticOptions(jobs=350), 32, 8, seed=2)
    world = World(uniform_cluster("4x8"), workload, "exact")
    found = figures(samples_of(world, Row("synthetic", ordering, preempt=False, durations="rough"), 40))
    assert found["samples"] >= 15
    assert found["unknown"] <= 0.05
    assert found["covers"] >= 0.8
    assert found["pinball"] < 1.0


def test_most_starts_lie_in_their_interval_where_queues_take_back_what_they_are_guaranteed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimate_quality, "make_scheduler", Scheduler)
    workload = synthesise(SyntheticOptions(jobs=350), 32, 8, seed=2)
    world = with_tenants(World(uniform_cluster("4x8"), workload, "exact"))
    found = figures(samples_of(world, Row("tenants", "default", preempt=False, durations="vague"), 40))
    assert found["samples"] >= 15
    assert found["unknown"] <= 0.05
    assert found["covers"] >= 0.7
    assert found["pinball"] < 1.0
