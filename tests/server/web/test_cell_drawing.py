"""How machines are drawn on the page of cells."""

from __future__ import annotations

from millpond.server.web.pool.cell_drawing import groups_of
from millpond.specs.api.pool.cells import CellCardsInfo, CellChainInfo, CellNodeInfo
from millpond.specs.api.pool.nodes import DeviceInfo


def chain(*nodes: CellNodeInfo, together: int = 1) -> CellChainInfo:
    """Machines of four cards, of which so many make up the largest cell."""
    levels, sizes = ["card", "node"], [1, 4]
    if together > 1:
        levels, sizes = [*levels, f"rack of {together} nodes"], [*sizes, 4 * together]
    return CellChainInfo(
        name="default/V100", model="V100", levels=levels, sizes=sizes, node_level=1, nodes=list(nodes), owed=[]
    )


def card(index: int, health: str = "ok", instance: int | None = None) -> DeviceInfo:
    return DeviceInfo(
        uuid="", index=index, instance=instance, vendor="nvidia", model="V100", memory_mib=1, health=health,
        free_memory_mib=1, free_compute_milli=1_000,
    )  # fmt: skip


def test_a_broken_card_is_drawn_as_such_and_one_that_is_closed_is_not() -> None:
    parts = [
        CellCardsInfo(cards=1, state="free"),
        CellCardsInfo(cards=1, state="away", queue="vision", level="card"),
        CellCardsInfo(cards=2, state="away"),
    ]
    devices = {"a": card(0), "b": card(1, "faulty"), "c": card(2), "d": card(3, "faulty", instance=1)}
    [group] = groups_of(chain(CellNodeInfo(name="n1", cards=list("acbd"), parts=parts)), devices)
    [node] = group.nodes
    assert [(part.state, part.numbers, part.cell.queue) for part in node.parts] == [
        ("free", ["0"], ""),
        ("away", ["2"], "vision"),
        ("broken", ["1", "3.1"], ""),
    ]


def test_machines_of_a_rack_that_is_a_cell_stand_together() -> None:
    nodes = [
        CellNodeInfo(name=f"n{number}", cards=list("abcd"), parts=[CellCardsInfo(cards=4, state="free")])
        for number in range(4)
    ]
    groups = groups_of(chain(*nodes, together=2), {})
    assert [(group.level, group.number, [node.name for node in group.nodes]) for group in groups] == [
        ("rack of 2 nodes", 1, ["n0", "n1"]),
        ("rack of 2 nodes", 2, ["n2", "n3"]),
    ]
