"""Each kind of job may have a placement of its own, and ``auto`` chooses one by kind and size."""

from __future__ import annotations

import pytest
from worlds import World, asks, gang, machine, queue, restarted, single

from millpond.model.errors import InvalidInputError
from millpond.model.events import JobSubmitted, LoadSampled, PolicyChanged, QueueChanged
from millpond.model.hardware.nodes import Node
from millpond.model.policies import placements_of
from millpond.model.workloads import Kind
from millpond.scheduling.settings import Settings

DEV, SERVICE, TRAIN = Kind.DEV, Kind.SERVICE, Kind.TRAIN


def loaded(placement: str) -> World:
    """Two nodes, the first of which others keep busy."""
    world = World(machine("busy", 4), machine("idle", 4), settings=Settings(placement=placement))
    for name, load in (("busy", 1_000), ("idle", 0)):
        world.tell(LoadSampled(0.0, name, load))
    return world


def where(world: World, job: str) -> str:
    (node,) = world.nodes_of(job)
    return node


@pytest.mark.parametrize(
    ("placement", "of_service", "of_training"),
    [
        ("default", "busy", "busy"),
        ("spread", "idle", "idle"),
        ("auto", "idle", "busy"),
        ("service=spread", "idle", "busy"),
        ("service=spread,train=best-fit", "idle", "busy"),
        ("train=spread", "busy", "idle"),
    ],
)
def test_services_spread_by_load_where_that_is_chosen_for_them(
    placement: str, of_service: str, of_training: str
) -> None:
    for kind, node in ((SERVICE, of_service), (TRAIN, of_training)):
        world = loaded(placement)
        world.submit(single("job", 0.5, kind=kind))
        assert where(world, "job") == node


def racks() -> tuple[Node, ...]:
    """Two racks with two nodes each, in turns."""
    return (
        machine("a0", 8, rack_name="a"), machine("b0", 8, rack_name="b"), machine("a1", 8, rack_name="a"),
        machine("b1", 8, rack_name="b"),
    )  # fmt: skip


@pytest.mark.parametrize(("placement", "racks_used"), [("default", {"a", "b"}), ("auto", {"b"})])
def test_large_gangs_lie_in_one_rack_where_that_is_possible(placement: str, racks_used: set[str]) -> None:
    world = World(*racks(), settings=Settings(placement=placement))
    world.submit(single("x", 4), single("y", 2))
    assert world.nodes_of("x") == world.nodes_of("y") == ["a0"]
    world.submit(gang("large", 4, asks(4)))
    assert {node[0] for node in world.nodes_of("large")} == racks_used


def test_small_gangs_and_those_that_ask_for_something_go_as_before() -> None:
    for job in (gang("small", 2, asks(1)), gang("asks", 4, asks(4), together=1)):
        before, after = (World(*racks(), settings=Settings(placement=name)) for name in ("default", "auto"))
        for world in (before, after):
            world.submit(single("x", 4), job)
        assert before.nodes_of(job.id) == after.nodes_of(job.id)


def test_another_placement_of_a_kind_holds_from_the_next_cycle_on() -> None:
    world = loaded("default")
    world.submit(single("first", 0.5, kind=SERVICE))
    world.tell(PolicyChanged(world.now, "default", "service=spread", preempt=False, reserve=True))
    world.submit(single("second", 0.5, kind=SERVICE), single("third", 0.5))
    assert [where(world, job) for job in ("first", "second", "third")] == ["busy", "idle", "busy"]


@pytest.mark.parametrize(
    ("of_cluster", "of_group", "of_queue", "node"),
    [
        ("default", "", "spread", "idle"),
        ("default", "spread", "", "idle"),
        ("default", "spread", "default", "busy"),
        ("default", "spread", "service=default", "idle"),
        ("spread", "", "train=best-fit", "busy"),
        ("gandiva", "", "spread", "busy"),
    ],
)
def test_the_jobs_of_a_queue_go_where_it_says_else_where_the_queue_above_or_the_cluster_does(
    of_cluster: str, of_group: str, of_queue: str, node: str
) -> None:
    world = loaded(of_cluster)
    world.tell(QueueChanged(0.0, queue("group", placement=of_group)))
    world.tell(QueueChanged(0.0, queue("lab", parent="group", placement=of_queue)))
    world.submit(single("job", 0.5, queue="lab"))
    assert where(world, "job") == node


@pytest.mark.parametrize("placement", ["random", "train=gandiva", "anywhere"])
def test_a_queue_can_have_no_such_placement(placement: str) -> None:
    world = loaded("default")
    with pytest.raises(InvalidInputError):
        world.tell(QueueChanged(0.0, queue("lab", placement=placement)))


def test_twins_place_alike() -> None:
    world = loaded("auto")
    world.submit(single("before", 0.5, kind=SERVICE))
    twins = [world.core.fork(), restarted(world.core)]
    for job in (single("a", kind=SERVICE), single("b", 2), gang("c", 2, asks(1), kind=DEV)):
        for core in (world.core, *twins):
            core.handle(JobSubmitted(world.now, job))
    decided = world.tick()
    assert len(decided) == 3
    assert [twin.decide(world.now) for twin in twins] == [decided, decided]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("anywhere", "unknown placement 'anywhere'"),
        ("service=anywhere", "unknown placement 'anywhere'"),
        ("servce=spread", "unknown kind 'servce'"),
        ("service=spread,service=fgd", "two placements of kind service"),
        ("service=random", "of kind service alone"),
        ("train=gandiva", "of kind train alone"),
        ("random,train=fgd", "of all kinds but train"),
        ("service=", "unknown placement ''"),
    ],
)
def test_what_is_no_placement_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        placements_of(text)


def test_kinds_that_are_not_named_have_the_default_placement() -> None:
    assert placements_of("service=spread") == {TRAIN: "default", DEV: "default", SERVICE: "spread"}
