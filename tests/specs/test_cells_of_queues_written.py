"""Cells of queues in the configuration: what is wrong is named with its place."""

from __future__ import annotations

import pytest

from millpond.model.tenancy.cells import CellCount
from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError


def test_cells_and_pinned_machines_are_read() -> None:
    (queue,) = read_cluster("queues: [{name: lab, guarantee: 28, cells: {node: 2, 4 cards: 1}, pinned: [n1]}]").queues
    assert queue.cells == (CellCount("node", 2), CellCount("4 cards", 1))
    assert queue.pinned == ("n1",)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("guarantee: 8, cells: {nod: 1}", "no cells 'nod'"),
        ("guarantee: 8, cells: {rack of 1 nodes: 1}", "no cells 'rack of 1 nodes'"),
        ("guarantee: 8, cells: {node: 0}", "1"),
        ("cells: {node: 1}", "cells of at least 1 card, but lab is guaranteed 0 GPUs"),
        ("guarantee: 8, cells: {4 cards: 3}", "cells of at least 12 cards, but lab is guaranteed 8 GPUs"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(written: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_cluster(f"queues:\n- {{name: lab, {written}}}\n")
    assert caught.value.problems[0].line == 2


def test_a_machine_that_is_pinned_twice_is_named_with_its_line() -> None:
    with pytest.raises(
        SpecError, match="machine 'n1' is pinned to queue 'vision', and to queue 'lab' before"
    ) as caught:
        read_cluster(
            "queues:\n- {name: lab, guarantee: 8, pinned: [n1]}\n- {name: vision, guarantee: 8, pinned: [n2, n1]}\n"
        )
    assert caught.value.problems[0].line == 3
