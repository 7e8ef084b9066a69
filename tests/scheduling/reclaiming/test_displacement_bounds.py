"""What is known of all running work of a queue at once is what the rule says of each job."""

from __future__ import annotations

import random

import numpy as np
import pytest
from worlds import World, machine, queue, single

from millpond.model.events import DurationPredicted, JobSubmitted
from millpond.scheduling.ordering.base import Displaceable
from millpond.scheduling.reclaiming.roster import SLOT_OWNER
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.displacement import Entitlement
from millpond.scheduling.tenancy.queue_rank import QueueRank

pytestmark = pytest.mark.sources

LEAVES = ("red", "blue", "green", "default")


def test_the_queues_whose_work_is_open_to_another_are_those_that_no_guarantee_shields() -> None:
    draws, answers, withheld = random.Random(1), [], 0
    world = World(
        *(machine(f"n{number}", 4) for number in range(3)),
        settings=Settings(ordering="default", preempt=True),
        queues=[
            queue("team", guarantee=6),
            queue("red", parent="team", guarantee=2),
            queue("blue", parent="team"),
            queue("green", guarantee=3),
        ],
    )
    for number in range(30):
        world.go_to(world.now + draws.choice((0.0, 1_000.0)))
        id_, length = f"j{number}", draws.choice((50.0, 1e4, 1e5))
        world.tell(JobSubmitted(world.now, single(id_, draws.choice((0, 1, 2)), queue=draws.choice(LEAVES))))
        world.tell(DurationPredicted(world.now, id_, length, length))
        world.settle()
        state, planner = world.core._state, world.core._cycle.planner
        planner.begin(QueueRank(state))
        running = [job for job in state.running.values() if job.slot >= 0]
        jobs = list(state.waiting)
        for place, waiting in enumerate([*jobs, *jobs]):
            if place == len(jobs):
                planner.block(jobs[0])  # the turns of others may have come later than its own
            owners = planner.bounds.open_to(waiting)
            everybody = np.array([job.slot for job in running], dtype=np.int64)
            judged = Displaceable(everybody, *(np.ones(state.roster.width) for _ in range(3)))
            planner._owed.withhold(waiting, judged)
            for victim in running:
                is_open = planner._displacement.is_open(waiting, victim, Entitlement.ORDERING)
                assert owners[int(state.roster.slots[SLOT_OWNER, victim.slot])] == is_open, (waiting.id, victim.id)
                if judged.harm[victim.slot] == np.inf:
                    withheld += 1
                    assert judged.move_harm[victim.slot] == np.inf
                    assert not planner._displacement.may_displace(waiting, victim, Entitlement.ORDERING)
                with_cards = victim.gpu_milli > 0
                answers.append((is_open, state.queues.shields(victim.queue, waiting.queue, with_cards=with_cards)))
    assert set(answers) == {(True, False), (False, False), (False, True)}
    assert 0 < withheld < len(answers)


def test_whose_work_stays_as_its_queue_would_have_its_turn_first_is_known_of_all_at_once() -> None:
    draws, answers, changed = random.Random(2), set(), 0
    world = World(
        *(machine(f"n{number}", 4) for number in range(3)),
        settings=Settings(ordering="default", preempt=True),
        queues=[queue("team"), queue("red", parent="team"), queue("blue", parent="team"), queue("green")],
    )
    for number in range(40):
        world.go_to(world.now + draws.choice((0.0, 1_000.0)))
        for part in range(2):
            id_ = f"j{number}-{part}"
            world.tell(JobSubmitted(world.now, single(id_, draws.choice((0.5, 1, 3)), queue=draws.choice(LEAVES))))
        world.settle()
        if number % 3 == 2:
            world.end(min(world.running()))
        state, planner, ranks = world.core._state, world.core._cycle.planner, QueueRank(world.core._state)
        planner.begin(ranks)
        assert planner.bounds.kept_turns.of("red", np.array([0])) is None
        planner._displacement.turned_down = 1
        running = [job for job in state.running.values() if job.slot >= 0]
        slots, placed, before = np.array([job.slot for job in running]), list[JobRecord](), None
        for waiting in [*state.waiting][:6]:
            fresh = QueueRank(state)
            for job in placed:
                fresh.place(job, [(task, None) for task in job.tasks])  # type: ignore[misc]
            kept, turns = {}, planner.turns
            for leaf in LEAVES:
                kept[leaf] = planner.bounds.kept_turns.of(leaf, slots).tolist()
                held = [planner._displacement.held(job) for job in running]
                assert kept[leaf] == [
                    leaf == job.queue or fresh.has_turn_before(leaf, job.queue, amount)
                    for job, amount in zip(running, held, strict=True)
                ]
                answers.update(kept[leaf])
            if before is not None and before[0] != kept:
                assert before[1] != turns
                changed += 1
            before = kept, turns
            placed.append(waiting)
            ranks.place(waiting, [(task, None) for task in waiting.tasks])  # type: ignore[misc]
    assert answers == {True, False}
    assert changed
