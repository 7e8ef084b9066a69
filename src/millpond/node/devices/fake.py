"""Pretended GPUs, for trying Millpond without any: ``4x8:V100-32GB`` is four nodes of eight V100 with 32 GiB each.

The nodes they sit in are pretended too, CPU and memory included. A real machine divided by four would leave half a core
per node on a laptop, and no job file written for a GPU server would fit; pretended hosts of the size such cards really
come with let the same files be tried. What runs on them runs on the one real machine, which is then over-committed.

What a card draws is a model: ``P = bare + context + (limit - bare - context) * use``. A card with a context on it draws
more than a bare one even when nothing computes, by 26 to 50 W whatever the memory held ("arXiv 2605.23918"). Limits are
the vendor's for the usual board; the bare figures are what such boards are commonly seen to draw, and meant for trying
things out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.devices import SWAP_SHARE, Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.power import PowerLimits
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.fake_layouts import FakeDivider
from millpond.node.devices.vendor import (
    NO_PROCESSES,
    Availability,
    CardDivider,
    DeviceVendor,
    OwnProcesses,
    PowerControl,
)

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


def fake_nodes(text: str, swap_mib: int | None = None) -> tuple[Node, ...]:
    """The pretended nodes ``fake-1``, ``fake-2``, … of a ``--fake-gpus`` text.

    Args:
        swap_mib: host memory of each for swapped work; by default a part of what it has.
    """
    groups = [group for group in parse_fake_gpus(text) for _ in range(group.nodes)]
    return tuple(_node(f"fake-{number}", group, swap_mib) for number, group in enumerate(groups, start=1))


@dataclass(frozen=True, slots=True)
class CardPower:
    """One model of card, in watts."""

    bare_w: float
    context_w: float
    limit_w: float

    def draw_w(self, use_milli: int, occupied: bool) -> float:
        """What it draws at a use of 0 to 1000; ``occupied``: a process has a context on it."""
        idle = self.bare_w + (self.context_w if occupied else 0.0)
        return idle + (self.limit_w - idle) * use_milli / 1000


_MOST_MHZ: Final = 1980
_MODELS: Final = {
    "V100": CardPower(33.0, 26.0, 300.0),
    "A100": CardPower(52.0, 30.0, 400.0),
    "H100": CardPower(68.0, 40.0, 700.0),
    "H200": CardPower(74.0, 40.0, 700.0),
}
_OTHERS: Final = CardPower(20.0, 26.0, 250.0)


def power_of(model: str) -> CardPower:
    """The figures of a model; of one that is not known, those of a middling card."""
    return _MODELS.get(model, _OTHERS)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Pretended work on a pretended card.

    Attributes:
        compute_milli: what it computes with; 0 while it is frozen.
        memory_mib: what it holds; 0 while it is swapped.
    """

    device: str
    compute_milli: int
    memory_mib: int


