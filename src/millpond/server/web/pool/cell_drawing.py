"""How cells are drawn on the hardware: which machines stand together, and which queue has which colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from millpond.model.hardware.devices import DeviceHealth
from millpond.server.web.pool.pool_map import OWNERS_SHOWN, card_number
from millpond.specs.api.pool.cells import CellCardsInfo, CellChainInfo, CellMapInfo, CellNodeInfo
from millpond.specs.api.pool.nodes import DeviceInfo

_COLOURS: Final = OWNERS_SHOWN + 1
_WITH_WORK: Final = ("in-use", "visited")


@dataclass(frozen=True, slots=True)
class DrawnCards:
    """Cards of a machine that stand side by side and are alike.

    Attributes:
        numbers: as in the names of cards, such as ``dgx-1/3``.
        state: that of their cell, or ``broken``, which tells them apart from others that are ``away``.
    """

    numbers: list[str]
    state: str
    cell: CellCardsInfo


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A machine with its cards in the order of the chain."""

    name: str
    parts: list[DrawnCards]


@dataclass(frozen=True, slots=True)
class CellGroup:
    """Machines that are drawn together: those of one largest cell, or all where that is a machine.

    Attributes:
        level, number: of that cell; empty: of none.
    """

    level: str
    number: int
    nodes: list[DrawnNode]


def groups_of(chain: CellChainInfo, devices: Mapping[str, DeviceInfo]) -> list[CellGroup]:
    """The machines of a chain as they are drawn.

    Args:
        devices: the cards by UUID.
    """
    together = chain.sizes[-1] // chain.sizes[chain.node_level]
    nodes = [_drawn(node, devices) for node in chain.nodes]
    if together == 1:
        return [CellGroup("", 0, nodes)]
    starts = range(0, len(nodes), together)
    return [CellGroup(chain.levels[-1], at // together + 1, nodes[at : at + together]) for at in starts]


def _drawn(node: CellNodeInfo, devices: Mapping[str, DeviceInfo]) -> DrawnNode:
    parts: list[DrawnCards] = []
    uuids = iter(node.cards)
    for cell in node.parts:
        here = [devices.get(uuid) for uuid in islice(uuids, cell.cards)]
        for is_faulty, alike in groupby(here, _is_faulty):
            state = "broken" if is_faulty and cell.state == "away" else cell.state
            parts.append(DrawnCards([_number(card) for card in alike], state, cell))
    return DrawnNode(node.name, parts)


def _is_faulty(card: DeviceInfo | None) -> bool:
    return card is not None and card.health == DeviceHealth.FAULTY


def _number(card: DeviceInfo | None) -> str:
    """A machine may have gone between the two looks that the page takes."""
    return "?" if card is None else card_number(card)


def colours_of(found: CellMapInfo) -> dict[str, str]:
    """Of each queue the word for its colour; those that are owed most have one of their own."""
    owed: Counter[str] = Counter()
    for chain in found.chains:
        size = dict(zip(chain.levels, chain.sizes, strict=True))
        for each in chain.owed:
            owed[each.queue] += each.owed * size[each.level]
    return {queue: f"o{min(place, _COLOURS)}" for place, (queue, _) in enumerate(owed.most_common(), start=1)}


def main_part(node: DrawnNode) -> DrawnCards:
    """What a machine is shown as where there is no room for its cards: by whose cell it is, and whether it has work."""
    return max(node.parts, key=lambda part: (bool(part.cell.queue), part.state in _WITH_WORK, len(part.numbers)))
