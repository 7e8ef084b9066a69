"""The figures of machines and cards for a Prometheus, as text: of a large pool they are most of the page.

Up to ``MOST_DEVICES`` cards, each has figures of its own. Beyond, the figures are those of machines, and only cards
that cannot be handed out are named, so that a page of thousands of machines has some megabytes at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from millpond.model.hardware.devices import DeviceHealth
from millpond.model.resources import CARD_MILLI
from millpond.specs.api.pool.nodes import DeviceInfo, DeviceStatus, NodeInfo

MOST_DEVICES: Final = 2_000
_MIB: Final = 2**20
_MILLI: Final = 1_000
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Use = Callable[[str], float | None]
"""How much of the last moment a card was computing, by its UUID, 0 to 1000; None where it does not tell."""


def node_metrics(nodes: Sequence[NodeInfo], use: Use) -> Iterator[str]:
    """What there is and what is free, machine by machine."""
    names = [_labels(node=node.name, pool=node.pool) for node in nodes]
    figures: tuple[tuple[str, str, Callable[[NodeInfo], float | None]], ...] = (
        ("schedulable", "Whether new work may start there", lambda node: node.schedulable),
        ("cpus", "CPUs that may be handed out", lambda node: node.cpu_capacity_milli / _MILLI),
        ("free_cpus", "Of them, those that are free", lambda node: node.free_cpu_milli / _MILLI),
        ("memory_bytes", "Memory", lambda node: node.memory_mib * _MIB),
        ("free_memory_bytes", "Of it, what is free", lambda node: node.free_memory_mib * _MIB),
        ("gpus", "Cards", lambda node: len(node.devices)),
        ("granted_gpus", "Cards and parts of cards that tasks hold", _granted),
        ("whole_free_gpus", "Whole cards that new work could take", _whole_free),
        ("faulty_gpus", "Cards that cannot be handed out", lambda node: sum(map(_is_faulty, node.devices))),
        ("use_ratio", "Part of the last moment in which its cards were computing", lambda node: _use_of(node, use)),
    )
    for name, text, figure in figures:
        yield _gauge(f"millpond_node_{name}", text, zip(names, map(figure, nodes), strict=True))


def device_metrics(devices: Sequence[DeviceStatus]) -> Iterator[str]:
    """All figures of each card."""
    names = [_device_labels(each.node, each) for each in devices]
    figures: tuple[tuple[str, str, Callable[[DeviceStatus], float | None]], ...] = (
        ("granted_ratio", "Part of its compute that tasks hold", _granted_part),
        ("healthy", "Whether it can be handed out", lambda each: each.health == DeviceHealth.OK),
        ("memory_bytes", "Its memory", lambda each: each.memory_mib * _MIB),
        ("use_ratio", "Part of the last moment in which it was computing", _sampled("use_milli", 1 / _MILLI)),
        ("memory_used_bytes", "Memory in use, by tasks and others", _sampled("memory_used_mib", _MIB)),
        ("power_watts", "Power that it draws", _sampled("power_w", 1)),
        ("temperature_celsius", "Its temperature", _sampled("temperature_c", 1)),
    )
    for name, text, figure in figures:
        yield _gauge(f"millpond_device_{name}", text, zip(names, map(figure, devices), strict=True))


def faulty_devices(nodes: Iterable[NodeInfo]) -> str:
    """The cards that cannot be handed out, where there are too many cards to name all."""
    faulty = [(node.name, each) for node in nodes for each in node.devices if _is_faulty(each)][:MOST_DEVICES]
    names = ((_device_labels(node, each), 0) for node, each in faulty)
    return _gauge("millpond_device_healthy", "Whether it can be handed out; only those that cannot", names)


def _granted(node: NodeInfo) -> float:
    return sum(CARD_MILLI - each.free_compute_milli for each in node.devices) / CARD_MILLI


def _whole_free(node: NodeInfo) -> float:
    free = (not each.holders and each.closure is None and not _is_faulty(each) for each in node.devices)
    return sum(free) if node.schedulable else 0


def _is_faulty(device: DeviceInfo) -> bool:
    return device.health != DeviceHealth.OK


def _use_of(node: NodeInfo, use: Use) -> float | None:
    known = [found for each in node.devices if (found := use(each.uuid)) is not None]
    return round(sum(known) / len(known) / _MILLI, 4) if known else None


def _granted_part(device: DeviceStatus) -> float:
    return sum(each.compute_milli for each in device.slices) / CARD_MILLI


def _sampled(field: str, unit: float) -> Callable[[DeviceStatus], float | None]:
    def of(device: DeviceStatus) -> float | None:
        value = None if device.latest is None else getattr(device.latest, field)
        return None if value is None else value * unit

    return of


def _device_labels(node: str, device: DeviceInfo | DeviceStatus) -> str:
    number = str(device.index) if device.instance is None else f"{device.index}.{device.instance}"
    return _labels(node=node, device=number, model=device.model, fake=str(device.fake).lower())


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def _gauge(name: str, text: str, values: Iterable[tuple[str, float | None]]) -> str:
    """A family in the text format of Prometheus; what is None is left out."""
    lines = [f"{name}{{{labels}}} {value + 0}" for labels, value in values if value is not None]
    return "\n".join([f"# HELP {name} {text}", f"# TYPE {name} gauge", *lines, ""])
