"""Placement written down a second time, as plainly as possible: the yardstick for the kernels.

Fragmentation is the paper's sum over typical shapes, the best node a maximum over all nodes, the best cards a
maximum over all subsets. Slow, and meant to be read next to the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

from millpond.scheduling.placement.arrays import ClusterArrays
from millpond.scheduling.placement.links import LinkTables, id_cost
from millpond.scheduling.placement.mix import TypicalMix
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import QUANTUM, Scorer, ScoreTables, Weights


@dataclass
class Naive:
    arrays: ClusterArrays
    mix: TypicalMix
    scorer: Scorer
    weights: Weights
    tables: ScoreTables
    links: LinkTables

    # ---- filters

    def devices_of(self, node: int) -> list[int]:
        first = int(self.arrays.first_device[node])
        return list(range(first, first + int(self.arrays.device_total[node])))

    def wholly_free(self, device: int) -> bool:
        a = self.arrays
        return bool(
            a.device_usable[device]
            and a.compute_free_milli[device] == 1000
            and a.device_memory_free_mib[device] == a.device_memory_mib[device]
        )

    def device_fits(self, device: int, shape: Shape) -> bool:
        a = self.arrays
        capacity = int(a.device_memory_mib[device])
        if not a.device_usable[device] or not shape.model_mask >> int(a.device_model[device]) & 1:
            return False
        if a.limit_free_milli[device] < shape.limit_milli:
            return False
        if shape.compute_milli == 1000:
            return self.wholly_free(device) and (capacity == 0 or capacity >= shape.device_memory_mib)
        enough_memory = a.device_memory_free_mib[device] >= shape.memory_on(capacity)
        if capacity == 0:
            enough_memory = shape.compute_milli > 0
        return bool(a.compute_free_milli[device] >= shape.compute_milli and enough_memory)

    def host_fits(self, node: int, shape: Shape) -> bool:
        a = self.arrays
        extras = (*shape.extras, *([0] * (a.extras - len(shape.extras))))
        return bool(
            a.node_usable[node]
            and shape.pool in (-1, int(a.pool[node]))
            and a.cpu_free_milli[node] >= shape.cpu_milli
            and a.memory_free_mib[node] >= shape.memory_mib
            and all(a.extra_free[node, e] >= extras[e] for e in range(a.extras))
        )

    def fits(self, node: int, shape: Shape) -> bool:
        fitting = [device for device in self.devices_of(node) if self.device_fits(device, shape)]
        return self.host_fits(node, shape) and len(fitting) >= shape.devices

    # ---- fragmentation and scores

    def fragmented(self, node: int, cpu: int, residuals: list[int]) -> int:
        """F of the paper times the total weight: what each typical shape cannot use of the residuals."""
        model = self.model_of(node)
        total = 0
        for typical in self.mix.shapes:
            usable = (
                typical.devices > 0
                and typical.model_mask >> model & 1
                and cpu >= typical.cpu_milli
                and sum(residual >= typical.compute_milli for residual in residuals) >= typical.devices
            )
            wasted = [residual for residual in residuals if not usable or residual < typical.compute_milli]
            total += typical.weight * sum(wasted)
        return total

    def model_of(self, node: int) -> int:
        devices = self.devices_of(node)
        return int(self.arrays.device_model[devices[0]]) if devices else 0

    def residuals(self, node: int) -> dict[int, int]:
        a = self.arrays
        return {d: int(a.compute_free_milli[d]) for d in self.devices_of(node) if a.device_usable[d]}

    def score_with(self, node: int, shape: Shape, devices: list[int]) -> int:
        """Score of the shape on the node, on these devices."""
        a = self.arrays
        cpu, free = int(a.cpu_free_milli[node]), self.residuals(node)
        cpu_left, gpu_left = cpu - shape.cpu_milli, sum(free.values()) - shape.total_compute_milli
        if self.scorer is Scorer.BEST_FIT:
            return math.floor(100 - 100 * (cpu_left / 256_000) - 100 * (gpu_left / 16_000))
        if self.scorer is Scorer.DOT_PRODUCT:
            aligned = cpu * shape.cpu_milli / 128_000**2 + sum(free.values()) * shape.total_compute_milli / 8_000**2
            return math.floor(100 * (1 - aligned / 2))
        after = {d: r - (shape.compute_milli if d in devices else 0) for d, r in free.items()}
        gradient = self.fragmented(node, cpu, list(free.values()))
        gradient -= self.fragmented(node, cpu_left, list(after.values()))
        weight = sum(typical.weight for typical in self.mix.shapes)
        score = int(100 / (1 + math.exp(-gradient / (1000 * weight)))) if weight else 99
        if self.scorer is Scorer.FGD:
            return score
        cost = round(self.weights.gpu_left * QUANTUM / 8_000) * gpu_left
        cost += round(self.weights.cpu_left * QUANTUM / 128_000) * cpu_left
        is_slice = shape.devices == 1 and shape.compute_milli < 1000
        loads = [self.load(d) for d in (devices if is_slice else self.devices_of(node))]
        cost += round(self.weights.load * QUANTUM / 1_000) * (sum(loads) // max(len(loads), 1))
        for device in devices:
            scarcity = int(self.tables.scarcity[a.device_model[device]])
            cost += round(self.weights.scarcity * QUANTUM / 1_000_000) * scarcity * shape.compute_milli
            if shape.compute_milli < 1000:
                value = self.tables.slice_value
                loss = int(value[free[device]] - value[free[device] - shape.compute_milli])
                cost += round(self.weights.bid_price * QUANTUM / 10_000) * loss
            if shape.compute_milli == 0:
                cost += self.memory_loss(device, shape.device_memory_mib) * 101 * QUANTUM // 1000
        return score * QUANTUM - cost

    def load(self, device: int) -> int:
        """As measured, and by estimate what came or left since."""
        a = self.arrays
        free = int(a.compute_free_milli[device])
        return max(int(a.load_base_milli[device]) - math.floor(int(a.load_rate_milli[device]) * free / 1000), 0)

    def memory_loss(self, device: int, taken_mib: int) -> int:
        """Thousandths of the typical work that the card could take before and cannot any more."""
        idle = self.wholly_free(device)
        if not len(self.tables.needs):
            return 1000 * idle
        capacity, free = int(self.arrays.device_memory_mib[device]), int(self.arrays.device_memory_free_mib[device])
        lost = 0
        for compute, memory, share in self.tables.needs.tolist():
            needed = capacity * compute // 1000 if memory < 0 else memory
            fitted = compute <= int(self.arrays.compute_free_milli[device]) and needed <= free
            lost += share * (fitted and needed > free - taken_mib)
        return max(lost, 100 * idle)

    def score(self, node: int, shape: Shape) -> tuple[int, list[int]] | None:
        """Score and device (for a slice), or None if it does not fit."""
        fitting = [d for d in self.devices_of(node) if self.device_fits(d, shape)]
        if not self.host_fits(node, shape) or len(fitting) < shape.devices:
            return None
        if shape.devices != 1 or shape.compute_milli == 1000:
            return self.score_with(node, shape, fitting[: shape.devices]), []
        if self.scorer in (Scorer.DEFAULT, Scorer.FGD):
            device = max(fitting, key=lambda d: (self.score_with(node, shape, [d]), -d))
        else:
            device = min(fitting, key=lambda d: (int(self.arrays.compute_free_milli[d]), d))
        return self.score_with(node, shape, [device]), [device]

    # ---- devices

    def pair_cost(self, node: int, a: int, b: int) -> int:
        arrays, kind = self.arrays, int(self.arrays.link_type[node])
        if kind:
            first = int(arrays.first_device[node])
            return int(self.links.costs[kind, a - first, b - first])
        return int(id_cost(arrays.switch[a], arrays.switch[b], arrays.socket[a], arrays.socket[b]))

    def closest(self, node: int, free: list[int], wanted: int) -> list[int] | None:
        def cost(cards: tuple[int, ...]) -> tuple[int, int]:
            pairs = [self.pair_cost(node, a, b) for a, b in combinations(cards, 2)]
            return max(pairs, default=0), sum(pairs)

        sets = list(combinations(free, wanted))
        return list(min(sets, key=cost)) if sets else None  # min keeps the first: lowest indices

    def choose(self, node: int, shape: Shape) -> tuple[int, list[int]] | None:
        """Score and devices."""
        plain = self.score(node, shape)
        if plain is None or shape.devices == 0 or shape.compute_milli < 1000:
            return plain
        free = [d for d in self.devices_of(node) if self.device_fits(d, shape)]
        cards = self.closest(node, free, shape.devices)
        return None if cards is None else (plain[0], cards)

    def best(self, shape: Shape, mask: list[int] | None) -> tuple[int, int, tuple[int, ...]] | None:
        best = None
        for node in range(self.arrays.node_count):
            found = self.choose(node, shape) if mask is None or mask[node] else None
            if found is not None and (best is None or found[0] > best[1]):
                first = int(self.arrays.first_device[node])
                best = (node, found[0], tuple(device - first for device in found[1]))
        return best

    def fitting(self, shape: Shape, mask: list[int]) -> int:
        """How many nodes it fits on; the rest is left to the kernels' own tests."""
        return sum(bool(mask[node]) and self.choose(node, shape) is not None for node in range(self.arrays.node_count))


def hold(arrays: ClusterArrays, node: int, shape: Shape, devices: tuple[int, ...], sign: int = 1) -> None:
    """Take (1) or give back (-1) what the shape holds, as the cluster would."""
    arrays.cpu_free_milli[node] -= sign * shape.cpu_milli
    arrays.memory_free_mib[node] -= sign * shape.memory_mib
    for extra, amount in enumerate(shape.extras):
        arrays.extra_free[node, extra] -= sign * amount
    for index in devices:
        device = int(arrays.first_device[node]) + index
        arrays.compute_free_milli[device] -= sign * shape.compute_milli
        arrays.limit_free_milli[device] -= sign * shape.limit_milli
        arrays.device_memory_free_mib[device] -= sign * shape.memory_on(int(arrays.device_memory_mib[device]))
    arrays.touch(node)
