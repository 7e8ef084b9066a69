"""Why a gang waits: which of its roles is in the way, how many tasks have room, and what would help."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from worlds import World, asks, elastic, gang, machine, single

from millpond.model.events import JobSubmitted, NodeJoined
from millpond.model.hardware.nodes import Pool
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause, Filter, Reason
from millpond.model.states import JobState
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.settings import Settings

PAIR = (machine("n0", 4), machine("n1", 4))


def why_waits(world: World, job: Job) -> Reason:
    world.submit(job)
    assert world.state(job.id) is JobState.QUEUED
    return world.why(job.id)


def test_a_gang_is_told_for_how_many_of_its_tasks_there_is_room_and_that_so_many_would_start() -> None:
    world = World(*PAIR)
    world.submit(single("x", 3))
    why = why_waits(world, gang("g", 8, asks(1)))
    numbers = dict(why.numbers)
    assert (why.cause, numbers["tasks"], numbers["room_for_tasks"], numbers["free_milli"]) == (
        Cause.NO_ROOM,
        8,
        5,
        5000,
    )
    assert "5 of its 8 tasks" in why.summary
    assert dict(why.nodes) == {Filter.FITS: 2}
    assert why.remedy is not None
    assert (why.remedy.field, why.remedy.value) == ("tasks", "5")


def test_the_role_without_room_is_named_and_the_nodes_are_counted_for_it() -> None:
    world = World(*PAIR, settings=Settings(reserve=False))
    world.submit(*(gang(f"x{n}", 1, asks(0, cpus=60)) for n in range(2)))
    worker, server = Role.rigid(asks(4, cpus=1), 2, "worker"), Role.rigid(asks(0, cpus=8), 1, "server")
    why = why_waits(world, Job("g", (worker, server)))
    assert "for a task of role 'server'" in why.summary
    assert dict(why.nodes) == {Filter.CPU: 2}
    assert why.remedy is not None
    assert why.remedy.field == "roles[1].cpus"
    smaller = replace(server, request=replace(server.request, cpu_milli=round(float(why.remedy.value) * 1000)))
    assert starts(world, Job("changed", (worker, smaller)))


def test_the_remedy_for_a_gang_of_several_roles_names_the_role_and_works() -> None:
    world = World(*PAIR, settings=Settings(reserve=False))
    world.submit(single("x", 4))
    chief, worker = Role.rigid(asks(1), 1, "chief"), Role.rigid(asks(1), 4, "worker")
    why = why_waits(world, Job("g", (chief, worker)))
    assert "each of its roles would have room by itself" in why.summary
    assert why.remedy is not None
    assert (why.remedy.field, why.remedy.value) == ("roles[1].tasks", "3")
    assert "role 'worker'" in why.remedy.change
    assert starts(world, Job("changed", (chief, Role.rigid(asks(1), 3, "worker"))))


@pytest.mark.parametrize(
    ("level", "where"), [(Level.NODE, "on no one node"), (Level.RACK, "on no one rack"), (Level.ZONE, "in no one zone")]
)
def test_a_gang_that_must_lie_together_is_told_that_it_could_start_apart(level: Level, where: str) -> None:
    world = World(machine("n0", 4, rack_name="r"), machine("n1", 4, rack_name="s", zone_name="other"))
    world.submit(single("x", 3), single("y", 3))
    why = why_waits(world, gang("g", 2, asks(1), together=level, together_required=True))
    assert where in why.summary
    assert dict(why.numbers)["room_for_tasks"] == 2
    assert why.remedy is not None
    assert (why.remedy.field, why.remedy.value) == ("topology", "any")


def test_an_elastic_gang_is_explained_by_the_least_that_it_needs() -> None:
    world = World(*PAIR)
    world.submit(single("x", 4), single("y", 3))
    why = why_waits(world, elastic("e", (2, 8, 8), asks(1)))
    assert (dict(why.numbers)["tasks"], dict(why.numbers)["room_for_tasks"]) == (2, 1)
    assert why.remedy is not None
    assert why.remedy.value == "1"


def test_free_cards_of_other_pools_and_of_nodes_that_take_no_work_are_not_counted_as_free() -> None:
    world = World(
        machine("n", 2), machine("other", 4, pool="other"), machine("away", 4, schedulable=False), pools=[Pool("other")]
    )
    world.submit(single("x"))
    why = why_waits(world, single("j", 2))
    assert dict(why.numbers)["free_milli"] == 1000
    assert "1 GPU is free" in why.summary


def test_work_of_another_pool_does_not_count_as_protected_work_in_the_way() -> None:
    world = World(machine("n", 1), machine("m", 1, pool="other"), pools=[Pool("other")])
    world.submit(single("high", priority=Priority.HIGH))
    world.submit(single("low", pool="other", priority=Priority.LOW, preemptible=False))
    assert why_waits(world, single("j", priority=Priority.NORMAL)).cause is Cause.NO_ROOM


def test_a_job_for_which_there_is_room_since_the_last_cycle_is_told_so_and_offered_no_change() -> None:
    world = World(machine("n", 1))
    world.submit(single("x"))
    world.submit(single("g"))
    world.now = 10.0
    world.tell(NodeJoined(world.now, machine("m", 2)))
    why = world.why("g")
    assert (why.cause, why.remedy) == (Cause.NOT_CONSIDERED, None)
    world.settle()
    assert world.state("g") is JobState.RUNNING


def test_a_gang_of_several_roles_is_told_when_it_should_start() -> None:
    world = World(*PAIR, settings=Settings(ordering="edf"))
    world.submit(single("x", 4), lasting=100, known=True)
    world.submit(single("y", 2), lasting=300, known=True)
    world.go_to(10)
    roles = (Role.rigid(asks(1), 2, "chief"), Role.rigid(asks(4), 1, "worker"))
    why = why_waits(world, Job("g", roles))
    assert why.start is not None
    assert why.start.earliest_at == 100
    world.go_to(100)
    assert world.state("g") is JobState.RUNNING


def starts(world: World, job: Job) -> bool:
    """Whether the job would start now, on a twin."""
    fork = world.core.fork()
    fork.handle(JobSubmitted(world.now, job))
    return job.id in {decision.job for decision in fork.decide(world.now)}


def test_a_gang_on_many_nodes_names_the_first_of_them() -> None:
    world = World(*(machine(f"n{number}", 1) for number in range(12)))
    world.submit(gang("two", 2, asks(1)))
    world.submit(gang("ten", 10, asks(1)))
    summary = world.core.explain("ten", world.now).summary
    assert re.fullmatch(r"running on n\d+, n\d+, n\d+ and 7 more, run 1", summary), summary
    assert re.fullmatch(r"running on n\d+ and n\d+, run 1", world.core.explain("two", world.now).summary)
