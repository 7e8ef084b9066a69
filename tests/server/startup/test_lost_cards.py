"""Cards that are gone when a server starts: which of them count as lost, and what is seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from api_world import Api

from millpond.model.events import CardClosed, Event, NodeJoined
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Cordon, Node
from millpond.node.host.machine import Machine
from millpond.scheduling.nodes.card_cordons import BY_HEALTH
from millpond.scheduling.nodes.views import NodeView
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.server.startup.lost_cards import with_lost_cards


def cards(*indices: int, vendor: str = "nvidia") -> tuple[Device, ...]:
    return tuple(Device(f"{vendor}-{index}", index, vendor, "A100", 81_920) for index in indices)


def instances(card: str, index: int) -> tuple[Device, ...]:
    model = "A100-MIG-3g.40gb"
    return tuple(
        Device(f"{card}-{number}", index, "nvidia", model, parent=card, instance=number) for number in range(2)
    )


def box(devices: Iterable[Device], name: str = "box") -> Node:
    return Node(name, 8_000, 16_384, tuple(devices))


def known(node: Node, *happened: Event) -> list[NodeView]:
    scheduler = Scheduler(Settings())
    for event in (NodeJoined(0.0, node), *happened):
        scheduler.handle(event)
    return scheduler.node_views()


def closed(card: str, by: str) -> CardClosed:
    return CardClosed(0.0, "box", card, Cordon(0.0, reason="it is loud", by=by))


def started(found: Sequence[Device], before: list[NodeView]) -> Node:
    machine, _ = with_lost_cards(Machine((box(found),), {}), before)
    (node,) = machine.nodes
    return node


def lost(found: Sequence[Device], before: list[NodeView]) -> list[tuple[str, int]]:
    """The UUIDs and numbers of what counts as lost; what was found leads unchanged."""
    node = started(found, before)
    assert node.devices[: len(found)] == tuple(found)
    missing = node.devices[len(found) :]
    assert all(device.health is DeviceHealth.FAULTY for device in missing)
    return [(device.uuid, device.index) for device in missing]


def test_a_card_that_was_there_at_the_last_start_stays_known_as_a_faulty_one_start_after_start() -> None:
    machine, warnings = with_lost_cards(Machine((box(cards(0, 1)),), {}), known(box(cards(0, 1, 2))))
    (node,) = machine.nodes
    gone = node.devices[2]
    assert (gone.uuid, gone.index, gone.health) == ("nvidia-2", 2, DeviceHealth.FAULTY)
    assert gone.health_detail == "its driver did not list it when the server started"
    (warning,) = warnings
    assert warning == (
        "warning: box has lost 1 of the cards that it had: 2 (nvidia-2); see to its driver, or, where they were taken "
        "out, `pond nodes cordon box/2` each, and start the server again"
    )
    assert started(cards(0, 1), known(node)) == node
    assert lost(cards(0, 1, 2), known(node)) == []


def test_where_the_driver_counts_anew_the_lost_card_gets_a_number_of_its_own_and_keeps_it() -> None:
    remaining = (replace(cards(2)[0], index=1), replace(cards(0)[0], index=0))
    node = started(remaining, known(box(cards(0, 1, 2))))
    gone = node.devices[2]
    assert (gone.uuid, gone.index) == ("nvidia-1", 2)
    assert gone.health_detail == "its driver did not list it when the server started; it was card 1 before"
    again = started(remaining, known(node))
    assert again == node


def test_a_driver_that_lists_nothing_has_lost_all_its_cards_and_those_of_another_vendor_are_not_in_question() -> None:
    before = known(box((*cards(0, 1), *cards(0, vendor="amd"))))
    assert lost(cards(0, vendor="amd"), before) == [("nvidia-0", 1), ("nvidia-1", 2)]


def test_a_card_that_another_one_has_replaced_is_not_lost() -> None:
    before = known(box(cards(0, 1, 2)))
    assert lost(cards(0, 1, 7), before) == []
    assert [uuid for uuid, _ in lost(cards(0, 7), before)] == ["nvidia-1"], "one of two was replaced"


@pytest.mark.parametrize(("by", "counts"), [("ada", []), (BY_HEALTH, [("nvidia-1", 1)])])
def test_a_card_that_an_admin_closed_was_taken_out_and_one_that_closed_by_itself_is_lost(
    by: str, counts: list[tuple[str, int]]
) -> None:
    assert lost(cards(0), known(box(cards(0, 1)), closed("nvidia-1", by))) == counts


def test_instances_of_a_card_are_lost_with_it_and_not_where_it_is_divided_otherwise() -> None:
    before = known(box((*cards(0), *instances("nvidia-1", 1))))
    assert lost(cards(0), before) == [("nvidia-1-0", 1), ("nvidia-1-1", 1)]
    assert lost(cards(0, 1), before) == []
    assert lost((*cards(0), *instances("nvidia-1", 1)), known(box(cards(0, 1)))) == []


def test_a_failed_card_that_is_lost_then_keeps_the_reason_of_its_failure() -> None:
    failed = replace(cards(1)[0], health=DeviceHealth.FAULTY, health_detail="XID 79: it has fallen off the bus")
    node = started(cards(0), known(box((*cards(0), failed))))
    assert node.devices[1].health_detail == "XID 79: it has fallen off the bus"


def test_pretended_cards_and_those_of_other_machines_are_never_lost() -> None:
    pretended = tuple(replace(card, fake=True) for card in cards(0, 1))
    assert lost(cards(0), known(box(pretended))) == []
    assert lost(cards(0), known(box(cards(0, 1), name="other"))) == []


def test_a_lost_card_shows_in_the_figures_that_alerts_are_about_and_its_job_goes_elsewhere(api: Api) -> None:
    before = Node("real", 64_000, 262_144, cards(0, 1, 2))
    api.loop.notify([NodeJoined(api.clock.now, before)])
    api.settled()
    job = api.submit(gpus=2, gpu_models=["A100"]).id
    held = api.job(job).tasks[0].devices[0].uuid
    views = api.loop.query(lambda core: core.scheduler.node_views()).result(60)
    found = replace(before, devices=tuple(card for card in before.devices if card.uuid != held))
    machine, _ = with_lost_cards(Machine((*api.world.nodes, found), {}), views)
    (_, node) = machine.nodes
    api.loop.notify([NodeJoined(api.clock.now, node)])
    assert api.job(job).attempt == 2
    assert held not in {grant.uuid for grant in api.job(job).tasks[0].devices}
    page = api.client.get("/metrics").text
    index = next(card.index for card in before.devices if card.uuid == held)
    assert f'millpond_device_healthy{{node="real",device="{index}",model="A100",fake="false"}} 0' in page
    assert 'millpond_node_gpus{node="real",pool="default"} 3' in page
    assert 'millpond_node_faulty_gpus{node="real",pool="default"} 1' in page
