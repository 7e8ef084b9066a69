"""How busy each device is, as measured, and by estimate what came or left since.

What was measured says how much of what is held of a pool's devices is used, on average; work that came since counts as
much of what it holds, until it was measured too. A device that was never measured counts as used to what is held of it.
The kernels of placement read both from two rows of the arrays (``placement.scoring.card_load``), so work that a cycle
has placed counts for the next, also on a trial ledger.

Source: that new work counts by an estimate until it was measured is the rule of Koordinator's load-aware scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from millpond.model.events import CardLoad, LoadSampled
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.placement.arrays import NOT_MEASURED, ClusterArrays, Int64Array
from millpond.scheduling.placement.scoring import card_load

LEAST_HELD_MILLI: Final = 100
"""A device of which less was held says nothing about how much of it is used."""
LEARNT_PART: Final = 0.05
"""How much the latest device counts in what is learnt."""


class CardLoads:
    """The measured loads of one ledger's devices.

    Attributes:
        used_part: by pool, how much of what is held is used, as learnt, more than 1 where work goes beyond what it is
            guaranteed; all of it before the first measurement.
    """

    def __init__(self, arrays: ClusterArrays, hardware: Hardware) -> None:
        self._arrays = arrays
        self._hardware = hardware
        self.used_part: dict[str, float] = {}

    def note(self, event: LoadSampled) -> None:
        """Devices of a node were measured; those that are not there are ignored."""
        index = self._hardware.node_index.get(event.node)
        node = None if index is None else self._hardware.nodes[index]
        if index is None or node is None:
            return
        there = {device.uuid for device in node.devices}
        cards = [card for card in event.cards or self._as_mean(node, event.load_milli) if card.device in there]
        for card in cards:
            if card.held_milli >= LEAST_HELD_MILLI:
                used, known = card.load_milli / card.held_milli, self.used_part.get(node.pool, 1.0)
                self.used_part[node.pool] = known + LEARNT_PART * (used - known)
        rate = round(CARD_MILLI * self.used_part.get(node.pool, 1.0))
        for card in cards:
            device = self._hardware.device_index[card.device]
            free = CARD_MILLI - card.held_milli
            self._put(device, card.load_milli + rate * free // CARD_MILLI, rate, card.load_milli)
        self._arrays.touch(index)

    def held(self) -> dict[str, dict[str, int]]:
        """What is held of the compute of each device now, by node and UUID."""
        free, index = self._arrays.compute_free_milli.tolist(), self._hardware.device_index
        return {
            node.name: {device.uuid: CARD_MILLI - free[index[device.uuid]] for device in node.devices}
            for node in self._hardware.nodes
            if node is not None and node.devices
        }

    def expected_milli(self, device: int) -> int:
        """The use that is expected of a device now."""
        return card_load(self._arrays.device_table, device)

    def expected_of(self, devices: Int64Array) -> Int64Array:
        """(devices,) ``expected_milli`` of each of some devices."""
        arrays = self._arrays
        free = arrays.compute_free_milli[devices]
        loads: Int64Array = np.maximum(
            arrays.load_base_milli[devices] - arrays.load_rate_milli[devices] * free // CARD_MILLI, 0
        )
        return loads

    def beside_milli(self, holding: Holding) -> int:
        """The use that is expected of the busiest device of a holding, by others; 0 where it has none."""
        loads = (
            self.expected_milli(device) - self.estimate_milli(device, holding.shape.compute_milli)
            for device in holding.devices
        )
        return max(max(loads, default=0), 0)

    def estimate_milli(self, device: int, compute_milli: int) -> int:
        """How much of a device work uses that holds so much of it, as far as that is known."""
        return int(self._arrays.load_rate_milli[device]) * compute_milli // CARD_MILLI

    def copy_from(self, other: CardLoads) -> None:
        """Know the same; the arrays are copied by themselves."""
        self.used_part = dict(other.used_part)

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        arrays, hardware = self._arrays, self._hardware
        known = np.flatnonzero(arrays.load_milli[: arrays.device_count] != NOT_MEASURED)
        columns = np.stack([arrays.load_base_milli, arrays.load_rate_milli, arrays.load_milli])[:, known]
        rows = zip(known.tolist(), columns.T.tolist(), strict=True)
        ids = hardware.device_ids
        measured = [[ids[at], *row] for at, row in rows if hardware.device_index.get(ids[at]) == at]
        return {"cards": measured, "used_part": self.used_part}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """What ``snapshot`` wrote."""
        self.used_part = dict(plain["used_part"])
        for uuid, base, rate, load in plain["cards"]:
            self._put(self._hardware.device_index[uuid], base, rate, load)

    def _as_mean(self, node: Node, load_milli: int) -> list[CardLoad]:
        free = self._arrays.compute_free_milli
        index = self._hardware.device_index
        return [
            CardLoad(device.uuid, load_milli, CARD_MILLI - int(free[index[device.uuid]])) for device in node.devices
        ]

    def _put(self, device: int, base: int, rate: int, load: int) -> None:
        self._arrays.load_base_milli[device] = base
        self._arrays.load_rate_milli[device] = rate
        self._arrays.load_milli[device] = load
