"""Pretended GPUs, for trying Millpond without any: ``4x8:V100-32GB`` is four nodes of eight V100 with 32 GiB each.

The nodes they sit in are pretended too, CPU and memory included. A real machine divided by four would leave half a core
per node on a laptop, and no job file written for a GPU server would fit; pretended hosts of the size such cards really
come with let the same files be tried. What runs on them runs on the one real machine, which is then over-committed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from millpond.model.devices import Device
from millpond.model.errors import InvalidInputError
from millpond.model.nodes import Node
from millpond.node.devices.vendor import NOTHING_OURS, Availability, Ours

VENDOR = "fake"
VISIBLE_FAKES = "MILLPOND_FAKE_DEVICES"

CPU_MILLI_PER_CARD = 16_000
MEMORY_MIB_PER_CARD = 128 * 1024
"""Between a DGX-1 (10 threads and 64 GiB per card) and a DGX A100 (32 threads and 128 GiB per card)."""

_MOST_DEVICES = 65_536
_CARDS_PER_SWITCH = 2
_BOARD_CARDS = 8
_BOARDS = {
    "V100": "v100-cube-mesh",
    "A100": "nvswitch-8",
    "H100": "nvswitch-8",
    "H200": "nvswitch-8",
    "B200": "nvswitch-8",
}
_FORM = re.compile(r"(?:(?P<nodes>\d+)x)?(?P<cards>\d+):(?P<model>[A-Za-z0-9][\w.-]*?)-(?P<gib>\d+)Gi?B", re.ASCII)
_REMEDY = "write NODESxCARDS:MODEL-MEMORY, such as 4x8:V100-32GB or 8:A100-80GB, several joined by commas"


@dataclass(frozen=True, slots=True)
class FakeGroup:
    """Some like nodes of pretended cards."""

    nodes: int
    cards: int
    model: str
    memory_mib: int


def parse_fake_gpus(text: str) -> tuple[FakeGroup, ...]:
    """What ``--fake-gpus`` asks for.

    Raises:
        InvalidInputError: the text has another form, or asks for none or for absurdly many.
    """
    groups = tuple(_group(part.strip(), text) for part in text.split(","))
    total = sum(group.nodes * group.cards for group in groups)
    if total > _MOST_DEVICES:
        raise InvalidInputError(f"{total} fake GPUs in {text!r}", f"ask for at most {_MOST_DEVICES}")
    return groups


def fake_nodes(text: str) -> tuple[Node, ...]:
    """The pretended nodes ``fake-1``, ``fake-2``, … of a ``--fake-gpus`` text."""
    groups = [group for group in parse_fake_gpus(text) for _ in range(group.nodes)]
    return tuple(_node(f"fake-{number}", group) for number, group in enumerate(groups, start=1))


class FakeVendor:
    """The vendor of pretended cards: always there, never busy, nothing for CUDA to see."""

    name = VENDOR

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._devices = tuple(device for node in nodes for device in node.devices)

    def available(self) -> Availability:
        """Pretended cards are there when asked for."""
        return Availability(bool(self._devices), f"{len(self._devices)} pretended")

    def discover(self, ours: Ours = NOTHING_OURS) -> tuple[Device, ...]:
        """The cards of all pretended nodes."""
        return self._devices

    def use_milli(self, devices: Collection[str]) -> dict[str, int]:
        """Pretended cards do nothing, and cannot tell what they would have done."""
        return {}

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Names the cards to the program and hides any real ones from it."""
        return {"CUDA_VISIBLE_DEVICES": "", VISIBLE_FAKES: ",".join(device.uuid for device in devices)}


def _group(part: str, text: str) -> FakeGroup:
    match = _FORM.fullmatch(part)
    if match is None:
        if re.fullmatch(r"(\d+x)?\d+:[\w.-]+", part):
            raise InvalidInputError(f"fake GPUs {part!r} lack the card's memory", f"add it, as in {part}-32GB")
        where = f" in {text!r}" if part != text else ""
        raise InvalidInputError(f"fake GPUs {part!r}{where} cannot be read", _REMEDY)
    nodes, cards, gib = int(match["nodes"] or 1), int(match["cards"]), int(match["gib"])
    for what, count in (("nodes", nodes), ("cards", cards), ("GiB per card", gib)):
        if count == 0:
            raise InvalidInputError(f"0 {what} in fake GPUs {part!r}", "ask for at least 1")
    return FakeGroup(nodes, cards, match["model"], gib * 1024)


def _node(name: str, group: FakeGroup) -> Node:
    devices = tuple(
        Device(
            uuid=f"FAKE-{name}-{index}",
            index=index,
            vendor=VENDOR,
            model=group.model,
            memory_mib=group.memory_mib,
            switch=index // _CARDS_PER_SWITCH,
            socket=index * 2 // group.cards if group.cards > _CARDS_PER_SWITCH else 0,
            fake=True,
        )
        for index in range(group.cards)
    )
    return Node(
        name=name,
        cpu_milli=group.cards * CPU_MILLI_PER_CARD,
        memory_mib=group.cards * MEMORY_MIB_PER_CARD,
        devices=devices,
        link_map=_BOARDS.get(group.model, "") if group.cards == _BOARD_CARDS else "",
    )
