"""Long work leaves room for the short work that is expected, of the cards that can be had."""

from __future__ import annotations

import pytest
from worlds import World, machine, queue, single

from millpond.model.events import DeviceHealthChanged, Event, NodeClosed, NodePowerChanged
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause
from millpond.model.workloads import Priority
from millpond.scheduling.cycle import admission_cycle
from millpond.scheduling.ordering import waiting_lines


def expecting_short_work(*events: Event) -> World:
    """Two nodes of eight cards, after these events, where work of a minute comes every minute."""
    world = World(machine("a", 8), machine("b", 8))
    for event in events:
        world.tell(event)
    for number in range(30):
        world.submit(single(f"short{number}"), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("long", 6), lasting=36_000.0, known=True)
    return world


FAULTS = [DeviceHealthChanged(0.0, "b", f"b-{number}", DeviceHealth.FAULTY) for number in range(8)]


@pytest.mark.parametrize("events", [[NodeClosed(0.0, "b", Cordon(0.0))], FAULTS], ids=["closed", "faulty"])
def test_cards_that_nothing_may_start_on_are_no_room_for_short_work(events: list[Event]) -> None:
    assert expecting_short_work(*events).why("long").cause is Cause.HELD_BACK


def test_nodes_that_are_off_to_save_energy_are_room_unless_they_failed_to_boot() -> None:
    states = (NodePowerState.DRAINING, NodePowerState.OFF, NodePowerState.BOOTING, NodePowerState.FAILED)
    *down, failed = [NodePowerChanged(0.0, "b", state) for state in states]
    assert "long" in expecting_short_work(*down[:2]).running()
    assert "long" in expecting_short_work(*down).running()
    assert expecting_short_work(*down, failed).why("long").cause is Cause.HELD_BACK


def test_of_closed_machines_no_part_is_kept_free() -> None:
    """Twice two cards are kept busy by short work; more than half of the open cards is never kept."""
    world = World(machine("a", 8), *(machine(f"closed{number}", 8) for number in range(3)))
    for number in range(3):
        world.tell(NodeClosed(0.0, f"closed{number}", Cordon(0.0)))
    for number in range(30):
        world.submit(single(f"short{number}", 2), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("long", 4), lasting=36_000.0, known=True)
    assert "long" in world.running()


@pytest.mark.parametrize("few", [1_000, -1], ids=["few lines", "many lines"])
def test_of_what_is_guaranteed_nothing_is_left_to_short_work(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", few)
    monkeypatch.setattr(admission_cycle, "LINE_DEPTH", 1)
    world = World(machine("a", 8), machine("b", 8), queues=(queue("owner", guarantee=12), queue("guest")))
    for number in range(30):
        world.submit(single(f"short{number}", queue="guest"), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    borrowed = [single(f"borrowed{number}", 6, queue="guest") for number in range(2)]
    world.lingering.update(job.id for job in borrowed)
    world.submit(*borrowed)
    world.submit(single("awaits room", 6, queue="owner"))
    world.submit(single("guest", 2, queue="guest"), lasting=36_000.0, known=True)
    assert world.why("guest").cause is Cause.HELD_BACK
    world.submit(single("owner", 2, queue="owner", priority=Priority.LOW), lasting=36_000.0, known=True)
    assert "owner" in world.running()
