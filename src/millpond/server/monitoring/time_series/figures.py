"""Which figures are kept of which subject, and how several looks become one: pure functions.

A look is the figures of each series by its name, in the order of ``FIGURES``. Cards are whole cards and parts of them;
what is unknown is None.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final

from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.nodes.views import DeviceUse, NodeView
from millpond.scheduling.tenancy.queue_views import QueueStatus

Figures = tuple[float | None, ...]
Look = Mapping[str, Figures]

MOST_MODELS: Final = 32
MOST_NODES: Final = 128
"""So many nodes are one subject, with rows as those of models; more of them are kept in parts, with fewer rows."""
MOST_NODES_IN_PARTS: Final = 8_192
"""Of more nodes, those that joined first have figures of their own; those by model are kept in any case."""
_PARTS: Final = 32


class Subject(StrEnum):
    """What is looked at."""

    MODELS = "models"
    QUEUES = "queues"
    NODES = "nodes"


PARTS_OF_NODES: Final = tuple(f"{Subject.NODES}/{part}" for part in range(_PARTS))
"""The subjects of the nodes of a large pool: who reads one node reads a part of them."""

_OF_CARDS: Final = ("cards", "held", "unhealthy", "measured", "computing", "power_w", "temperature_c")
FIGURES: Final[Mapping[Subject, tuple[str, ...]]] = {
    Subject.MODELS: _OF_CARDS,
    Subject.NODES: _OF_CARDS,
    Subject.QUEUES: ("guaranteed", "used", "borrowed", "lent", "waiting_jobs", "waiting"),
}
"""``unhealthy`` counts faulty cards; ``computing`` counts cards by the part of the time in which they computed, of the
``measured`` ones alone; ``power_w`` is that of all cards together, ``temperature_c`` that of the hottest."""
_MAXIMA: Final = frozenset(("temperature_c",))

Samples = Callable[[str], Sequence[DeviceSample]]
"""The samples of a device since the look before, by its UUID."""


def part_of(node: str) -> str:
    """The part in which a node of a large pool is kept, by its name."""
    return PARTS_OF_NODES[zlib.crc32(node.encode()) % _PARTS]


def look_at_cards(nodes: Iterable[NodeView], samples: Samples) -> dict[str, Look]:
    """The cards of machines by model, and by node: all nodes together, or each part of them, empty ones too."""
    models: dict[str, list[DeviceUse]] = {}
    by_node: dict[str, list[DeviceUse]] = {}
    for view in nodes:
        by_node[view.node.name] = list(view.devices)
        for use in view.devices:
            models.setdefault(use.device.model, []).append(use)
    means = {use.device.uuid: _mean_sample(samples(use.device.uuid)) for uses in models.values() for use in uses}
    common = sorted(models, key=lambda model: -len(models[model]))[:MOST_MODELS]
    looks: dict[str, Look] = {Subject.MODELS: {model: _of_cards(models[model], means) for model in common}}
    own = {name: _of_cards(uses, means) for name, uses in islice(by_node.items(), MOST_NODES_IN_PARTS) if uses}
    if len(by_node) <= MOST_NODES:
        return looks | {Subject.NODES: own}
    parts: dict[str, dict[str, Figures]] = {part: {} for part in PARTS_OF_NODES}
    for name, figures in own.items():
        parts[part_of(name)][name] = figures
    return looks | parts


def look_at_queues(queues: Iterable[QueueStatus]) -> Look:
    """What queues are promised, hold and wait for; of cards without background work, which has no share in a queue."""
    return {each.queue.name: _of_queue(each) for each in queues}


def merged(figures: Sequence[str], looks: Sequence[tuple[int, Look]]) -> tuple[int, dict[str, Figures]]:
    """Several looks as one: means over those looks in which a series is known, of temperatures the highest.

    Args:
        figures: their names.
        looks: each with how many samples it stands for.

    Returns:
        How many samples they stand for together, and the figures.
    """
    if len(looks) == 1:
        return looks[0][0], dict(looks[0][1])
    rows: dict[str, list[tuple[int, Figures]]] = {}
    for count, look in looks:
        for name, values in look.items():
            rows.setdefault(name, []).append((count, values))
    together: dict[str, Figures] = {}
    for name, found in rows.items():
        counts = [count for count, _ in found]
        columns = zip(*(values for _, values in found), strict=True)
        together[name] = tuple(
            _highest(column) if figure in _MAXIMA else _mean(counts, column)
            for figure, column in zip(figures, columns, strict=True)
        )
    return sum(count for count, _ in looks), together


def _mean(counts: Sequence[int], values: Sequence[float | None]) -> float | None:
    known = [(count, value) for count, value in zip(counts, values, strict=True) if value is not None]
    weight = sum([count for count, _ in known])
    return round(sum([count * value for count, value in known]) / weight, 3) if weight else None


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _mean_sample(samples: Sequence[DeviceSample]) -> tuple[float | None, float | None, float | None]:
    """Use in milli and power as means, temperature as the highest."""
    use = [each.use_milli for each in samples if each.use_milli is not None]
    power = [each.power_w for each in samples if each.power_w is not None]
    temperature = [each.temperature_c for each in samples if each.temperature_c is not None]
    return (
        sum(use) / len(use) if use else None,
        sum(power) / len(power) if power else None,
        max(temperature) if temperature else None,
    )


def _of_cards(
    uses: Sequence[DeviceUse], means: Mapping[str, tuple[float | None, float | None, float | None]]
) -> Figures:
    sampled = [means[use.device.uuid] for use in uses]
    computing = [use for use, _, _ in sampled if use is not None]
    power = [power for _, power, _ in sampled if power is not None]
    temperatures = [temperature for _, _, temperature in sampled if temperature is not None]
    return (
        len(uses),
        round(sum(CARD_MILLI - use.compute_free_milli for use in uses) / CARD_MILLI, 3),
        sum(use.device.health is DeviceHealth.FAULTY for use in uses),
        len(computing),
        round(sum(computing) / CARD_MILLI, 3) if computing else None,
        round(sum(power), 1) if power else None,
        max(temperatures) if temperatures else None,
    )


def _of_queue(status: QueueStatus) -> Figures:
    share, work = status.share, status.work
    return (
        share.guaranteed / CARD_MILLI,
        share.used / CARD_MILLI,
        share.borrowed / CARD_MILLI if status.has_guarantee else None,
        share.lent / CARD_MILLI if status.has_guarantee else None,
        work.waiting,
        (work.asked_milli - work.background_asked_milli) / CARD_MILLI,
    )
