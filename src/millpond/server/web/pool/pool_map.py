"""The pool as a map: each card with its slices where there are few machines, each machine where there are thousands.

Machines that are cells stand in blocks, those of a rack or as many as a page of the list of machines has, and a block
leads to its page of that list.

A map is coloured by one of three questions: how much is used, by whom, and whether it is well. What it shows are words
that a style sheet gives colours; an answer never depends on the colour alone, as each cell has a text too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from millpond.model.amounts import milli_text
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.resources import CARD_MILLI
from millpond.model.states import TaskState
from millpond.server.phrases.phrasebook import BETWEEN
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.pool.nodes import DeviceInfo, NodeInfo, SliceInfo

MOST_IN_DETAIL: Final = 64
"""Machines of which each card is drawn."""
NODES_IN_A_BLOCK: Final = 100
"""As many as a page of the list of machines has."""
OWNERS_SHOWN: Final = 7
"""Users with a colour of their own, those who hold most; all others share one."""

_LOOKS: Final = {DeviceHealth.FAULTY.value: "bad", DeviceHealth.BUSY_ELSEWHERE.value: "foreign"}
"""Of cards that are not handed out, the worst first."""
_RESTING: Final = {TaskState.FROZEN.value: "frozen", TaskState.SWAPPED.value: "swapped to host memory"}
"""What is said of work that does not compute."""

_amount_text: Final = lru_cache(1_000)(milli_text)
"""Thousands of machines hold a few amounts."""

Find = Callable[[str], JobInfo | None]


class Colouring(StrEnum):
    """What the colours of a map mean."""

    USE = "use"
    OWNER = "owner"
    HEALTH = "health"


@dataclass(frozen=True, slots=True)
class MapPart:
    """A part of a card, from left to right.

    Attributes:
        begin, width: in milli of the card.
        look: a word for the style sheet.
    """

    begin: int
    width: int
    look: str


@dataclass(frozen=True, slots=True)
class MapCard:
    """A card.

    Attributes:
        text: what it is and holds, in words.
        job: the one job that holds it and may be shown; empty: none, or several.
    """

    text: str
    parts: tuple[MapPart, ...]
    job: str


class MapCell(NamedTuple):
    """A machine with all its cards: a tuple, as there are thousands of them.

    Attributes:
        look: a word for the style sheet.
        text: what it is and holds, in words.
    """

    look: str
    text: str


@dataclass(frozen=True, slots=True)
class MapNode:
    """A machine of which each card is drawn."""

    name: str
    is_open: bool
    cards: tuple[MapCard, ...]


@dataclass(frozen=True, slots=True)
class MapBlock:
    """Machines of a group that stand together, as cells.

    Attributes:
        rack: that of all of them; empty: they are of a group in which not each machine has one.
        page: of the list of those of the group, and of the rack where that is not empty, on which they stand.
        first, last: names.
        broken: machines with a faulty card.
        elsewhere: further machines with a card that others use.
        closed: further machines that are closed.
    """

    rack: str
    page: int
    first: str
    last: str
    held_milli: int
    cards: int
    broken: int
    elsewhere: int
    closed: int
    cells: list[MapCell]


@dataclass(frozen=True, slots=True)
class MapGroup:
    """Machines of one pool and kind: ``nodes`` where each card is drawn, otherwise ``blocks``."""

    pool: str
    kind: str
    machines: int
    cards: int
    nodes: list[MapNode] = field(default_factory=list)
    blocks: list[MapBlock] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The pool and the kind, for people."""
        return " · ".join(filter(None, (self.pool, self.kind)))


@dataclass(frozen=True, slots=True)
class PoolMap:
    """A whole map.

    Attributes:
        owners: who has which colour: the word for it, the name, and what they hold in milli.
    """

    colouring: Colouring
    groups: list[MapGroup]
    owners: list[tuple[str, str, int]]


def map_of(nodes: list[NodeInfo], colouring: Colouring, find: Find) -> PoolMap:
    """The map of these machines.

    Args:
        find: gives a living job by its id; None of those that are not for the reader.
    """
    owners = _looks_of_owners(nodes, find) if colouring is Colouring.OWNER else {}
    painter = _Painter(colouring, owners, find)
    alike: dict[tuple[str, str], list[NodeInfo]] = {}
    for node in nodes:
        alike.setdefault((node.pool, kind_of(node)), []).append(node)
    is_detailed = len(nodes) <= MOST_IN_DETAIL
    groups = [
        MapGroup(
            pool,
            kind,
            len(group),
            sum(len(node.devices) for node in group),
            nodes=[painter.node(node) for node in group] if is_detailed else [],
            blocks=[] if is_detailed else painter.blocks(group),
        )
        for (pool, kind), group in alike.items()
    ]
    return PoolMap(colouring, groups, painter.owners() if colouring is Colouring.OWNER else [])


def kind_of(node: NodeInfo) -> str:
    """Which cards a machine has, in words; empty where it has none."""
    return _kind(tuple([device.model for device in node.devices]))


@lru_cache(1_000)  # there are thousands of machines and a few kinds of them
def _kind(models: tuple[str, ...]) -> str:
    return " + ".join(f"{count} x {model}" for model, count in Counter(models).most_common())


def card_number(device: DeviceInfo) -> str:
    """By which a card is known on its machine; a part that the hardware cut out of card 3 is ``3.1``."""
    return f"{device.index}{'' if device.instance is None else f'.{device.instance}'}"


def _looks_of_owners(nodes: Iterable[NodeInfo], find: Find) -> dict[str, tuple[str, int]]:
    """Of each user the word for their colour, and how much they hold in milli; most first."""
    held: Counter[str] = Counter()
    for node in nodes:
        for device in node.devices:
            for each in device.slices:
                held[_owner(each.job, find)] += each.compute_milli
    return {
        user: (f"o{min(place, OWNERS_SHOWN + 1)}", milli)
        for place, (user, milli) in enumerate(held.most_common(), start=1)
    }


