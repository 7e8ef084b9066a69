"""Bid prices, quantisation and scarcity: the numbers that scores are made of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, machine, single

from millpond.model.events import NodeJoined, NodeLost
from millpond.scheduling.placement.bid_price import VALUE_OF_CARD, slice_values
from millpond.scheduling.placement.shapes import ANY_MODEL
from millpond.scheduling.placement.tables import model_scarcity, quantum_floors


def test_without_slices_the_value_of_a_residual_is_linear() -> None:
    values = slice_values({})
    assert values[[0, 250, 1000]].tolist() == [0, 2_500, 10_000]


def test_halves_alone_make_a_residual_worth_its_halves() -> None:
    values = slice_values({500: 7})
    assert values[[490, 500, 990, 1000]].tolist() == [0, 5_000, 5_000, 10_000]


def test_a_remainder_that_no_slice_fits_is_worth_nothing() -> None:
    values = slice_values({810: 60, 460: 20, 540: 20})
    assert values[190] == 0
    # A card cut into 810 is used up; 460 and 540 share one.
    assert values[810] == VALUE_OF_CARD
    assert values[460] + values[540] == VALUE_OF_CARD


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(1, 99).map(lambda size: size * 10), st.integers(1, 500), max_size=20))
def test_prices_are_dual_feasible_and_meet_the_demand_bound(frequencies: dict[int, int]) -> None:
    values = slice_values(frequencies)
    assert values[0] == 0
    assert (np.diff(values) >= 0).all()
    assert values[1000] <= VALUE_OF_CARD + 1
    # No two residuals are worth more together than as one: the value is superadditive.
    for left in range(0, 1001, 70):
        for right in range(0, 1001 - left, 90):
            assert values[left] + values[right] <= values[left + right] + 3
    if frequencies:
        # Weak duality against the material bound: the priced demand needs at least its volume in cards.
        priced = sum(values[size] * count for size, count in frequencies.items()) / VALUE_OF_CARD
        volume = sum(size * count for size, count in frequencies.items()) / 1000
        assert priced >= volume * (1 - 1e-3) - 0.01 * sum(frequencies.values())


def test_sizes_off_the_grid_of_ten_are_priced_too() -> None:
    values = slice_values({333: 1})
    assert values[[332, 333, 998, 999]].tolist() == [0, 3_333, 6_667, 10_000]


@pytest.mark.parametrize("weight", [1, 8_152, 10**9])
def test_the_table_of_step_edges_is_the_quantised_sigmoid(weight: int) -> None:
    floors = quantum_floors(weight)
    for milli in range(-9_000, 9_001, 137):
        gradient = milli * weight
        step = int(np.searchsorted(floors, gradient, side="right")) - 1
        assert step == int(100 / (1 + math.exp(-milli / 1000)))


def test_scarcity_is_the_fill_of_a_model_by_demand_that_has_no_choice() -> None:
    capacity = {0: 10_000, 1: 10_000}
    scarcity = model_scarcity({0b01: 25, ANY_MODEL: 75}, capacity)
    assert scarcity[:3].tolist() == [500, 0, 0]
    assert model_scarcity({0b01: 90, ANY_MODEL: 10}, capacity)[0] == 1_000
    assert model_scarcity({0b11: 50, ANY_MODEL: 50}, capacity).sum() == 0
    assert model_scarcity({0b01: 25}, {}).sum() == 0


def test_they_are_built_anew_for_other_cards_and_not_for_another_description_of_a_node() -> None:
    node, other = machine("n1"), machine("n2")
    world = World(node, other)
    world.submit(single("first"))
    placer = world.core._placer
    before = placer.selector.tables
    world.tell(NodeJoined(world.now, replace(node, cpu_milli=node.cpu_milli - 1_000, labels=(("zone", "z"),))))
    world.submit(single("second"))
    assert placer.selector.tables is before
    world.tell(NodeLost(world.now, "n2"))
    world.submit(single("third"))
    assert placer.selector.tables is not before
