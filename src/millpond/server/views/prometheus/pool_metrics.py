"""Metrics of machines and of conspicuous cards for Prometheus, as text: in a large pool they are most of the page.

Up to ``MOST_DEVICES`` cards, each has figures of its own. Beyond, the figures are those of machines, and only cards
that somebody has to look after are named: those that cannot be handed out, and those that are hot. So a page of
thousands of machines has some megabytes at most. Cards that are held and idle are named in pools of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.resources import CARD_MILLI
from millpond.model.units import MIB
from millpond.node.devices.device_metrics import device_labels, family_text, gauge_text, labels_of, line_of
from millpond.scheduling.nodes.card_cordons import BY_HEALTH
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S
from millpond.specs.api.pool.nodes import DeviceInfo, NodeInfo

MOST_DEVICES: Final = 2_000
HOT_C: Final = 80
"""A card of a large pool has its temperature told from here on; alerts begin above."""
_MILLI: Final = 1_000

Samples = Mapping[str, DeviceSample]
"""The latest of each card that has one, by its UUID."""


class _Described(NamedTuple):
    """What is told of a machine until it is described anew: its line in each family, its faulty cards, and those that
    were closed for their faults."""

    node: NodeInfo
    labels: str
    lines: list[str]
    faulty: list[str]
    closed: list[str]


class NodeLines(NamedTuple):
    """What is told of a machine until its cards are sampled anew: their use and power, and which are hot."""

    of: _Described
    use: float | None
    power_w: float | None
    hot: Sequence[tuple[str, float]]


class KnownNodes:
    """What is told of all machines, made anew only for those that were described, or their cards sampled, since."""

    def __init__(self) -> None:
        self._described: dict[str, _Described] = {}
        self._samples: Samples = {}
        self._lines: dict[str, NodeLines] = {}

    def lines_of(self, nodes: Iterable[NodeInfo], samples: Samples) -> list[NodeLines]:
        """What is told of these machines.

        Args:
            samples: the object of before where there is no other sample.
        """
        described = {node.name: _described(node, self._described.get(node.name)) for node in nodes}
        before = self._lines if samples is self._samples else {}
        lines = {name: _sampled_lines(each, samples, before.get(name)) for name, each in described.items()}
        self._described, self._samples, self._lines = described, samples, lines
        return list(lines.values())


def _described(node: NodeInfo, before: _Described | None) -> _Described:
    if before is not None and before.node is node:
        return before
    labels = labels_of(node=node.name, pool=node.pool)
    lines = [line_of(f"millpond_node_{name}", labels, figure(node)) for name, _, figure in _NODE_FIGURES]
    faulty, closed = (
        [device_labels(node.name, each) for each in node.devices if is_so(each)]
        for is_so in (_is_faulty, _is_closed_for_faults)
    )
    return _Described(node, labels, lines, faulty, closed)


def _sampled_lines(of: _Described, samples: Samples, before: NodeLines | None) -> NodeLines:
    if before is not None and before.of is of:
        return before
    found = [(device, sample) for device in of.node.devices if (sample := samples.get(device.uuid)) is not None]
    uses = [each.use_milli for _, each in found if each.use_milli is not None]
    watts = [each.power_w for _, each in found if each.power_w is not None]
    degrees = [(device, each.temperature_c) for device, each in found]
    use = round(sum(uses) / len(uses) / _MILLI, 4) if uses else None
    hot = [(device_labels(of.node.name, device), at) for device, at in degrees if at is not None and at >= HOT_C]
    return NodeLines(of, use, round(sum(watts), 1) if watts else None, hot)


def node_metrics(nodes: Sequence[NodeLines]) -> Iterator[str]:
    """What there is and what is free, machine by machine."""
    for place, (name, text, _) in enumerate(_NODE_FIGURES):
        yield family_text(f"millpond_node_{name}", text, [each.of.lines[place] for each in nodes])
    text = "Part of the last moment in which its cards were computing"
    yield gauge_text("millpond_node_use_ratio", text, [(each.of.labels, each.use) for each in nodes])
    text = "Power that its cards draw"
    yield gauge_text("millpond_node_power_watts", text, [(each.of.labels, each.power_w) for each in nodes])


def conspicuous_devices(nodes: Iterable[NodeLines]) -> Iterator[str]:
    """Cards that have failed or are hot, where there are too many cards to name all."""
    faulty = [(labels, 0) for each in nodes for labels in each.of.faulty]
    text = "Whether it works; only those that have failed"
    yield gauge_text("millpond_device_healthy", text, faulty[:MOST_DEVICES])
    hot = sorted((named for each in nodes for named in each.hot), key=lambda named: -named[1])
    yield gauge_text("millpond_device_temperature_celsius", f"Its temperature, from {HOT_C} on", hot[:MOST_DEVICES])


def closed_devices(nodes: Iterable[NodeLines]) -> str:
    """Cards that were closed by themselves; they may answer again."""
    text = "Always 1; only those that were closed for their faults, until a person opens them"
    closed = [(labels, 1) for each in nodes for labels in each.of.closed]
    return gauge_text("millpond_device_closed_for_faults", text, closed[:MOST_DEVICES])


def idle_devices(nodes: Iterable[NodeInfo], idle_since: Mapping[str, float], now: float) -> str:
    """The cards that tasks have held for long without computing, those of the longest time first."""
    long = {uuid: now - since for uuid, since in idle_since.items() if now - since >= IDLE_AFTER_S}
    idle = [
        (device_labels(node.name, device), long[device.uuid])
        for node in (nodes if long else ())
        for device in node.devices
        if device.uuid in long
    ]
    idle.sort(key=lambda named: -named[1])
    text = f"For how long it has been held without computing, from {IDLE_AFTER_S:.0f} on"
    return gauge_text("millpond_device_held_idle_seconds", text, idle[:MOST_DEVICES])


def _granted(node: NodeInfo) -> float:
    return sum(CARD_MILLI - each.free_compute_milli for each in node.devices) / CARD_MILLI


def _whole_free(node: NodeInfo) -> float:
    free = (not each.holders and each.closure is None and each.health == DeviceHealth.OK for each in node.devices)
    return sum(free) if node.schedulable else 0


def _elsewhere(node: NodeInfo) -> float:
    return sum(each.health == DeviceHealth.BUSY_ELSEWHERE for each in node.devices)


def _is_faulty(device: DeviceInfo) -> bool:
    return device.health == DeviceHealth.FAULTY


def _is_closed_for_faults(device: DeviceInfo) -> bool:
    return device.closure is not None and device.closure.by == BY_HEALTH


_NODE_FIGURES: Final[tuple[tuple[str, str, Callable[[NodeInfo], float]], ...]] = (
    ("schedulable", "Whether new work may start there", lambda node: node.schedulable),
    ("cpus", "CPUs that may be handed out", lambda node: node.cpu_capacity_milli / _MILLI),
    ("free_cpus", "Of them, those that are free", lambda node: node.free_cpu_milli / _MILLI),
    ("memory_bytes", "Memory", lambda node: node.memory_mib * MIB),
    ("free_memory_bytes", "Of it, what is free", lambda node: node.free_memory_mib * MIB),
    ("gpus", "Cards", lambda node: len(node.devices)),
    ("granted_gpus", "Cards and parts of cards that tasks hold", _granted),
    ("whole_free_gpus", "Whole cards that new work could take", _whole_free),
    ("faulty_gpus", "Cards that have failed", lambda node: sum(map(_is_faulty, node.devices))),
    ("elsewhere_gpus", "Cards that others use, or that their driver wants left alone", _elsewhere),
)
"""Of each machine, by name, with what it is."""
