"""How cells are drawn on the hardware: which machines stand together, and which queue has which colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.hardware.devices import DeviceHealth
from millpond.server.web.pool.pool_map import OWNERS_SHOWN
from millpond.specs.api.pool.cells import CellCardsInfo, CellChainInfo, CellMapInfo, CellNodeInfo
from millpond.specs.api.pool.nodes import NodeInfo

_COLOURS: Final = OWNERS_SHOWN + 1


@dataclass(frozen=True, slots=True)
class CellGroup:
    """Machines that are drawn together: those of one largest cell, or all where that is a machine.

    Attributes:
        level, number: of that cell; empty: of none.
    """

    level: str
    number: int
    nodes: list[CellNodeInfo]


def groups_of(chain: CellChainInfo, broken: Mapping[str, int]) -> list[CellGroup]:
    """The machines of a chain as they are drawn.

    Args:
        broken: of machines that have some, how many cards are faulty.
    """
    together = chain.sizes[-1] // chain.sizes[chain.node_level]
    nodes = [_with_broken(node, broken[node.name]) if node.name in broken else node for node in chain.nodes]
    if together == 1:
        return [CellGroup("", 0, nodes)]
    starts = range(0, len(nodes), together)
    return [CellGroup(chain.levels[-1], at // together + 1, nodes[at : at + together]) for at in starts]


def broken_cards(nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """Of machines that have some, how many cards are faulty."""
    counts = {node.name: sum(device.health == DeviceHealth.FAULTY for device in node.devices) for node in nodes}
    return {name: count for name, count in counts.items() if count}


def _with_broken(node: CellNodeInfo, broken: int) -> CellNodeInfo:
    """A machine in which broken cards are told apart, as ``broken``, from others that are ``away``."""
    parts = []
    for part in node.parts:
        bad = min(broken, part.cards) if part.state == "away" else 0
        broken -= bad
        split = (replace(part, cards=bad, state="broken"), replace(part, cards=part.cards - bad))
        parts += [each for each in split if each.cards]
    return replace(node, parts=parts)


def colours_of(found: CellMapInfo) -> dict[str, str]:
    """Of each queue the word for its colour; those that are owed most have one of their own."""
    owed: Counter[str] = Counter()
    for chain in found.chains:
        size = dict(zip(chain.levels, chain.sizes, strict=True))
        for each in chain.owed:
            owed[each.queue] += each.owed * size[each.level]
    return {queue: f"o{min(place, _COLOURS)}" for place, (queue, _) in enumerate(owed.most_common(), start=1)}


def main_part(node: CellNodeInfo) -> CellCardsInfo:
    """What a machine is shown as where there is no room for its cards."""
    return max(node.parts, key=lambda part: (bool(part.queue), part.cards))
