"""Gangs are placed whole or not at all, as close together as was wished."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_placement import hold

from millpond.model.hardware.topology import Level
from millpond.scheduling.placement.arrays import LOAD_BASE, ClusterArrays
from millpond.scheduling.placement.gangs import GangPlacement, place_gang
from millpond.scheduling.placement.mix import TypicalMix
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import build_tables

NODE_OF_8 = Shape(8_000, 0, 8)


class Trial:
    """A transaction on bare arrays."""

    def __init__(self, arrays: ClusterArrays) -> None:
        self.arrays = arrays
        self.held: list[tuple[int, Shape, tuple[int, ...]]] = []

    def apply(self, node: int, shape: Shape, devices: tuple[int, ...]) -> None:
        hold(self.arrays, node, shape, devices)
        self.held.append((node, shape, devices))

    def rollback(self) -> None:
        for node, shape, devices in reversed(self.held):
            hold(self.arrays, node, shape, devices, sign=-1)
        self.held.clear()


def racks_of(*sizes: int, cards: int = 8, zones: int = 1) -> Selector:
    """Racks of so many nodes, which stand in the zones in turn."""
    arrays = ClusterArrays()
    for rack, size in enumerate(sizes):
        for _ in range(size):
            arrays.append_node(cpu_milli=64_000, memory_mib=65_536, models=[0] * cards, rack=rack, zone=rack % zones)
    return Selector(arrays, build_tables(TypicalMix()))


def place(selector: Selector, members: list[Shape], **options: Any) -> GangPlacement | None:
    return place_gang(selector, members, Trial(selector.arrays), **options)


def racks_used(selector: Selector, placement: GangPlacement | None) -> list[int]:
    assert placement is not None
    return sorted({int(selector.arrays.rack[choice.node]) for choice in placement.choices})


def test_whole_nodes_go_to_the_tightest_rack_that_holds_them_all() -> None:
    selector = racks_of(8, 3, 4)
    assert racks_used(selector, place(selector, [NODE_OF_8] * 3)) == [1]


def test_whole_nodes_that_no_rack_holds_go_to_the_fewest_racks() -> None:
    selector = racks_of(2, 4, 2, 3)
    assert racks_used(selector, place(selector, [NODE_OF_8] * 6)) == [0, 1]
    assert racks_used(selector, place(selector, [NODE_OF_8] * 5)) == [2, 3]


def test_a_required_rack_is_a_condition_and_a_preferred_one_a_wish() -> None:
    selector = racks_of(2, 2)
    assert place(selector, [NODE_OF_8] * 3, level=Level.RACK, required=True) is None
    placement = place(selector, [NODE_OF_8] * 3, level=Level.RACK)
    assert placement is not None
    assert placement.level is Level.ZONE


def test_a_gang_that_fits_one_node_lies_on_the_fullest_that_holds_it() -> None:
    selector = racks_of(3)
    hold(selector.arrays, 2, Shape(1_000, 0, 3), (0, 1, 2))
    placement = place(selector, [Shape(1_000, 0, 1)] * 4 + [Shape(1_000, 0, 1, 500)], level=Level.NODE)
    assert placement is not None
    assert placement.level is Level.NODE
    assert {choice.node for choice in placement.choices} == {2}


def test_a_gang_too_large_for_a_node_falls_back_to_a_rack() -> None:
    selector = racks_of(1, 2)
    placement = place(selector, [Shape(1_000, 0, 4)] * 3, level=Level.NODE)
    assert placement is not None
    assert placement.level is Level.RACK
    assert racks_used(selector, placement) == [1]
    assert place(racks_of(1, 2), [Shape(1_000, 0, 4)] * 3, level=Level.NODE, required=True) is None


def test_choices_come_back_in_the_order_of_the_members() -> None:
    selector = racks_of(2)
    members = [Shape(1_000, 0, 1), Shape(1_000, 0, 8), Shape(1_000, 0, 2)]
    placement = place(selector, members)
    assert placement is not None
    assert [len(choice.devices) for choice in placement.choices] == [1, 8, 2]


def test_a_gang_that_does_not_fit_leaves_nothing_behind() -> None:
    selector = racks_of(2)
    nodes, devices = selector.arrays.node_table.copy(), selector.arrays.device_table.copy()
    assert place(selector, [NODE_OF_8] * 2 + [Shape(1_000, 0, 1)]) is None
    assert (selector.arrays.node_table == nodes).all()
    assert (selector.arrays.device_table == devices).all()


def test_masked_nodes_are_left_alone() -> None:
    selector = racks_of(3)
    mask = np.array([0, 1, 1], dtype=np.uint8)
    placement = place(selector, [NODE_OF_8] * 2, node_mask=mask)
    assert placement is not None
    assert sorted(choice.node for choice in placement.choices) == [1, 2]
    assert place(racks_of(3), [NODE_OF_8] * 3, node_mask=mask) is None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_gang_overdraws_a_node_and_a_level_kept_is_kept(seed: int) -> None:
    rng = random.Random(seed)
    racks = [rng.randrange(1, 4) for _ in range(3)]
    selector = racks_of(*racks, cards=rng.choice([1, 4, 8]), zones=rng.choice([1, 2]))
    shapes = [Shape(4_000, 0, rng.choice([1, 2, 4])), Shape(2_000, 0, 1, 300), Shape(6_000)]
    for _ in range(4):
        members = [rng.choice(shapes) for _ in range(rng.randrange(1, 9))]
        level = rng.choice([Level.NODE, Level.RACK, Level.ZONE, Level.CLUSTER])
        placement = place(selector, members, level=level, required=rng.random() < 0.5)
        arrays = selector.arrays
        assert (arrays.node_table >= 0).all()
        assert (arrays.device_table[:LOAD_BASE] >= 0).all()
        if placement is not None and placement.level is Level.NODE:
            assert len({choice.node for choice in placement.choices}) == 1
        if placement is not None and placement.level is Level.RACK:
            assert len(racks_used(selector, placement)) == 1
        if placement is not None and placement.level is Level.ZONE:
            assert len({int(arrays.zone[choice.node]) for choice in placement.choices}) == 1
