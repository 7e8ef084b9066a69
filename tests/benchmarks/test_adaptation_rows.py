"""The benchmark of nightly choices runs the server's own adapter on what a simulated server has seen."""

from __future__ import annotations

import pytest

from benchmarks.traces import adaptation
from benchmarks.traces.adaptation import RULE, played
from millpond.model.resources import SliceRequest, TaskRequest
from millpond.model.workloads import Job, Role
from millpond.simulation.trace import TraceJob, Workload

HOUR_S = 3_600.0


def job(number: int, at: float, length_s: float, cards: int = 1) -> TraceJob:
    name = "long" if length_s == HOUR_S else "short"
    roles = (Role.rigid(TaskRequest(devices=cards, slice=SliceRequest()), 1),)
    return TraceJob(Job(f"j{number}", roles, user="ada", name=name), at, length_s)


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> Workload:
    """Eight times a day for six days four jobs of an hour come, and four of a minute behind them; then a gang."""
    monkeypatch.setattr(adaptation, "CLUSTER", "1x2")
    monkeypatch.setattr(adaptation, "RULE", RULE.model_copy(update={"days": 4, "candidates": RULE.candidates[1:2]}))
    jobs = [
        job(8 * burst + index, burst * 3 * HOUR_S + index, HOUR_S if index < 4 else 60.0)
        for burst in range(48)
        for index in range(8)
    ]
    return Workload((*jobs, job(999, 6 * 24 * HOUR_S, HOUR_S, cards=2)), "bursts")


@pytest.mark.long
def test_a_server_that_chooses_leaves_a_policy_by_which_short_jobs_wait(bursts: Workload) -> None:
    halves = (0.0, 6 * 24 * HOUR_S)
    fixed, chosen = (played(bursts, halves, "fifo", chooses=chooses) for chooses in (False, True))
    assert fixed.changes == ()
    assert fixed.slowdown[0] > 50
    assert len(chosen.changes) == 1
    assert "instead of ordering fifo" in chosen.changes[0]
    assert chosen.slowdown[0] < 0.9 * fixed.slowdown[0]
