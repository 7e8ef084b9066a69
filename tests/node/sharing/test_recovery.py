"""What the next agent makes of tasks as it finds them."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.sharing.fake_device import FakeNode, FakeProcess
from benchmarks.sharing.sharing_walk import DEADLINE_S, Walk
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.sharing.helper import ProcessState
from millpond.node.sharing.ledger import LedgerEntry, Residence
from millpond.node.task.records import TaskId

TASK = TaskId("job", 1, 0)
ENTRY = LedgerEntry(TASK, "node", {"gpu-0": 40_000})


@pytest.fixture
def walk() -> Walk:
    """A node on which nothing goes wrong, and an agent that knows nothing yet."""
    walk = Walk(Random(1), {})
    walk.host_mib = 80_000
    walk.residency = walk._new_residency()
    return walk


def process(node: FakeNode, **settings: object) -> FakeProcess:
    node.begin(FakeProcess(TASK, "gpu-0", 30_000, **settings))  # type: ignore[arg-type]
    return node.of(TASK)[0]


def recover(walk: Walk) -> LedgerEntry | None:
    walk.residency.recover([ENTRY], lambda task: False, DEADLINE_S)
    return walk.residency.ledger.get(TASK)


def test_a_task_that_has_not_begun_keeps_its_room_and_is_let_be(walk: Walk) -> None:
    entry = recover(walk)
    assert entry is not None
    assert entry.residence is Residence.RESIDENT
    assert walk.lost == set()


def test_one_that_nobody_wants_halted_goes_on(walk: Walk) -> None:
    found = process(walk.node, halted=True)
    recover(walk)
    assert not found.halted


def test_one_whose_agent_was_killed_as_it_began_to_make_room_launches_again(walk: Walk) -> None:
    process(walk.node)
    walk.node.hold_launches(TASK, held=True)
    recover(walk)
    assert walk.node.held == set()


def test_one_that_was_to_be_frozen_and_runs_is_halted(walk: Walk) -> None:
    found = process(walk.node)
    walk.node.desired_states[TASK] = DesiredState.FROZEN
    recover(walk)
    assert found.halted


@pytest.mark.parametrize("state", [ProcessState.LOCKED, ProcessState.CHECKPOINTED])
def test_one_that_was_half_way_is_back_on_its_device(walk: Walk, state: ProcessState) -> None:
    found = process(walk.node, state=state)
    entry = recover(walk)
    assert entry is not None
    assert (found.state, entry.residence) == (ProcessState.RUNNING, Residence.RESIDENT)


def test_one_that_was_swapped_stays_so(walk: Walk) -> None:
    found = process(walk.node, state=ProcessState.CHECKPOINTED, halted=True)
    walk.node.desired_states[TASK] = DesiredState.SWAPPED
    entry = recover(walk)
    assert entry is not None
    assert (found.state, entry.residence, entry.displaced) == (ProcessState.CHECKPOINTED, Residence.SWAPPED, False)


def test_one_that_holds_memory_given_to_others_leaves(walk: Walk) -> None:
    found = process(walk.node)
    walk.node.desired_states[TASK] = DesiredState.SWAPPED  # confirmed long ago: no decision about it is open
    entry = recover(walk)
    assert entry is not None
    assert (found.state, entry.residence) == (ProcessState.CHECKPOINTED, Residence.SWAPPED)


def test_one_that_the_driver_gave_up_is_told(walk: Walk) -> None:
    process(walk.node, state=ProcessState.FAILED)
    assert recover(walk) is None
    assert walk.lost == {TASK}
