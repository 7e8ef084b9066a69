"""Figures of devices and their slices in the text format of Prometheus, for all that have some to tell.

The server tells those of the pool, the agent of a node those of its own cards: names, labels and units are from here
alone. Names and units follow https://prometheus.io/docs/practices/naming/: base units, ratios from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.resources import CARD_MILLI
from millpond.model.units import MIB
from millpond.specs.api.pool.nodes import DeviceInfo, DeviceStatus, SamplePoint, SliceStatus

MOST_SLICES: Final = 2_000
_MILLI: Final = 1_000
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class SliceFigures:
    """What a task holds of a device of its node, and what it makes of it; None is unknown."""

    compute_milli: int
    memory_mib: int
    use_milli: int | None = None
    memory_used_mib: int | None = None


MeasuredSlice = SliceFigures | SliceStatus


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """A device of a node, how it fares, and who holds what of it; ``latest`` is None where nothing was sampled lately.

    What a node says of its own devices: the server has more to say of each (``DeviceStatus``).
    """

    node: str
    index: int
    instance: int | None
    model: str
    fake: bool
    memory_mib: int
    health: str
    latest: DeviceSample | None
    slices: Sequence[MeasuredSlice]


MeasuredDevice = DeviceFigures | DeviceStatus


def device_metrics(devices: Sequence[MeasuredDevice]) -> Iterator[str]:
    """All figures of each card."""
    names = [device_labels(each.node, each) for each in devices]
    for name, text, figure in _DEVICE_FIGURES:
        yield gauge_text(f"millpond_device_{name}", text, zip(names, map(figure, devices), strict=True))


def slice_metrics(devices: Sequence[MeasuredDevice]) -> Iterator[str]:
    """What the tasks that share cards hold and use of them; a card that one task has whole has its own figures."""
    slices = [
        (f'{device_labels(device.node, device)},slice="{number}"', part)
        for device in devices
        for number, part in enumerate(device.slices)
        if part.compute_milli < CARD_MILLI
    ][:MOST_SLICES]
    for name, text, figure in _SLICE_FIGURES:
        yield gauge_text(f"millpond_slice_{name}", text, ((labels, figure(part)) for labels, part in slices))


def device_labels(node: str, device: MeasuredDevice | DeviceInfo) -> str:
    """The labels of a device."""
    number = str(device.index) if device.instance is None else f"{device.index}.{device.instance}"
    return labels_of(node=node, device=number, model=device.model, fake=str(device.fake).lower())


def labels_of(**labels: str) -> str:
    """Labels as they stand between the braces of a line."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def gauge_text(name: str, text: str, values: Iterable[tuple[str, float | None]]) -> str:
    """A family of current values, each behind its labels; what is None is left out."""
    return family_text(name, text, (line_of(name, labels, value) for labels, value in values if value is not None))


def family_text(name: str, text: str, lines: Iterable[str]) -> str:
    """A family of lines that are made already."""
    return "\n".join([f"# HELP {name} {text}", f"# TYPE {name} gauge", *lines, ""])


def line_of(name: str, labels: str, value: float) -> str:
    """One value."""
    return f"{name}{{{labels}}} {value + 0}"


def _granted_part(device: MeasuredDevice) -> float:
    return sum(each.compute_milli for each in device.slices) / CARD_MILLI


def _sampled(field: str, unit: float) -> Callable[[MeasuredDevice], float | None]:
    return lambda device: None if device.latest is None else _scaled(device.latest, field, unit)


def _measured(field: str, unit: float) -> Callable[[MeasuredSlice], float | None]:
    return lambda part: _scaled(part, field, unit)


def _scaled(of: DeviceSample | SamplePoint | MeasuredSlice, field: str, unit: float) -> float | None:
    """None: nothing measures it."""
    value = getattr(of, field)
    return None if value is None else value * unit


_DEVICE_FIGURES: Final[tuple[tuple[str, str, Callable[[MeasuredDevice], float | None]], ...]] = (
    ("granted_ratio", "Part of its compute that tasks hold", _granted_part),
    ("healthy", "Whether it works; 0: it has failed", lambda each: each.health != DeviceHealth.FAULTY),
    ("memory_bytes", "Its memory", lambda each: each.memory_mib * MIB),
    ("use_ratio", "Part of the last moment in which it was computing", _sampled("use_milli", 1 / _MILLI)),
    (
        "sm_activity_ratio",
        "Part of the last ten seconds in which its multiprocessors worked",
        _sampled("sm_milli", 1 / _MILLI),
    ),
    ("tensor_activity_ratio", "The same of its tensor cores", _sampled("tensor_milli", 1 / _MILLI)),
    ("memory_used_bytes", "Memory in use, by tasks and others", _sampled("memory_used_mib", MIB)),
    ("power_watts", "Power that it draws", _sampled("power_w", 1)),
    ("temperature_celsius", "Its temperature", _sampled("temperature_c", 1)),
)
_SLICE_FIGURES: Final[tuple[tuple[str, str, Callable[[MeasuredSlice], float | None]], ...]] = (
    ("granted_ratio", "Part of a card's compute that a task holds", lambda part: part.compute_milli / CARD_MILLI),
    ("memory_bytes", "Memory of the card that it holds", lambda part: part.memory_mib * MIB),
    ("use_ratio", "Part of the last seconds in which its work was on the card", _measured("use_milli", 1 / _MILLI)),
    ("memory_used_bytes", "Memory of the card that it uses", _measured("memory_used_mib", MIB)),
)
