"""Card memory of queues in the configuration: read, and held against limits and the queues below."""

from __future__ import annotations

import pytest

from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError


def test_card_memory_is_read_beside_cards_and_bounds_nothing_where_it_is_left_out() -> None:
    lab, den = read_cluster(
        "queues:\n"
        "- {name: lab, guarantee: {gpus: 2, card_memory: 40GiB}, limit: {card_memory: 0.5TiB}}\n"
        "- {name: den, limit: 4}\n"
    ).queues
    assert lab.limit is not None
    assert den.limit is not None
    assert (lab.guarantee.gpu_milli, lab.guarantee.card_mib, lab.limit.card_mib) == (2_000, 40_960, 524_288)
    assert (den.guarantee.card_mib, den.limit.card_mib) == (0, 0)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("guarantee: {card_memory: 0}", "card_memory"),
        ("guarantee: {card_memory: much}", "much"),
        ("guarantee: {card_memory: 8GiB}, limit: {card_memory: 4GiB}", "guaranteed 8 GiB of card memory"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(written: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_cluster(f"queues:\n- {{name: lab, {written}}}\n")
    assert caught.value.problems[0].line == 2


def test_the_card_memory_of_a_group_covers_that_of_its_queues() -> None:
    with pytest.raises(SpecError, match="the queues below house are guaranteed 24 GiB of card memory together"):
        read_cluster(
            "queues:\n- {name: house, guarantee: {card_memory: 16GiB}}\n"
            "- {name: lab, parent: house, guarantee: {card_memory: 12GiB}}\n"
            "- {name: den, parent: house, guarantee: {card_memory: 12GiB}}\n"
        )
