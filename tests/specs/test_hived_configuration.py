"""HiveD's configuration: what is wrong is named with its line, what is right becomes queues with cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.model.errors import InvalidInputError
from millpond.specs.config.cluster import check_cluster
from millpond.specs.config.hived import as_queues, cells_of_several_kinds, read_hived
from millpond.specs.errors import SpecError
from millpond.specs.source_positions import Located

TEXT = (Path(__file__).parents[1] / "data" / "hived" / "cluster.yaml").read_text()


def test_its_guarantees_become_queues_that_millpond_reads() -> None:
    queues = as_queues(
        read_hived(
            TEXT.replace("        pinnedCellId: VC1-YQW-CT1\n", "").replace("      - pinnedCellId: VC1-YQW-CT1\n", "")
        )
    )
    assert queues[0]["guarantee"] == 2 * 16 + 2 * 16 + 2 * 16 + 32 + 32 + 32
    assert queues[1]["cells"] == {"8 cards": 2, "2 cards": 1, "4 cards": 2}
    assert [queue.name for queue in check_cluster(Located({"queues": queues})).queues] == ["VC1", "VC2"]


TWO_KINDS = """
physicalCluster:
  cellTypes:
    V100-NODE: {childCellType: V100-SOCKET, childCellNumber: 2, isNodeLevel: true}
    V100-SOCKET: {childCellType: V100, childCellNumber: 4}
    A100-NODE: {childCellType: A100, childCellNumber: CARDS, isNodeLevel: true}
  physicalCells:
  - {cellType: V100-NODE, cellAddress: v1}
  - {cellType: V100-NODE, cellAddress: v2}
  - {cellType: A100-NODE, cellAddress: a1}
virtualClusters:
  vision: {virtualCells: [{cellType: V100-NODE, cellNumber: 1}]}
  speech: {virtualCells: [{cellType: V100-NODE.V100-SOCKET, cellNumber: 2}]}
"""


def test_machines_of_several_sizes_are_named_by_their_cards_so_that_each_queue_gets_its_own() -> None:
    queues = as_queues(read_hived(TWO_KINDS.replace("CARDS", "2")))
    assert [queue["cells"] for queue in queues] == [{"8 cards": 1}, {"4 cards": 2}]
    assert not list(cells_of_several_kinds(read_hived(TWO_KINDS.replace("CARDS", "2"))))


def test_cells_that_hardware_of_several_kinds_has_alike_are_named_with_the_kinds() -> None:
    (of_eight,) = cells_of_several_kinds(read_hived(TWO_KINDS.replace("CARDS", "8")))
    assert of_eight == ("vision", "node", ["A100", "V100"])
    (of_four,) = cells_of_several_kinds(read_hived(TWO_KINDS.replace("CARDS", "4")))
    assert of_four == ("speech", "4 cards", ["A100", "V100"])


def test_a_pinned_card_has_no_counterpart() -> None:
    with pytest.raises(InvalidInputError, match="less than a machine"):
        as_queues(read_hived(TEXT))


@pytest.mark.parametrize(
    ("before", "after", "message", "line"),
    [
        ("cellNumber: 1\n    pinned", "cellNumber: 4\n    pinned", "are owed 4 cells 2-DGX2-V100-NODE", 123),
        ("cellType: CT1-NODE\n        cellNumber", "cellType: CT9\n        cellNumber", "no hardware 'CT9'", 142),
        ("- pinnedCellId: VC1-YQW-CT1", "- pinnedCellId: VC1-YQW-CT2", "no cell is pinned as", 133),
        ("      childCellType: CT1\n", "      childCellType: CT1-NODE\n", "is part of itself", 60),
        ("cellAddress: '9'", "cellAddress: '8'", "named twice", 64),
        ("      - cellAddress: 0.0.2.2\n", "", "with 2 parts", 94),
    ],
)
def test_what_is_wrong_is_named_with_its_line(before: str, after: str, message: str, line: int) -> None:
    assert TEXT.count(before) == 1
    with pytest.raises(SpecError, match=message) as caught:
        read_hived(TEXT.replace(before, after), "cluster.yaml")
    assert caught.value.problems[0].line == line
