"""The bodies of the REST API about cells: which hardware is bound to whose guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCardsInfo:
    """Cards of a machine that stand side by side and are alike.

    Attributes:
        state: ``in-use`` by work that is in a cell of its queue; ``visited`` by other work, which leaves when it is
            needed; ``away`` (broken, closed, or held by work that cannot leave); ``free``.
        queue: whose cell they are bound to; empty: to nobody's.
        level: of that cell.
        pinned: it is bound to these very cards.
    """

    cards: int
    state: str
    queue: str = ""
    level: str = ""
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellNodeInfo:
    """A machine with its cards in the order of the chain.

    Attributes:
        cards: their UUIDs, those of the first of the parts first.
    """

    name: str
    cards: list[str]
    parts: list[CellCardsInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOwedInfo:
    """How many cells of a level a queue is owed, and how many of them are bound to hardware: those in use, and pinned
    ones."""

    queue: str
    level: str
    pinned: bool
    owed: int
    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChainInfo:
    """Hardware of one kind as a tree of cells.

    Attributes:
        levels, sizes: from the single card up: their names, and how many cards a cell of each has.
        node_level: which level is one machine.
        nodes: its machines; those of a larger cell stand side by side.
    """

    name: str
    model: str
    levels: list[str]
    sizes: list[int]
    node_level: int
    nodes: list[CellNodeInfo]
    owed: list[CellOwedInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMapInfo:
    """All hardware by its kinds; none while no queue is owed cells."""

    chains: list[CellChainInfo] = field(default_factory=list)
