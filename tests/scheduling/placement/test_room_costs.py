"""What is kept of the costs of room from one task of a gang to the next is what would be found by looking anew."""

from __future__ import annotations

import random

import numpy as np
import pytest
from worlds import World, asks, gang, machine, single

from millpond.model.decisions import Stop
from millpond.model.workloads import Checkpoint, CheckpointMode, Priority
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.kernels import compiled, interpreted
from millpond.scheduling.reclaiming.attempts import Attempt, RoomCosts
from millpond.scheduling.reclaiming.room_costs import RoomSearch
from millpond.scheduling.settings import Settings
from seeds import few_then_many

NOTHING_KNOWN = np.array([[0.0], [0.0], [np.inf]])
"""Bounds of the costs of room on a node by which there may be room at any cost."""


def crowded(seed: int, preempt: bool) -> World:
    """Nodes full of jobs of all sizes, and of gangs that lie on several of them."""
    draws = random.Random(seed)
    world = World(*(machine(f"n{number}", 4) for number in range(6)), settings=Settings(preempt=preempt))
    saves = Checkpoint(CheckpointMode.SIGNAL)
    for number in range(30):
        asked, tasks = asks(draws.choice((0.5, 1, 2, 3))), draws.choice((1, 1, 1, 2, 3))
        world.submit(
            gang(f"j{number}", tasks, asked, priority=draws.choice((Priority.LOW, Priority.NORMAL)), checkpoint=saves)
        )
        world.go_to(world.now + draws.choice((0.0, 100.0, 5_000.0)))
    return world


@pytest.mark.parametrize("preempt", [False, True])
@pytest.mark.parametrize("seed", few_then_many([0], range(1, 4)))
def test_costs_kept_between_the_tasks_of_a_gang_are_those_found_anew_on_each_node(
    monkeypatch: pytest.MonkeyPatch, seed: int, preempt: bool
) -> None:
    asked = 0
    search = RoomSearch.cheapest

    def checked(self: RoomSearch, attempt: Attempt, shape: Int64Array, known: RoomCosts) -> tuple[int, list[int]]:
        nonlocal asked
        asked += known.as_of >= 0
        fresh = search(self, attempt, shape, RoomCosts(len(known.costs)))
        assert search(self, attempt, shape, known) == fresh
        bounds = attempt.bounds
        attempt.bounds = np.tile(NOTHING_KNOWN, len(known.costs))  # so each node is looked at
        assert search(self, attempt, shape, RoomCosts(len(known.costs))) == fresh
        attempt.bounds = bounds
        return fresh

    monkeypatch.setattr(RoomSearch, "cheapest", checked)
    world = crowded(seed, preempt)
    world.submit(gang("wide", 4, asks(3), priority=Priority.HIGH))
    assert world.of_kind(Stop)
    assert asked
    assert "wide" in world.running()


@pytest.mark.long
def test_compiled_kernels_find_the_same_victims() -> None:
    worlds = [crowded(9, False) for _ in range(2)]
    for world, kernels in zip(worlds, (compiled(), interpreted()), strict=True):
        world.core.use_kernels(kernels)
        world.submit(gang("wide", 4, asks(3), priority=Priority.HIGH), single("narrow", 2, priority=Priority.HIGH))
    assert worlds[0].decisions == worlds[1].decisions
