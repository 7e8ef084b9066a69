"""Random worlds with cells: what is owed is there, what is in cells stays, and every copy has the same cells."""

from __future__ import annotations

import random

import pytest
from cell_walk import (
    CellWalk,
    CellWalkBesideSlices,
    CellWalkInHierarchies,
    CellWalkOfGangs,
    CellWalkOnAllPaths,
    require_what_is_owed,
    walk,
)
from twinned import TwinnedWorld
from worlds import World, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from seeds import few_then_many

KINDS = (CellWalk, CellWalkOnAllPaths, CellWalkBesideSlices, CellWalkInHierarchies, CellWalkOfGangs)


@pytest.mark.parametrize("seed", few_then_many(range(1), range(1, 12)))
def test_cells_are_the_same_in_every_copy_and_nothing_is_lost(seed: int) -> None:
    walk(CellWalk(seed), 60)


@pytest.mark.parametrize("seed", few_then_many((), [100, 1070], range(101, 130)))
def test_cells_are_the_same_in_every_copy_on_long_walks(seed: int) -> None:
    walk(CellWalk(seed), 400, checks_every=10)


@pytest.mark.parametrize("seed", few_then_many((), range(8)))
def test_no_path_on_which_work_gets_a_place_breaks_into_cells(seed: int) -> None:
    """Growth, suspending and resuming, migrating, turns and reservations."""
    walk(CellWalkOnAllPaths(seed), 50)


@pytest.mark.parametrize("seed", few_then_many((), [100], range(101, 120)))
def test_no_path_on_which_work_gets_a_place_breaks_into_cells_on_long_walks(seed: int) -> None:
    walk(CellWalkOnAllPaths(seed), 400, checks_every=10)


def test_who_leaves_cells_does_so_in_the_same_order_in_a_twin() -> None:
    world = TwinnedWorld(machine("n", 4), queues=(queue("a", guarantee=4, cells=(CellCount("node", 1),)), queue("b")))
    world.share = 1.0
    world.submit(*(single(f"b{number}", queue="b") for number in range(4)))
    world.end("b0")
    world.submit(single("b4", queue="b"))  # in the slot of the first
    world.submit(single("a0", 4, queue="a"))
    assert [stop.job for stop in world.of_kind(Stop)] == ["b1", "b2", "b3", "b4"]


def test_places_that_are_claimed_beside_cells_are_there_again_when_the_log_is_redone() -> None:
    queues = queue("a", guarantee=2, cells=(CellCount("switch", 1),)), queue("b", guarantee=2)
    world = TwinnedWorld(machine("n", 4), queues=queues)
    world.share = 1.0
    world.submit(*(single(f"c{number}") for number in range(4)))
    world.lingering = {"c0", "c1", "c2", "c3"}
    world.submit(single("stays", 2, queue="b", preemptible=False))
    assert world.state("stays") is JobState.QUEUED
    for job in world.stopped:
        world.leave(job)
    assert world.state("stays") is JobState.RUNNING


@pytest.mark.parametrize(
    ("kind", "seed"),
    few_then_many(
        (),
        [(CellWalkInHierarchies, 5), (CellWalk, 5), (CellWalkOnAllPaths, 1), *((kind, 2) for kind in KINDS)],
        [(kind, seed) for kind in KINDS for seed in range(6, 60)],
    ),
)
def test_who_goes_on_from_a_snapshot_or_from_the_log_decides_the_same_beside_cells(
    kind: type[CellWalk], seed: int
) -> None:
    one = kind(seed)
    one.world.share = 0.2
    for _ in range(40):
        one.step()


@pytest.mark.parametrize("seed", few_then_many(range(3), range(3, 20)))
def test_what_fits_the_cells_starts_after_one_round(seed: int) -> None:
    """Whatever others run, of a healthy cluster; none of it is protected, but some cannot leave."""
    draw = random.Random(seed)
    nodes = [machine(f"n{number}", 8) for number in range(4)]
    owed = {"a": "node", "b": "socket", "c": "switch"}
    counts = {"a": draw.randint(0, 2), "b": draw.randint(0, 2), "c": draw.randint(0, 4)}
    cards = {"a": 8, "b": 4, "c": 2}
    queues = [
        queue(name, guarantee=counts[name] * cards[name], cells=(CellCount(level, counts[name]),))
        for name, level in owed.items()
        if counts[name]
    ]
    world = World(*nodes, queues=(*queues, queue("others", guarantee=32 - sum(cards[n] * counts[n] for n in owed))))
    for number in range(60):
        stays = draw.random() < 0.3
        world.submit(single(f"o{number}", draw.choice((1, 1, 1, 2, 4)), queue="others", preemptible=not stays))
        if draw.random() < 0.3:
            running = sorted(job for job in world.running() if job[0] == "o")
            world.end(draw.choice(running))
    asked = [name for name in owed for _ in range(counts[name])]
    draw.shuffle(asked)
    for number, name in enumerate(asked):
        world.submit(single(f"{name}{number}", cards[name], queue=name))
        assert world.state(f"{name}{number}") is JobState.RUNNING, (name, number)


@pytest.mark.parametrize("kind", [CellWalk, CellWalkInHierarchies, CellWalkBesideSlices, CellWalkOfGangs])
@pytest.mark.parametrize("seed", few_then_many(range(1), range(1, 6)))
def test_whatever_has_failed_what_fits_the_cells_starts_after_one_round(kind: type[CellWalk], seed: int) -> None:
    one = kind(seed)
    walk(one, 60, checks_every=10)
    require_what_is_owed(one)


@pytest.mark.parametrize("kind", [CellWalk, CellWalkInHierarchies, CellWalkBesideSlices, CellWalkOfGangs])
@pytest.mark.parametrize("seed", few_then_many((), range(100, 103), range(103, 150)))
def test_what_fits_the_cells_starts_after_one_round_on_long_walks(kind: type[CellWalk], seed: int) -> None:
    one = kind(seed)
    for _ in range(20):
        walk(one, 20, checks_every=10)
        require_what_is_owed(one)
