"""The tables of lifecycle.md are those of the code."""

from __future__ import annotations

from itertools import combinations

import pytest
from pages import DOCS, table

from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import SliceRequest, TaskRequest
from millpond.model.states import JobState, Outcome, TaskState
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.lifecycle import TRANSITIONS, is_retried, job_state

PAGE = DOCS / "lifecycle.md"
HOLDS = {"starting, running": HoldState.RUNNING, "frozen": HoldState.FROZEN, "swapped": HoldState.SWAPPED}
MANY = 1_000


def test_the_transitions_are_those_of_the_table_in_the_code():
    code = [(state.value, trigger.value, after.value) for (state, trigger), after in TRANSITIONS.items()]

    assert sorted(table(PAGE, "Transitions of a task")) == sorted(code)


def test_every_state_of_a_task_is_reached():
    rows = table(PAGE, "Transitions of a task")

    assert {state for row in rows for state in (row[0], row[2])} == {state.value for state in TaskState}


def test_a_job_has_the_state_of_its_first_task_in_the_listed_order():
    rows = [(TaskState(task), JobState(job)) for task, job in table(PAGE, "The state of a job")]

    assert {task for task, _ in rows} == set(TaskState)
    assert [job_state((task,)) for task, _ in rows] == [job for _, job in rows]
    for (first, expected), (second, _) in combinations(rows, 2):
        assert job_state((second, first)) is expected


@pytest.mark.parametrize("row", table(PAGE, "What a task holds"), ids=lambda row: row[0])
def test_a_task_holds_what_the_table_says(row):
    cluster = Cluster(Journal())
    device = Device("card", 0, "some", "V100", memory_mib=16_384)
    cluster.add_node(Node("node", 8_000, 65_536, (device,), swap_mib=65_536, extras=(("licence", 4),)))
    request = TaskRequest(2_000, 4_096, 1, SliceRequest(500, 8_192, 500), extras=(("licence", 1),))
    holding = cluster.holding(0, cluster.words.shape_of(request, "default"), [0])

    def free():
        arrays = cluster.arrays
        return [
            int(values.ravel()[0])
            for values in (
                arrays.compute_free_milli,
                arrays.device_memory_free_mib,
                arrays.cpu_free_milli,
                arrays.memory_free_mib,
                arrays.swap_free_mib,
                arrays.extra_free[:1],
            )
        ]

    before = free()
    with cluster.journal:
        cluster.change(holding, HOLDS[row[0]])

    assert tuple("yes" if now < then else "no" for now, then in zip(free(), before, strict=True)) == row[1:]


def test_every_hold_has_a_row():
    rows = [row[0] for row in table(PAGE, "What a task holds")]

    assert [HOLDS[state] for state in rows] == [hold for hold in HoldState if hold is not HoldState.NOTHING]


@pytest.mark.parametrize("outcome", Outcome)
def test_a_run_that_ended_so_is_tried_again_as_often_as_the_table_says(outcome):
    said = dict(table(PAGE, "After a failure"))[outcome.value]

    def times(retries):
        """How many runs follow one another if each ends so."""
        count = 1
        while count < MANY and is_retried(outcome, failures=count, out_of_memory_failures=count, retries=retries):
            count += 1
        return count - 1

    allowed = {"never": (0, 0), "once": (1, 1), "always": (MANY - 1, MANY - 1), "while retries are left": (0, 3)}
    assert (times(retries=0), times(retries=3)) == allowed[said]
