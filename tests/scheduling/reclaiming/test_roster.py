"""Which running work is where, as victim rules and reservations are told."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import World, asks, gang, machine, single

from millpond.model.events import StopRequested
from millpond.scheduling.scheduler import Scheduler


@pytest.mark.parametrize("restores", [False, True])
def test_of_a_node_whose_work_has_ended_nobody_is_said_to_hold_anything(restores: bool) -> None:
    world = World(*(machine(name, 4) for name in "abc"))
    world.submit(gang("wide", 3, asks(4)))
    world.end("wide")
    world.submit(single("narrow"))
    state = (Scheduler.restore(world.core.snapshot()) if restores else world.core)._state
    (used,) = (state.cluster.node_index[name] for name in world.nodes_of("narrow"))
    everyone = np.arange(state.roster.width)
    others = [index for index in state.cluster.node_index.values() if index != used]
    assert state.roster.slots_on(np.array(others)).tolist() == []
    assert [state.roster.records[slot].id for slot in state.roster.slots_on(np.array([used]))] == ["narrow"]
    assert state.roster.places(everyone)[0].tolist() == [used]


def test_who_is_asked_to_leave_is_no_longer_among_those_whom_the_roster_counts() -> None:
    world = World(machine("a", 3))
    for name in ("stays", "leaves", "ends"):
        world.submit(single(name))
    state = world.core._state
    assert state.roster.count == len(state.running) == 3
    world.end("ends")
    world.lingering.add("leaves")
    world.tell(StopRequested(world.now, "leaves"))
    world.settle()
    assert sorted(state.running) == ["leaves", "stays"]
    assert state.roster.count == 1


def test_kernels_are_given_running_work_in_one_layout_however_much_of_it_there_is() -> None:
    world = World(*(machine(f"m{number}", 8) for number in range(9)))
    state, layouts = world.core._state, set()
    for number in range(70):
        world.submit(single(f"job-{number}"))
        layouts.add(state.roster.live.flags.c_contiguous)
    assert state.roster.width == 70
    assert layouts == {False}
