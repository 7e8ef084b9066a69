"""Which cards are bound to whose cells, machine by machine, for display.

A cell that is owed is bound to hardware only while its queue uses any of it, and a pinned one always; the others are
counted (``cell_usage``), as all that are clean would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from millpond.scheduling.tenancy.cells.book import CellBook
from millpond.scheduling.tenancy.cells.chains import Chain


class CellCardState(StrEnum):
    """What is on a card, as far as cells are concerned."""

    IN_USE = "in-use"
    """Work that is in a cell of its queue."""
    VISITED = "visited"
    """Other work, which leaves when the card is needed for a cell."""
    AWAY = "away"
    """It is broken or closed, or held by work that cannot leave."""
    FREE = "free"


@dataclass(frozen=True, slots=True)
class CellCards:
    """Cards of a machine that stand side by side and are alike.

    Attributes:
        queue: whose cell they are bound to; empty: to nobody's.
        level: of that cell.
        pinned: it is bound to these very cards.
    """

    cards: int
    state: CellCardState
    queue: str = ""
    level: str = ""
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class CellNode:
    """A machine with its cards in the order of the chain.

    Attributes:
        cards: their ids, those of the first of the parts first.
    """

    name: str
    cards: tuple[str, ...]
    parts: tuple[CellCards, ...]


@dataclass(frozen=True, slots=True)
class CellOwed:
    """How many cells of a level a queue is owed, and how many of them are bound to hardware."""

    queue: str
    level: str
    pinned: bool
    owed: int
    bound: int


@dataclass(frozen=True, slots=True)
class CellChain:
    """Hardware of one kind.

    Attributes:
        levels, sizes: from the single card up: their names, and how many cards a cell of each has.
        node_level: which level is one machine.
        nodes: its machines in the order of the tree, so that those of a larger cell stand side by side.
    """

    name: str
    model: str
    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    node_level: int
    nodes: tuple[CellNode, ...]
    owed: tuple[CellOwed, ...]


def cell_map(book: CellBook, queues: Iterable[str]) -> list[CellChain]:
    """All chains, with what these queues are owed of them; none while no queue is owed cells."""
    if book.allocator is None or book.stale:
        return []
    owed: dict[str, list[CellOwed]] = {}
    for domain in [domain for queue in queues for domain in book.domains_of(queue)]:
        levels = domain.chain.spec.levels
        counts = [
            CellOwed(domain.cluster, level, domain.pinned is not None, count, count - unbound)
            for level, count, unbound in zip(levels, domain.cells, domain.unbound, strict=True)
            if count
        ]
        if domain.pinned is not None:
            counts = [CellOwed(domain.cluster, levels[domain.pinned[0]], pinned=True, owed=1, bound=1)]
        owed.setdefault(domain.chain.spec.name, []).extend(counts)
    return [_shown(chain, owed.get(name, [])) for name, chain in sorted(book.allocator.chains.items())]


def _shown(chain: Chain, owed: list[CellOwed]) -> CellChain:
    spec = chain.spec
    each = chain.size[chain.node_level]
    nodes = (
        CellNode(name, tuple(cards), tuple(_parts(chain, range(number * each, (number + 1) * each))))
        for number, (name, cards) in enumerate(spec.nodes)
    )
    return CellChain(spec.name, spec.model, spec.levels, tuple(spec.sizes), spec.node_level, tuple(nodes), tuple(owed))


def _parts(chain: Chain, leaves: range) -> Iterator[CellCards]:
    for alike, cards in groupby(_card(chain, leaf) for leaf in leaves):
        state, queue, level, pinned = alike
        yield CellCards(sum(1 for _ in cards), state, queue, level, pinned)


def _card(chain: Chain, leaf: int) -> tuple[CellCardState, str, str, bool]:
    cell = chain.bound_cell(leaf)
    if leaf in chain.holders:
        state = CellCardState.IN_USE
    elif chain.gone[0][leaf]:
        state = CellCardState.AWAY
    else:
        state = CellCardState.VISITED if chain.visitors[0][leaf] else CellCardState.FREE
    if cell is None:
        return state, "", "", False
    domain = chain.bound[cell]
    return state, domain.cluster, chain.spec.levels[cell[0]], domain.pinned is not None
