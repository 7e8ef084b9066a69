"""Gangs: all or nothing, where their tasks lie, and how elastic ones change their size."""

from __future__ import annotations

import pytest
from scenes import Scene, play, racks, started_tasks
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Start, Stop
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.events import DesiredCountChanged, NodeLost
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.workloads import GangRule, Job, Priority, Role

PAIR = (machine("n0", 4), machine("n1", 4))
SIX = tuple(machine(name, 4, rack_name=rack) for rack, name in racks(p=3, q=2, r=2))


def near(id_: str, tasks: int, gpus: int, level: Level, *, required: bool) -> Job:
    """A gang that must or should lie together."""
    return gang(id_, tasks, asks(gpus), together=level, together_required=required)


SCENES = [
    Scene("a gang starts when all its tasks fit", PAIR, (gang("g", 2, asks(4)),), "g"),
    Scene(
        "a gang that fits only in part takes nothing",
        PAIR,
        (gang("g", 2, asks(4)),),
        "one",
        before=(single("one"),),
    ),
    Scene(
        "all roles of a job start together",
        PAIR,
        (Job("g", (Role.rigid(asks(4), 2), Role.rigid(asks(0, cpus=60), 1, "server"))),),
        "g",
    ),
    Scene(
        "one role without room keeps the others from starting",
        (machine("n0", 4, cpu_milli=8_000),),
        (Job("g", (Role.rigid(asks(1, cpus=5), 1), Role.rigid(asks(0, cpus=4), 1, "server"))),),
        "",
    ),
    Scene(
        "a gang that must share a node waits for one",
        PAIR,
        (near("g", 2, 2, Level.NODE, required=True),),
        "x y",
        before=(single("x", 3), single("y", 3)),
    ),
    Scene(
        "a gang that should share a node lies apart where it must",
        PAIR,
        (near("g", 2, 1, Level.NODE, required=False),),
        "x y g",
        before=(single("x", 3), single("y", 3)),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_gangs_are_placed_whole(scene: Scene) -> None:
    play(scene)


def racks_of(world: World, job: str) -> set[str]:
    """Racks that a job's tasks lie in; racks are named by the first letter of their nodes."""
    return {node[0] for node in world.nodes_of(job)}


@pytest.mark.parametrize("required", [True, False])
def test_a_gang_that_asks_for_one_node_gets_it(required: bool) -> None:
    world = World(*PAIR)
    world.submit(single("x", 3))
    world.submit(near("g", 2, 2, Level.NODE, required=required))
    assert len(set(world.nodes_of("g"))) == 1


def test_a_gang_of_whole_nodes_takes_the_tightest_rack_that_holds_it() -> None:
    world = World(*SIX)
    world.submit(gang("g", 2, asks(4)))
    assert len(racks_of(world, "g")) == 1
    assert racks_of(world, "g") <= {"q", "r"}
    world.submit(gang("h", 3, asks(4)))
    assert racks_of(world, "h") == {"p"}


def test_a_gang_of_whole_nodes_too_large_for_one_rack_takes_the_fewest() -> None:
    world = World(*SIX)
    world.submit(gang("g", 5, asks(4)))
    assert len(racks_of(world, "g")) == 2


def test_a_gang_that_must_share_a_rack_waits_for_it_and_takes_it() -> None:
    world = World(*SIX)
    world.submit(*(single(name, 4) for name in "abcd"), lasting=100)
    world.submit(near("g", 3, 4, Level.RACK, required=True))
    assert world.state("g") is JobState.QUEUED
    world.go_to(100)
    assert racks_of(world, "g") == {"p"}


def test_a_gang_that_no_rack_could_ever_hold_is_called_impossible() -> None:
    world = World(*SIX)
    reason = world.core.check(near("g", 4, 4, Level.RACK, required=True))
    assert reason is not None
    assert reason.cause is Cause.IMPOSSIBLE
    assert reason.remedy is not None
    assert world.core.check(near("g", 4, 4, Level.RACK, required=False)) is None


# ---- elastic ----------------------------------------------------------------------------------------------------


def test_an_elastic_gang_starts_with_what_fits_and_grows_when_room_comes() -> None:
    world = World(machine("n", 4))
    world.submit(single("x", 2), lasting=50)
    world.submit(elastic("e", (1, 4, 4), asks(1)))
    assert started_tasks(world, "e") == [(0, 1)]
    world.go_to(50)
    assert started_tasks(world, "e") == [(0, 1), (2, 3)]
    first, second = world.of_kind(Start, "e")
    assert (first.joins, second.joins) == (False, True)
    assert first.attempt == second.attempt == 1


def test_an_elastic_gang_does_not_start_below_its_minimum() -> None:
    world = World(machine("n", 4))
    world.submit(single("x", 2), lasting=50)
    world.submit(elastic("e", (3, 4, 4), asks(1)))
    assert world.state("e") is JobState.QUEUED
    world.go_to(50)
    assert started_tasks(world, "e") == [(0, 1, 2, 3)]


def test_growing_work_does_not_pass_the_limit_of_its_queue() -> None:
    world = World(machine("n", 4), queues=(queue("q", limit=2),))
    world.submit(elastic("e", (1, 1, 4), asks(1), queue="q"))
    world.tell(DesiredCountChanged(0.0, "e", "worker", 2))
    world.settle()
    world.tell(DesiredCountChanged(0.0, "e", "worker", 4))
    world.settle()
    assert world.core._state.queues.by_name["q"].gpu_milli <= 2000


def test_a_running_gang_shrinks_by_its_last_tasks_and_the_room_is_used() -> None:
    world = World(machine("n", 4))
    world.submit(elastic("e", (1, 4, 4), asks(1)))
    world.submit(single("x", 2))
    world.tell(DesiredCountChanged(0.0, "e", "worker", 2))
    world.settle()
    (stop,) = world.of_kind(Stop, "e")
    assert (stop.tasks, stop.cause) == ((2, 3), Cause.SHRUNK)
    assert world.running() == {"e", "x"}
    assert [task.state for task in world.core.jobs["e"].tasks[:2]] == [TaskState.RUNNING] * 2


def test_a_gang_that_is_made_smaller_gives_up_what_waits_before_what_runs() -> None:
    world = World(machine("n0", 1), machine("n1", 1))
    world.submit(elastic("e", (1, 2, 2), asks(1), gang_rule=GangRule.RESTART_TASK))
    world.tell(NodeLost(world.now, world.nodes_of("e")[0]))
    world.settle()
    world.tell(DesiredCountChanged(world.now, "e", "worker", 1))
    world.settle()
    assert not world.of_kind(Stop)
    assert (world.state("e"), len(world.nodes_of("e"))) == (JobState.RUNNING, 1)


def test_a_gang_that_runs_anew_numbers_its_tasks_without_gaps() -> None:
    world = World(machine("n", 4))
    world.submit(elastic("e", (1, 3, 3), asks(1)))
    world.tell(DesiredCountChanged(world.now, "e", "worker", 1))
    world.settle()
    world.tell(DesiredCountChanged(world.now, "e", "worker", 3))
    world.settle()
    world.end("e", Outcome.NODE_LOST)
    assert started_tasks(world, "e")[-1] == (0, 1, 2)


def test_a_running_gang_grows_to_the_count_that_is_asked_for() -> None:
    world = World(machine("n", 4))
    world.submit(elastic("e", (1, 1, 4), asks(1)))
    world.tell(DesiredCountChanged(0.0, "e", "worker", 3))
    world.settle()
    assert started_tasks(world, "e") == [(0,), (1, 2)]


def test_a_waiting_gang_is_placed_in_the_size_that_is_asked_for_last() -> None:
    world = World(machine("n", 4))
    world.submit(single("x", 2))
    world.submit(elastic("e", (3, 4, 4), asks(1), priority=Priority.LOW))
    world.tell(DesiredCountChanged(0.0, "e", "worker", 3))
    world.settle()
    assert world.state("e") is JobState.QUEUED
    world.end("x")
    assert started_tasks(world, "e") == [(0, 1, 2)]


@pytest.mark.parametrize(
    ("role", "desired", "error"),
    [("worker", 5, InvalidInputError), ("worker", 0, InvalidInputError), ("no", 2, NotFoundError)],
)
def test_a_size_outside_of_the_bounds_is_refused_and_changes_nothing(
    role: str, desired: int, error: type[Exception]
) -> None:
    for waits in (True, False):
        world = World(machine("n", 1 if waits else 4))
        world.submit(elastic("e", (2, 3, 4), asks(1)))
        before = world.core.snapshot()
        with pytest.raises(error):
            world.core.handle(DesiredCountChanged(0.0, "e", role, desired))
        assert world.core.snapshot() == before


def test_an_elastic_gang_whose_tasks_have_all_succeeded_is_not_kept_by_tasks_that_never_joined() -> None:
    world = World(machine("n", 2))
    world.submit(elastic("e", (1, 4, 4), asks(1)))
    world.end("e")
    assert world.state("e") is JobState.SUCCEEDED
