"""Which cards are bound to whose cells, as it is shown."""

from __future__ import annotations

from worlds import World, machine, queue, single

from millpond.model.events import DeviceHealthChanged
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.tenancy.cells import CellCount
from millpond.scheduling.tenancy.cells.cell_map import CellCards, CellCardState, CellOwed

LAB = queue("lab", guarantee=8, cells=(CellCount("node", 1),))
OTHERS = queue("others")


def parts_of(world: World) -> dict[str, tuple[CellCards, ...]]:
    return {node.name: node.parts for chain in world.core.cell_map() for node in chain.nodes}


def test_there_is_nothing_to_show_while_no_queue_is_owed_cells() -> None:
    assert World(machine("n0", 8), queues=(OTHERS,)).core.cell_map() == []


def test_a_cell_is_bound_while_its_queue_uses_it_and_other_work_is_a_visitor_elsewhere() -> None:
    world = World(machine("n0", 8), machine("n1", 8), queues=(LAB, OTHERS))
    world.tick()
    (chain,) = world.core.cell_map()
    assert (chain.levels[chain.node_level], chain.sizes[-1]) == ("node", 8)
    assert chain.owed == (CellOwed("lab", "node", pinned=False, owed=1, bound=0),)
    assert set(parts_of(world).values()) == {(CellCards(8, CellCardState.FREE),)}
    assert sorted(card for node in chain.nodes for card in node.cards) == sorted(
        f"{name}-{index}" for name in ("n0", "n1") for index in range(8)
    )
    world.submit(single("mine", 6, queue="lab"), single("theirs", 3, queue="others"))
    (chain,) = world.core.cell_map()
    assert chain.owed == (CellOwed("lab", "node", pinned=False, owed=1, bound=1),)
    mine, theirs = sorted(parts_of(world).values(), key=lambda parts: parts[0].queue == "")
    assert mine == (CellCards(6, CellCardState.IN_USE, "lab", "node"), CellCards(2, CellCardState.FREE, "lab", "node"))
    assert theirs == (CellCards(3, CellCardState.VISITED), CellCards(5, CellCardState.FREE))


def test_a_pinned_machine_is_bound_though_nobody_uses_it_and_a_broken_card_is_shown() -> None:
    pinned = queue("lab", guarantee=8, pinned=("n1",))
    node = machine("n1", 8)
    world = World(machine("n0", 8), node, queues=(pinned, OTHERS))
    world.tell(DeviceHealthChanged(world.now, "n1", node.devices[0].uuid, DeviceHealth.FAULTY))
    world.tick()
    parts = parts_of(world)
    assert parts["n0"] == (CellCards(8, CellCardState.FREE),)
    assert parts["n1"] == (
        CellCards(1, CellCardState.AWAY, "lab", "node", pinned=True),
        CellCards(7, CellCardState.FREE, "lab", "node", pinned=True),
    )
