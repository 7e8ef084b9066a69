"""The typical mix: which requests are to be expected, given or learnt.

Fragmentation is free capacity that the expected requests cannot use, so it is only defined against a mix. As in
the paper the mix is the most popular shapes that together cover 95 % of the tasks, CPU-only shapes included,
and a shape there is CPU, devices, share and models; memory is a filter, not part of it. How much device memory work
with compute needs is kept beside: slices by memory alone must leave it that much.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.scheduling.placement.arrays import WHOLE_CARD_MILLI
from millpond.scheduling.placement.shapes import MEMORY_BY_SHARE, Shape

COVERAGE_PERCENT = 95
DRIFT_PERCENT = 10.0
_LEARNT_UNIT = 1_000
_EPOCH_HALF_LIVES = 8.0
MOST_SHAPES = 10_000
"""Shapes that are counted at a time; the lightest are forgotten first."""


@dataclass(frozen=True, slots=True)
class TypicalShape:
    """The part of a shape that fragmentation looks at, with its weight (a count)."""

    cpu_milli: int
    devices: int
    compute_milli: int
    model_mask: int
    weight: int


@dataclass(frozen=True, slots=True)
class TypicalMix:
    """Popular shapes, plus the demand that the bid price and the scarcity of models are computed from.

    ``slices``: count by compute_milli of all one-device requests below a whole card. ``demand_milli``: compute
    asked for in all, by the set of models that will do. ``needs_milli``: the same by what one card has to have free:
    compute, and device memory (``MEMORY_BY_SHARE``: the same part of it).
    """

    shapes: tuple[TypicalShape, ...] = ()
    slices: Mapping[int, int] = field(default_factory=dict)
    demand_milli: Mapping[int, int] = field(default_factory=dict)
    needs_milli: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def from_counts(cls, counts: Iterable[tuple[Shape, int]]) -> TypicalMix:
        """The mix of ``counts``: (shape, number of tasks), in any order, repeats added up."""
        merged: dict[tuple[int, int, int, int], int] = {}
        slices: dict[int, int] = {}
        demand: dict[int, int] = {}
        needs: dict[tuple[int, int], int] = {}
        for shape, count in counts:
            compute = shape.compute_milli if shape.devices else 0
            key = (shape.cpu_milli, compute, shape.devices, shape.model_mask if shape.devices else 0)
            merged[key] = merged.get(key, 0) + count
            if shape.devices == 1 and 0 < compute < WHOLE_CARD_MILLI:
                slices[compute] = slices.get(compute, 0) + count
            if compute:
                demand[shape.model_mask] = demand.get(shape.model_mask, 0) + count * shape.total_compute_milli
                need = (compute, MEMORY_BY_SHARE if shape.whole_cards else shape.device_memory_mib)
                needs[need] = needs.get(need, 0) + count * shape.total_compute_milli
        return cls(
            _most_popular(merged),
            dict(sorted(slices.items())),
            dict(sorted(demand.items())),
            dict(sorted(needs.items())),
        )


def _most_popular(merged: Mapping[tuple[int, int, int, int], int]) -> tuple[TypicalShape, ...]:
    total, covered = sum(merged.values()), 0
    popular: list[TypicalShape] = []
    for key, count in sorted(merged.items(), key=lambda item: (item[1], item[0]), reverse=True):
        if covered * 100 >= total * COVERAGE_PERCENT or count <= 0:
            break
        cpu, compute, devices, mask = key
        popular.append(TypicalShape(cpu, devices, compute, mask, count))
        covered += count
    return tuple(popular)


class LearntMix:
    """A mix learnt from what is submitted, forgetting with a half-life.

    ``observe`` counts; ``current`` is the mix that scores are built on. It is rebuilt when the shares have moved
    by more than ``DRIFT_PERCENT`` since the last build (half the sum of absolute differences), looked at every
    ``check_every`` observations. All state is plain data: ``snapshot`` and ``restore``.
    """

    def __init__(self, *, half_life_s: float = 7 * 86_400.0, check_every: int = 256) -> None:
        self.current = TypicalMix()
        self.half_life_s = half_life_s
        self.check_every = check_every
        # Counts grow in weight instead of decaying, so that one observation costs one addition: a task seen at t
        # weighs 2 ** ((t - epoch) / half-life).
        self._counts: dict[Shape, float] = {}
        self._built: dict[Shape, float] = {}
        self._epoch_s = 0.0
        self._updated_s = 0.0
        self._unchecked = 0

    def observe(self, shape: Shape, now_s: float, tasks: int = 1) -> bool:
        """Count ``tasks`` of ``shape`` submitted at ``now_s``; True if ``current`` was rebuilt."""
        self._updated_s = max(now_s, self._updated_s)
        if self._updated_s - self._epoch_s > _EPOCH_HALF_LIVES * self.half_life_s:
            self._start_epoch()
        self._counts[shape] = self._counts.get(shape, 0.0) + tasks * self._weight()
        self._unchecked += tasks
        if self._unchecked < self.check_every:
            return False
        self._unchecked = 0
        if len(self._counts) > MOST_SHAPES:
            heaviest = sorted(self._counts.items(), key=lambda item: (-item[1], _order(item[0])))
            self._counts = dict(heaviest[: MOST_SHAPES // 2])
        if self.drift() * 100.0 <= DRIFT_PERCENT:
            return False
        self.rebuild()
        return True

    def drift(self) -> float:
        """Total variation distance, 0..1, between the shares now and at the last build."""
        now, then = sum(self._counts.values()), sum(self._built.values())
        if now <= 0.0 or then <= 0.0:
            return 1.0
        shapes = self._counts.keys() | self._built.keys()
        return 0.5 * sum(
            abs(self._counts.get(shape, 0.0) / now - self._built.get(shape, 0.0) / then)
            for shape in sorted(shapes, key=_order)
        )

    def rebuild(self) -> TypicalMix:
        """Build ``current`` from the counts as they stand."""
        self._built = dict(self._counts)
        unit = _LEARNT_UNIT / self._weight()
        weighed = [(shape, round(count * unit)) for shape, count in self._counts.items()]
        self.current = TypicalMix.from_counts(weighed)
        return self.current

    def copy_from(self, other: LearntMix) -> None:
        """Have learnt the same."""
        self.current, self._counts, self._built = other.current, dict(other._counts), dict(other._built)
        self._epoch_s, self._updated_s, self._unchecked = other._epoch_s, other._updated_s, other._unchecked

    def snapshot(self) -> dict[str, Any]:
        """Everything that later decisions depend on, as plain data."""
        return {
            "counts": [[*_order(shape), count] for shape, count in self._counts.items()],
            "built": [[*_order(shape), count] for shape, count in self._built.items()],
            "epoch_s": self._epoch_s,
            "updated_s": self._updated_s,
            "unchecked": self._unchecked,
            "current": {
                "shapes": [
                    [shape.cpu_milli, shape.devices, shape.compute_milli, shape.model_mask, shape.weight]
                    for shape in self.current.shapes
                ],
                "slices": [[size, count] for size, count in self.current.slices.items()],
                "demand_milli": [[mask, milli] for mask, milli in self.current.demand_milli.items()],
                "needs_milli": [[*need, milli] for need, milli in self.current.needs_milli.items()],
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``snapshot``."""
        self._counts = {_shape_of(row): float(row[-1]) for row in state["counts"]}
        self._built = {_shape_of(row): float(row[-1]) for row in state["built"]}
        self._epoch_s = float(state["epoch_s"])
        self._updated_s = float(state["updated_s"])
        self._unchecked = int(state["unchecked"])
        current = state["current"]
        self.current = TypicalMix(
            tuple(TypicalShape(*row) for row in current["shapes"]),
            dict(current["slices"]),
            dict(current["demand_milli"]),
            {(compute, memory): milli for compute, memory, milli in current["needs_milli"]},
        )

    def _weight(self) -> float:
        return float(2.0 ** ((self._updated_s - self._epoch_s) / self.half_life_s))

    def _start_epoch(self) -> None:
        # The inverse of the weight, computed as a power below one: it may fall to zero, never overflow.
        scale = float(2.0 ** ((self._epoch_s - self._updated_s) / self.half_life_s))
        self._epoch_s = self._updated_s
        least = 0.5 / _LEARNT_UNIT
        self._counts = {shape: count * scale for shape, count in self._counts.items() if count * scale >= least}
        self._built = {shape: count * scale for shape, count in self._built.items()}


def _order(shape: Shape) -> tuple[Any, ...]:
    return (
        shape.cpu_milli, shape.memory_mib, shape.devices, shape.compute_milli, shape.limit_milli,
        shape.device_memory_mib, shape.model_mask, list(shape.extras), shape.pool,
    )  # fmt: skip


def _shape_of(row: list[Any]) -> Shape:
    cpu, memory, devices, compute, limit, device_memory, mask, extras, pool = row[:9]
    return Shape(cpu, memory, devices, compute, limit, device_memory, mask, tuple(extras), pool)
