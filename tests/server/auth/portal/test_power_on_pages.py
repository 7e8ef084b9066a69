"""What the portal says of nodes that are switched off and on, and which orders it offers for them."""

from __future__ import annotations

import pytest
from auth_world import API, AuthWorld
from portal_browser import browser_of

from millpond.model.events import NodeClosed, NodePowerChanged
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.nodes import Cordon

DRAINING, OFF, ON = NodePowerState.DRAINING, NodePowerState.OFF, NodePowerState.ON


def switched(world: AuthWorld, *states: NodePowerState, detail: str = "") -> None:
    world.loop.notify([NodePowerChanged(world.clock.now, "n1", state, detail) for state in states])
    world.settled()


@pytest.mark.parametrize("page", ["/portal/nodes", "/portal/nodes/n1"])
def test_a_node_that_is_off_can_be_closed_and_is_opened_only_where_someone_closed_it(
    world: AuthWorld, page: str
) -> None:
    browser = browser_of(world, "olga")
    switched(world, DRAINING, OFF)
    shown = browser.get(page).text
    assert "off to save energy" in shown
    assert ("nodes/n1/close" in shown, "nodes/n1/open" in shown) == (True, False)
    world.loop.notify([NodeClosed(world.clock.now, "n1", Cordon(world.clock.now, None, "a fan is loud", by="olga"))])
    world.settled()
    shown = browser.get(page).text
    assert "a fan is loud; off to save energy" in shown
    assert "nodes/n1/open" in shown


def test_cards_of_a_node_that_is_off_are_not_said_to_be_healthy(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    assert browser.get("/portal/nodes/n1").text.count(">healthy<") == 4
    switched(world, DRAINING)
    assert browser.get("/portal/nodes/n1").text.count(">healthy<") == 4, "it is still there"
    switched(world, OFF)
    page = browser.get("/portal/nodes/n1").text
    assert (page.count(">healthy<"), page.count(">off<")) == (0, 5), "the node, and its cards"
    devices = world.client("max").get(f"{API}/devices").json()["devices"]
    assert {device["power"] for device in devices} == {"off"}


@pytest.mark.parametrize("page", ["/portal/nodes", "/portal/nodes/n1"])
def test_why_a_node_was_not_switched_off_is_told(world: AuthWorld, page: str) -> None:
    switched(world, DRAINING, ON, detail="the command ended with 255")
    assert "not switched off: the command ended with 255" in browser_of(world, "max").get(page).text
