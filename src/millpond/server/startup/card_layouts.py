"""Which cards of this machine may be divided while the server runs, and into what: read once, when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutRule
from millpond.model.hardware.nodes import Node
from millpond.node.devices.fake import FakeVendor
from millpond.node.devices.fake_layouts import FILE
from millpond.node.devices.vendor import CardDivider
from millpond.node.host.machine import Machine


def with_layouts(machine: Machine, rules: Mapping[str, LayoutRule], state_dir: Path) -> Machine:
    """A machine whose nodes say which of their cards may be divided, by the rules of their pools.

    Pretended cards that a rule names are put into MIG mode; a real card's mode stays as it is. A layout that a card
    cannot have is left out, with a note.

    Args:
        state_dir: where it is kept what pretended cards are divided into.
    """
    if not rules:
        return machine
    vendor = next((each for each in machine.vendors.values() if isinstance(each, FakeVendor)), None)
    if vendor is not None:
        cards = {card for node in machine.nodes for card in _named(node, rules.get(node.pool))}
        vendor.switch_mig_on(cards, state_dir / FILE)
        nodes = tuple(replace(node, devices=vendor.devices_of(node)) for node in machine.nodes)
        machine = replace(machine, nodes=nodes)
    dividers = [each for each in (vendor.divider() for vendor in machine.vendors.values()) if each is not None]
    notes: dict[str, None] = {}
    nodes = tuple(_with_layouts(node, rules.get(node.pool), dividers, notes) for node in machine.nodes)
    if not any(node.divisible for node in nodes):
        notes["no card may be divided while the server runs: none is in MIG mode, or none can have a layout"] = None
    return replace(machine, nodes=nodes, notes=(*machine.notes, *notes))


def _named(node: Node, rule: LayoutRule | None) -> list[str]:
    """UUIDs of the cards of a node that a rule is about."""
    if rule is None:
        return []
    named = (device for device in node.devices if rule.cards is None or device.index in rule.cards)
    return list(dict.fromkeys(device.card for device in named))


def _with_layouts(node: Node, rule: LayoutRule | None, dividers: list[CardDivider], notes: dict[str, None]) -> Node:
    if rule is None:
        return node
    divisible = []
    for card in _named(node, rule):
        layouts: list[CardLayout] = []
        for instances in rule.layouts:
            try:
                found = (divider.layout(card, instances) for divider in dividers)
                layouts += [layout for layout in found if layout is not None]
            except InvalidInputError as error:
                notes[f"a card of {node.name} cannot be divided into {', '.join(instances)}: {error}"] = None
        if layouts:
            divisible.append(DivisibleCard(card, tuple(layouts), rule.stay_s))
    return replace(node, divisible=tuple(divisible))