class FakeVendor(DeviceVendor):
    """The vendor of pretended cards: always there, nothing for CUDA to see, as busy as the work on them pretends.

    Args:
        nodes: whose cards these are.
        clock: seconds; what the cards have drawn is summed up along it.

    Attributes:
        tenants: gives the work on the cards now.
    """

    name = VENDOR
    title = "pretended"
    experimental = False
    sample_every_s = 1.0

    def __init__(self, nodes: Sequence[Node], clock: Callable[[], float] = time.monotonic) -> None:
        self._cards = {device.uuid: device for node in nodes for device in node.devices}
        self._divider: FakeDivider | None = None
        self._clock = clock
        self.tenants: Callable[[], Iterable[Tenant]] = tuple
        self._sampled_at: float | None = None
        self._energy_j = dict.fromkeys(self._cards, 0.0)
        self._knobs = FakePowerControl({uuid: device.model for uuid, device in self._cards.items()})

    def available(self) -> Availability:
        """Pretended cards are there when asked for."""
        return Availability(bool(self._cards), f"{len(self._cards)} pretended")

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        """The cards of all pretended nodes, or what they are divided into."""
        return tuple(self._devices.values())

    def switch_mig_on(self, cards: Collection[str], file: Path) -> None:
        """Put these cards into MIG mode; what they are divided into is kept in the file."""
        whole = {uuid: self._cards[uuid] for uuid in cards}
        self._divider = FakeDivider(whole, file, lambda device: any(each.device == device for each in self.tenants()))

    def devices_of(self, node: Node) -> tuple[Device, ...]:
        """What there is now of the cards of a node."""
        cards = {device.card for device in node.devices}
        return tuple(device for device in self._devices.values() if device.card in cards)

    def divider(self) -> CardDivider | None:
        """Of cards in MIG mode."""
        return self._divider

    def sample(self) -> tuple[DeviceSample, ...]:
        """As the tenants pretend: a card computes with what all of them compute with, and draws accordingly."""
        now = self._clock()
        elapsed_s = 0.0 if self._sampled_at is None else now - self._sampled_at
        self._sampled_at = now
        devices = self._devices
        computing = dict.fromkeys(devices, 0)
        held: dict[str, int] = {}
        for tenant in self.tenants():
            if tenant.device in computing:
                computing[tenant.device] += tenant.compute_milli
                held[tenant.device] = held.get(tenant.device, 0) + tenant.memory_mib
        return tuple(
            self._sample(device, min(computing[uuid], 1000), min(held.get(uuid, 0), device.memory_mib), elapsed_s)
            for uuid, device in devices.items()
        )

    @property
    def _devices(self) -> dict[str, Device]:
        """What there is now, by UUID."""
        if self._divider is None:
            return self._cards
        cut = self._divider.devices
        return {device.uuid: device for uuid, card in self._cards.items() for device in cut.get(uuid, (card,))}

    def swaps(self) -> bool:
        """Pretended memory moves on paper."""
        return True

    def remaps(self) -> bool:
        """Anywhere, on paper."""
        return True

    def power(self) -> PowerControl | None:
        """Pretended knobs; a cap shows in what a card draws."""
        return self._knobs

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Names the cards to the program and hides any real ones from it."""
        return {"CUDA_VISIBLE_DEVICES": "", VISIBLE_FAKES: ",".join(device.uuid for device in devices)}

    def _sample(self, device: Device, use_milli: int, held_mib: int, elapsed_s: float) -> DeviceSample:
        if device.parent:  # its card reports power, an instance does not
            return DeviceSample(device.uuid, use_milli, held_mib, device.memory_mib)
        demand_w = power_of(device.model).draw_w(use_milli, occupied=held_mib > 0)
        power_w = min(demand_w, self._knobs.caps_w[device.uuid])
        self._energy_j[device.uuid] += power_w * elapsed_s
        return DeviceSample(
            device.uuid,
            use_milli=use_milli,
            memory_used_mib=held_mib if device.memory_mib else None,
            memory_mib=device.memory_mib or None,
            power_w=round(power_w, 1),
            energy_j=round(self._energy_j[device.uuid], 1),
        )


class FakePowerControl:
    """Caps and clocks of pretended cards (``vendor.PowerControl``).

    Args:
        models: of the cards, by UUID.

    Attributes:
        caps_w, clocks_mhz: what was set; a clock only while one is.
    """

    def __init__(self, models: Mapping[str, str]) -> None:
        self._models = models
        self.caps_w = {uuid: power_of(model).limit_w for uuid, model in models.items()}
        self.clocks_mhz: dict[str, int] = {}

    def limits(self, device: str) -> PowerLimits | None:
        """Half of the usual board's limit at the least; an instance of a card has none."""
        if device not in self._models:
            return None
        most_w = power_of(self._models[device]).limit_w
        return PowerLimits(self.caps_w[device], most_w / 2, most_w, _MOST_MHZ)

    def cap(self, device: str, watts: float) -> None:
        """Let a card draw so much at the most."""
        self.caps_w[device] = watts

    def clock(self, device: str, megahertz: int | None) -> None:
        """Pretend that a card is clocked so high at the most."""
        if megahertz is None:
            self.clocks_mhz.pop(device, None)
        else:
            self.clocks_mhz[device] = megahertz


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


def _node(name: str, group: FakeGroup, swap_mib: int | None) -> Node:
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
            remaps=True,
        )
        for index in range(group.cards)
    )
    memory_mib = group.cards * MEMORY_MIB_PER_CARD
    return Node(
        name=name,
        cpu_milli=group.cards * CPU_MILLI_PER_CARD,
        memory_mib=memory_mib,
        devices=devices,
        link_map=_BOARDS.get(group.model, "") if group.cards == _BOARD_CARDS else "",
        swap_mib=memory_mib // SWAP_SHARE if swap_mib is None else swap_mib,
    )
