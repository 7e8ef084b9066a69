"""Up to which bound departures by the ordering make room, for what they may cost."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import World, asks, machine, single

from millpond.model.events import DurationPredicted, JobSubmitted
from millpond.model.workloads import Priority
from millpond.scheduling.reclaiming.request_bounds import EVERYWHERE, Asked
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queue_rank import QueueRank

pytestmark = pytest.mark.sources


@pytest.mark.parametrize(("parts", "budget_of", "makes_room"), [(4, 4, True), (4, 3.9, False), (3, 3.9, True)])
def test_compute_that_is_missing_has_to_be_paid_for(parts: int, budget_of: float, makes_room: bool) -> None:
    world = World(machine("n", 1), settings=Settings(ordering="default", preempt=True))
    for number in range(4):
        world.submit(single(f"part{number}", 1 / 4 if number < parts else 1 / 8))
        world.tell(DurationPredicted(world.now, f"part{number}", 1e6, 1e6))
    world.settle()
    assert len(world.running()) == 4
    state, planner = world.core._state, world.core._cycle.planner
    cost = max(planner._running.costs()[[job.slot for job in state.running.values()]])
    state.preemption_budget.left = budget_of * cost
    planner.begin(QueueRank(state))
    whole_card = state.cluster.words.shape_of(asks(1), state.running["part0"].job.pool)
    shapes, zero = planner._selector.vectors([whole_card]), np.zeros(1, dtype=np.int64)
    asked = Asked(shapes, zero + Priority.NORMAL, np.zeros(1), np.zeros(1), zero, [EVERYWHERE])
    below = planner.bounds.of_requests(asked)
    assert (below[0] > 0.0) == makes_room


@pytest.mark.parametrize(("lasting", "is_moved"), [(1e5, True), (100.0, False)])
def test_others_are_moved_aside_only_for_a_job_whose_key_is_high_enough(lasting: float, is_moved: bool) -> None:
    world = World(machine("n", 8), settings=Settings(ordering="default", preempt=True))
    for id_, cards, length in (("long", 4, 1e6), ("short", 2, 2e4), ("alike", 2, 2e4)):
        world.submit(single(id_, cards))
        world.tell(DurationPredicted(world.now, id_, length, length))
    world.settle()
    assert len(world.running()) == 3
    world.tell(JobSubmitted(world.now, single("newcomer", 4)))
    world.tell(DurationPredicted(world.now, "newcomer", lasting, lasting))
    state, planner = world.core._state, world.core._cycle.planner
    state.preemption_budget.left = 1e4
    planner.begin(QueueRank(state))
    newcomer = state.jobs["newcomer"]
    judged = planner._judged(newcomer)
    assert judged is not None
    assert (len(judged.move_harm) > 0) == is_moved
    assert (newcomer.turn >= planner.bounds.moved_from(newcomer.job.priority, 4.0)) == is_moved
