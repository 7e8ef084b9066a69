"""Maps of cards for the driver: every card once on each side, whatever is to go where."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.node.sharing.helper_process import whole_map

CARDS = [uuid.UUID(int=number) for number in range(8)]


@given(st.permutations(CARDS), st.permutations(CARDS), st.integers(0, 8), st.integers(1, 8))
def test_a_map_names_every_card_once_on_each_side(
    old: list[uuid.UUID], new: list[uuid.UUID], moved: int, there: int
) -> None:
    cards = CARDS[:there]
    pairs = [pair for pair in zip(old, new, strict=True) if set(pair) <= set(cards)][:moved]
    moves = dict(pairs)
    found = whole_map(cards, moves)
    assert set(found) == set(found.values()) == set(cards)
    assert moves.items() <= found.items()
    touched = {*moves, *moves.values()}
    assert all(found[card] == card for card in cards if card not in touched)


def test_a_card_that_the_driver_does_not_have_is_named() -> None:
    with pytest.raises(KeyError, match=str(CARDS[7])):
        whole_map(CARDS[:2], {CARDS[0]: CARDS[7]})
