"""Who leaves for a job, where some of those that would have to may not be asked, or take too much of the budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from worlds import World, machine, single

from millpond.model.events import JobSubmitted
from millpond.model.reasons import Cause
from millpond.scheduling.reclaiming.attempts import Rule
from millpond.scheduling.records import JobRecord


def test_nobody_leaves_beside_work_that_stays_after_all() -> None:
    world = World(machine("small", 2), machine("large", 3))
    world.submit(single("wide", 3), single("asked"), single("stays"))
    world.tell(JobSubmitted(world.now, single("waits", 2)))
    state, planner = world.core._state, world.core._cycle.planner
    harm = np.full(state.roster.width, np.inf)
    preference = np.zeros_like(harm)
    for job, cost in (("wide", 10.0), ("asked", 1.0), ("stays", 1.0)):
        slot = state.jobs[job].slot
        harm[slot], preference[slot] = cost, float(job == "asked")
    asked = list[str]()

    def still(victim: JobRecord, _: Sequence[JobRecord]) -> bool:
        asked.append(victim.id)
        return victim.id != "stays"

    rule = Rule(Cause.PREEMPTED, harm, preference, None, lambda _: True, still=still)
    mark = state.journal.begin()
    plan = planner._search.find(state.jobs["waits"], rule)
    state.journal.rollback(mark)
    assert asked == ["asked", "stays", "wide"]
    assert plan is not None
    assert [job.id for job in plan.victims] == ["wide"]


def test_dearer_work_leaves_where_the_cheapest_takes_more_of_the_budget_than_is_left() -> None:
    world = World(machine("several", 2), machine("one", 2))
    world.submit(single("first"), single("second"), single("wide", 2))
    world.tell(JobSubmitted(world.now, single("waits", 2)))
    state, planner = world.core._state, world.core._cycle.planner
    harm, charges = np.full(state.roster.width, np.inf), np.zeros(state.roster.width)
    for job, cost, charge in (("first", 1.0, 40.0), ("second", 1.0, 40.0), ("wide", 10.0, 60.0)):
        harm[state.jobs[job].slot], charges[state.jobs[job].slot] = cost, charge

    def leaving(budget: float) -> set[str] | None:
        rule = Rule(Cause.PREEMPTED, harm, -harm, None, lambda _: True, charges=charges, budget=budget)
        mark = state.journal.begin()
        plan = planner._search.find(state.jobs["waits"], rule)
        state.journal.rollback(mark)
        return None if plan is None else {job.id for job in plan.victims}

    assert leaving(80.0) == {"first", "second"}
    assert leaving(79.0) == {"wide"}
    assert leaving(59.0) is None
    assert planner._search.found_room
