"""How cells are drawn on the hardware: which machines stand together, and which queue has which colour."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from millpond.server.web.pool.pool_map import OWNERS_SHOWN
from millpond.specs.api.pool.cells import CellCardsInfo, CellChainInfo, CellMapInfo, CellNodeInfo

_COLOURS: Final = OWNERS_SHOWN + 1


@dataclass(frozen=True, slots=True)
class CellGroup:
    """Machines that are drawn together: those of one largest cell, or all where that is a machine."""

    title: str
    nodes: list[CellNodeInfo]


def groups_of(chain: CellChainInfo) -> list[CellGroup]:
    """The machines of a chain as they are drawn."""
    together = chain.sizes[-1] // chain.sizes[chain.node_level]
    if together == 1:
        return [CellGroup("", chain.nodes)]
    starts = range(0, len(chain.nodes), together)
    return [CellGroup(f"{chain.levels[-1]} {at // together + 1}", chain.nodes[at : at + together]) for at in starts]


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
