"""Whole cards are taken where their links are best."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.hardware.topology import LINK_MAPS
from millpond.scheduling.placement.arrays import ClusterArrays
from millpond.scheduling.placement.links import LinkTables, id_cost
from millpond.scheduling.placement.mix import TypicalMix
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import build_tables


def node_with(cards: int, busy: tuple[int, ...], costs: list[list[int]] | None = None) -> Selector:
    arrays, links = ClusterArrays(), LinkTables()
    node = arrays.append_node(
        cpu_milli=64_000,
        memory_mib=65_536,
        models=[0] * cards,
        sockets=[card // (cards // 2) for card in range(cards)],
        switches=[card // 2 for card in range(cards)],
    )
    if costs is not None:
        arrays.link_type[node] = links.register(costs)
    for card in busy:
        arrays.compute_free_milli[card] = 0
    return Selector(arrays, build_tables(TypicalMix()), links=links)


@pytest.mark.parametrize(
    ("busy", "wanted", "expected"),
    [
        ((), 1, (0,)),
        ((), 2, (0, 3)),  # the first pair with a double NVLink
        ((), 4, (0, 1, 2, 3)),  # a mesh of four
        ((0,), 4, (4, 5, 6, 7)),
        ((3, 4), 2, (1, 2)),
        ((1, 2, 5, 6), 4, (0, 3, 4, 7)),  # a ring over both sockets
        ((), 8, (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_cards_of_a_dgx1_follow_its_cube_mesh(busy: tuple[int, ...], wanted: int, expected: tuple[int, ...]) -> None:
    assert node_with(8, busy, LINK_MAPS["v100-cube-mesh"]).choose_devices(0, Shape(devices=wanted)) == expected


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize(
    ("busy", "wanted", "expected"),
    [
        ((0,), 2, (2, 3)),  # one switch rather than two
        ((0, 2), 2, (4, 5)),
        ((0,), 4, (4, 5, 6, 7)),  # one socket rather than two
        ((0, 4), 4, (1, 2, 3, 5)),
    ],
)
def test_cards_share_a_switch_then_a_socket(
    registered: bool, busy: tuple[int, ...], wanted: int, expected: tuple[int, ...]
) -> None:
    selector = node_with(8, busy)
    if registered:
        selector.links.adopt(selector.arrays, 0)
    assert selector.choose_devices(0, Shape(devices=wanted)) == expected


@settings(max_examples=60, deadline=None)
@given(free=st.sets(st.integers(0, 15), min_size=1), wanted=st.integers(1, 6), registered=st.booleans())
def test_on_sixteen_cards_the_worst_link_is_as_good_as_it_can_be(free: set[int], wanted: int, registered: bool) -> None:
    selector = node_with(16, tuple(set(range(16)) - free))
    if registered:
        selector.links.adopt(selector.arrays, 0)
    chosen = selector.choose_devices(0, Shape(devices=wanted))
    if len(free) < wanted:
        assert chosen is None
        return
    assert chosen is not None
    assert len(chosen) == wanted
    assert set(chosen) <= free

    def worst(cards: tuple[int, ...]) -> int:
        return max((int(id_cost(a // 2, b // 2, a // 8, b // 8)) for a, b in combinations(cards, 2)), default=0)

    assert worst(chosen) == min(worst(cards) for cards in combinations(sorted(free), wanted))


def test_equal_node_types_share_a_table_and_lopsided_costs_are_refused() -> None:
    links = LinkTables()
    assert links.register_ids([0, 0], [0, 1]) == links.register_ids([7, 7], [3, 4])
    assert links.register(LINK_MAPS["v100-cube-mesh"]) == 2
    with pytest.raises(ValueError, match="symmetric"):
        links.register([[0, 1], [2, 0]])
