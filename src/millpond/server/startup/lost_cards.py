"""Cards that this machine had when a server ran here last and has no more: they stay known, as faulty ones.

So a card that is lost while no server runs, with a restart of the machine say, shows and raises alerts as one that is
lost meanwhile. Cards are counted by vendor: where as many are there as before, one was replaced and none is lost. A
card that an admin has closed was taken out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.node.host.machine import Machine
from millpond.scheduling.nodes.card_cordons import BY_HEALTH
from millpond.scheduling.nodes.views import DeviceUse, NodeView

log = logging.getLogger(__name__)

_LOST: Final = "its driver did not list it when the server started"


def with_lost_cards(machine: Machine, known: Iterable[NodeView]) -> tuple[Machine, tuple[str, ...]]:
    """The machine with the cards that are lost, and what is to be said of them; logged too.

    Args:
        known: the nodes as they were when a server ran here last.
    """
    before = {view.node.name: view.devices for view in known}
    lost = {node.name: _lost(node, before.get(node.name, ())) for node in machine.nodes}
    nodes = tuple(replace(node, devices=(*node.devices, *lost[node.name])) for node in machine.nodes)
    texts = [_text(name, devices) for name, devices in lost.items() if devices]
    for text in texts:
        log.warning(text)
    return replace(machine, nodes=nodes), tuple(f"warning: {text}" for text in texts)


def _lost(node: Node, before: Iterable[DeviceUse]) -> list[Device]:
    """The devices of the lost cards; one whose number another card has now gets the first one beyond all."""
    found = {device.card: device.vendor for device in node.devices}
    had: dict[str, dict[str, list[Device]]] = {}
    for use in before:
        if not use.device.fake and not _is_taken_out(use):
            had.setdefault(use.device.vendor, {}).setdefault(use.device.card, []).append(use.device)
    numbers = {device.index for device in node.devices}
    lost = list[Device]()
    for vendor, cards in had.items():
        missing = [devices for card, devices in cards.items() if card not in found]
        for devices in missing[: max(0, len(cards) - list(found.values()).count(vendor))]:
            index = devices[0].index
            now = max(numbers) + 1 if index in numbers else index
            numbers.add(now)
            lost += [_as_lost(device, now) for device in devices]
    return lost


def _is_taken_out(use: DeviceUse) -> bool:
    return use.closure is not None and use.closure.by not in ("", BY_HEALTH)


def _as_lost(device: Device, index: int) -> Device:
    """What had failed before keeps its reason, which may be that of its loss."""
    detail = device.health_detail
    if device.health is not DeviceHealth.FAULTY:
        detail = _LOST if index == device.index else f"{_LOST}; it was card {device.index} before"
    return replace(device, index=index, health=DeviceHealth.FAULTY, health_detail=detail)


def _text(node: str, devices: Iterable[Device]) -> str:
    cards = {device.card: device for device in devices}.values()
    named = ", ".join(f"{device.index} ({device.card})" for device in cards)
    example = next(iter(cards)).index
    return (
        f"{node} has lost {len(cards)} of the cards that it had: {named}; see to its driver, or, where they were taken "
        f"out, `pond nodes cordon {node}/{example}` each, and start the server again"
    )
