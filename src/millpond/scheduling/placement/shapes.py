"""What one task asks of one node, as a hashable value and as the vector that kernels read.

Tasks with equal shapes are one class to the scheduler: they share a cached score per node and one reason
for waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from millpond.scheduling.placement.arrays import WHOLE_CARD_MILLI, Int64Array

ANY_MODEL = (1 << 63) - 1
ANY_POOL = -1
NO_POOL = (1 << 62) - 1
"""That of what no node takes."""
MEMORY_BY_SHARE = -1
LIMIT_IS_COMPUTE = 0

# Positions in the vector of a shape.
SHAPE_CPU, SHAPE_MEMORY, SHAPE_DEVICES, SHAPE_COMPUTE, SHAPE_LIMIT = range(5)
SHAPE_DEVICE_MEMORY, SHAPE_MODELS, SHAPE_POOL = range(5, 8)
FIRST_SHAPE_EXTRA = 8


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Shape:
    """One task's request.

    ``compute_milli`` and ``limit_milli`` are per device: guaranteed and at most (by default the same). Below
    1000 only one device may be asked; 0 is a slice by memory alone. ``device_memory_mib`` is per device;
    ``MEMORY_BY_SHARE`` asks for floor(capacity * compute / 1000). A whole card always takes all memory of the
    card; a figure given with it is the least the card must have. ``model_mask`` has bit m set if device model m
    will do. ``extras`` follows the cluster's order of named resources; missing entries are 0.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    devices: int = 0
    compute_milli: int = WHOLE_CARD_MILLI
    limit_milli: int = LIMIT_IS_COMPUTE
    device_memory_mib: int = MEMORY_BY_SHARE
    model_mask: int = ANY_MODEL
    extras: tuple[int, ...] = ()
    pool: int = ANY_POOL
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    _vector: Int64Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.devices, *self.extras) < 0:
            raise ValueError("a shape asks for no negative amounts")
        if not 0 <= self.compute_milli <= WHOLE_CARD_MILLI:
            raise ValueError(f"compute_milli is 0..1000 per device, not {self.compute_milli}")
        if self.limit_milli == LIMIT_IS_COMPUTE:
            object.__setattr__(self, "limit_milli", self.compute_milli)
        if self.limit_milli < self.compute_milli:
            raise ValueError("limit_milli is at least compute_milli")
        if self.devices > 1 and self.compute_milli < WHOLE_CARD_MILLI:
            raise ValueError("only a single device can be asked for in part")
        if self.devices == 1 and self.compute_milli == 0 and self.device_memory_mib <= 0:
            raise ValueError("a slice without guaranteed compute must name its device memory")
        if not 0 <= self.model_mask <= ANY_MODEL:
            raise ValueError("model_mask has one bit per model, 0..62")
        object.__setattr__(self, "_hash", hash(self._key()))
        object.__setattr__(self, "_vector", self._make_vector())

    def __hash__(self) -> int:
        return self._hash

    def _key(self) -> tuple[object, ...]:
        return (
            self.cpu_milli, self.memory_mib, self.devices, self.compute_milli, self.limit_milli,
            self.device_memory_mib, self.model_mask, self.extras, self.pool,
        )  # fmt: skip

    @property
    def whole_cards(self) -> bool:
        """True if every device is taken whole."""
        return self.devices > 0 and self.compute_milli == WHOLE_CARD_MILLI

    @property
    def total_compute_milli(self) -> int:
        """Guaranteed compute over all devices."""
        return self.devices * self.compute_milli

    def vector(self, extras: int) -> Int64Array:
        """The int64 vector that kernels read, to be left as it is: eight fields, then extras up to the last not 0.

        Raises ValueError if the shape names more extra resources than the cluster has.
        """
        if len(self.extras) > extras:
            raise ValueError(f"the shape names {len(self.extras)} extra resources, the cluster has {extras}")
        return self._vector

    def _make_vector(self) -> Int64Array:
        head = [
            self.cpu_milli, self.memory_mib, self.devices, self.compute_milli, self.limit_milli,
            self.device_memory_mib, self.model_mask, self.pool,
        ]  # fmt: skip
        asked = max((place + 1 for place, amount in enumerate(self.extras) if amount), default=0)
        return np.array([*head, *self.extras[:asked]], dtype=np.int64)

    def memory_on(self, device_memory_mib: int) -> int:
        """MiB of device memory that this shape takes of a card with that capacity (0 = unknown)."""
        if self.whole_cards:
            return device_memory_mib
        if self.device_memory_mib == MEMORY_BY_SHARE:
            return device_memory_mib * self.compute_milli // WHOLE_CARD_MILLI
        return self.device_memory_mib if device_memory_mib else 0