def _owner(job: str, find: Find) -> str:
    info = find(job)
    return "" if info is None else info.user


class _Painter:
    def __init__(self, colouring: Colouring, owners: dict[str, tuple[str, int]], find: Find) -> None:
        self._colouring = colouring
        self._owners = owners
        self._find = find

    def owners(self) -> list[tuple[str, str, int]]:
        """The legend: those with a colour of their own, then all others as one."""
        listed = [(look, user, milli) for user, (look, milli) in self._owners.items()]
        rest = sum(milli for _, _, milli in listed[OWNERS_SHOWN:])
        return listed[:OWNERS_SHOWN] + ([(f"o{OWNERS_SHOWN + 1}", "…", rest)] if rest else [])

    def node(self, node: NodeInfo) -> MapNode:
        """A machine, card by card."""
        return MapNode(node.name, node.schedulable, tuple(self._card(node, device) for device in node.devices))

    def blocks(self, group: list[NodeInfo]) -> list[MapBlock]:
        """Machines of one group as cells: by racks where each has one."""
        racks: dict[str, list[NodeInfo]] = {}
        has_racks = all(node.rack for node in group)
        for node in group:
            racks.setdefault(node.rack if has_racks else "", []).append(node)
        return [
            self._block(rack, begin // NODES_IN_A_BLOCK + 1, nodes[begin : begin + NODES_IN_A_BLOCK])
            for rack, nodes in racks.items()
            for begin in range(0, len(nodes), NODES_IN_A_BLOCK)
        ]

    def _block(self, rack: str, page: int, nodes: list[NodeInfo]) -> MapBlock:
        held = [_held_milli(node) for node in nodes]
        health = [_look_of_health(node) for node in nodes]
        looks = Counter(health)
        return MapBlock(
            rack,
            page,
            nodes[0].name,
            nodes[-1].name,
            held_milli=sum(held),
            cards=sum(len(node.devices) for node in nodes),
            broken=looks["bad"],
            elsewhere=looks["foreign"],
            closed=looks["closed"],
            cells=list(map(self._cell, nodes, held, health)),
        )

    def _cell(self, node: NodeInfo, held: int, health: str) -> MapCell:
        """A machine as one cell.

        Args:
            held: of its cards, in milli.
            health: the look of its health.
        """
        cards = len(node.devices)
        text = f"{node.name}: {_amount_text(held)}/{cards}"
        if self._colouring is Colouring.HEALTH or (health != "ok" and not held):  # nothing of it is free
            return MapCell(health, text)
        if self._colouring is Colouring.OWNER:
            holders: Counter[str] = Counter()
            for device in node.devices:
                for each in device.slices:
                    holders[_owner(each.job, self._find)] += each.compute_milli
            look = self._owners[holders.most_common(1)[0][0]][0] if holders else "free"
        else:
            look = f"u{-(-4 * held // (CARD_MILLI * cards)) if cards else 0}"
        return MapCell(look, text)

    def _card(self, node: NodeInfo, device: DeviceInfo) -> MapCard:
        name = f"{node.name}/{card_number(device)}"
        held = CARD_MILLI - device.free_compute_milli
        names = [f"{each.job} ({milli_text(each.compute_milli)})" for each in device.slices]
        health = "" if device.health == DeviceHealth.OK else _with_reason(device.health, device.health_detail)
        closed = "" if device.closure is None else _with_reason("closed", device.closure.reason)
        holding = f"{name} {device.model}: {milli_text(held)}{': ' + ', '.join(names) if names else ''}"
        rests = [f"{_RESTING[each.state]} ({each.job})" for each in device.slices if each.state in _RESTING]
        text = BETWEEN.join(filter(None, (holding, *rests, health, closed)))
        known = {each.job for each in device.slices if self._find(each.job) is not None}
        job = next(iter(known)) if len(known) == 1 else ""
        is_shut = bool(closed) or not node.schedulable
        if self._colouring is Colouring.HEALTH or health or (is_shut and not held and not device.slices):
            look = _LOOKS[device.health] if health else "closed" if is_shut else "ok"
            return MapCard(text, (MapPart(0, CARD_MILLI, look),), job)
        slices = sorted(device.slices, key=lambda part: part.state in _RESTING)  # which may be over what computes
        wanted = [(each.compute_milli or 20, self._look(each)) for each in slices]  # one of memory alone is seen too
        computing = [each.compute_milli for each in slices if each.state not in _RESTING]
        wanted.insert(len(computing), (held - sum(computing), "coming"))  # of a job whose tasks were not there yet
        parts, begin = [], 0
        for milli, look in wanted:
            if (width := min(milli, CARD_MILLI - begin)) > 0:
                parts.append(MapPart(begin, width, look))
                begin += width
        return MapCard(text, tuple(parts), job)

    def _look(self, part: SliceInfo) -> str:
        if self._colouring is Colouring.OWNER:
            return self._owners[_owner(part.job, self._find)][0]
        return "held" if part.state == "running" else "resting" if part.state in _RESTING else "coming"


def _held_milli(node: NodeInfo) -> int:
    return CARD_MILLI * len(node.devices) - sum([device.free_compute_milli for device in node.devices])


def _look_of_health(node: NodeInfo) -> str:
    found = {device.health for device in node.devices}
    for health, look in _LOOKS.items():
        if health in found:
            return look
    return "ok" if node.schedulable else "closed"


def _with_reason(state: str, reason: str) -> str:
    return f"{state} ({reason})" if reason else state
