"""Which whole cards of a node to take: those that talk to each other fastest.

The cost of a set of cards is its worst pair (a ring is as fast as its slowest link), then the sum over pairs,
then the lowest indices. A node type is a matrix of pair costs; for up to eight cards the best set for every mask
of free cards and every count is looked up in a table of 256 x 9, beyond that it is grown greedily from every
card. Nodes without a registered type are judged by their switch and socket numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from millpond.model.hardware.topology import Link
from millpond.scheduling.placement.arrays import (
    DEVICE_TOTAL,
    FIRST_DEVICE,
    LINK_TYPE,
    SOCKET,
    SWITCH,
    ClusterArrays,
    Int64Array,
)
from millpond.scheduling.placement.kernels import lean_kernel

# Cost of the best path between two cards, lowest common level first.
SAME_SWITCH, SAME_SOCKET, CROSS_SOCKET = int(Link.PCIE_SWITCH), int(Link.SOCKET), int(Link.CROSS_SOCKET)
UNREGISTERED = 0
_LOOKUP_CARDS = 8
_MOST_CARDS = 62


class LinkTables:
    """Registry of node types by their link costs.

    ``lookup``: int64 (types, 256, 9), the best set of k cards, as bits, within each mask of free cards.
    ``costs``: int64 (types, C, C), pair costs, C the most cards of any registered type. Type 0 is "unregistered".
    """

    def __init__(self) -> None:
        self.lookup: Int64Array = np.zeros((1, 256, 9), dtype=np.int64)
        self.costs: Int64Array = np.zeros((1, 1, 1), dtype=np.int64)
        self._types: dict[tuple[tuple[int, ...], ...], int] = {}

    def register(self, pair_costs: Sequence[Sequence[int]]) -> int:
        """The type number for a symmetric matrix of pair costs; equal matrices share a number."""
        key = tuple(tuple(int(cost) for cost in row) for row in pair_costs)
        cards = len(key)
        square = all(len(row) == cards for row in key)
        if not square or any(key[a][b] != key[b][a] for a, b in combinations(range(cards), 2)):
            raise ValueError("pair costs form a symmetric square matrix")
        if cards > _MOST_CARDS:
            raise ValueError(f"a node type has at most {_MOST_CARDS} cards")
        if key not in self._types:
            self._types[key] = len(self._types) + 1
            self._append(key)
        return self._types[key]

    def register_ids(self, sockets: Sequence[int], switches: Sequence[int]) -> int:
        """The type number for a node known only by the socket and switch of every card."""
        cards = range(len(sockets))
        return self.register(
            [[id_cost(switches[a], switches[b], sockets[a], sockets[b]) if a != b else 0 for b in cards] for a in cards]
        )

    def adopt(self, arrays: ClusterArrays, node: int) -> None:
        """Give ``node`` the type that its socket and switch numbers describe, so that choices are looked up."""
        first = int(arrays.first_device[node])
        owned = slice(first, first + int(arrays.device_total[node]))
        arrays.link_type[node] = self.register_ids(arrays.socket[owned].tolist(), arrays.switch[owned].tolist())

    def copy_from(self, other: LinkTables) -> None:
        """Know the types of another registry by the same numbers."""
        self.lookup, self.costs, self._types = other.lookup, other.costs, dict(other._types)

    def _append(self, key: tuple[tuple[int, ...], ...]) -> None:
        cards, types = len(key), self.costs.shape[0]
        side = max(cards, self.costs.shape[1])
        costs = np.zeros((types + 1, side, side), dtype=np.int64)
        costs[:types, : self.costs.shape[1], : self.costs.shape[2]] = self.costs
        costs[types, :cards, :cards] = key
        self.costs = costs
        self.lookup = np.concatenate([self.lookup, _best_sets(key)[None]])


@lru_cache(maxsize=64)
def _best_sets(key: tuple[tuple[int, ...], ...]) -> Int64Array:
    """Best set of every size within every mask of free cards: int64 (256, 9), 0 where there is none; not to be changed.

    Kept, because the twins of a scheduler meet the machines that it has met.
    """
    table = np.zeros((256, 9), dtype=np.int64)
    if len(key) > _LOOKUP_CARDS:
        return table
    ranked: list[tuple[int, int, int]] = []
    for size in range(1, len(key) + 1):
        sets = []
        for order, cards in enumerate(combinations(range(len(key)), size)):
            pairs = [key[a][b] for a, b in combinations(cards, 2)] or [0]
            sets.append((max(pairs), sum(pairs), order, sum(1 << card for card in cards)))
        ranked += [(size, order, bits) for order, (_, _, _, bits) in enumerate(sorted(sets))]
    for free in range(256):
        for size, _, bits in ranked:
            if table[free, size] == 0 and bits & free == bits:
                table[free, size] = bits
    return table


@lean_kernel
def id_cost(switch_a: int, switch_b: int, socket_a: int, socket_b: int) -> int:
    """Pair cost by switch and socket numbers alone."""
    if socket_a != socket_b:
        return CROSS_SOCKET
    if switch_a != switch_b:
        return SAME_SOCKET
    return SAME_SWITCH


@lean_kernel
def pair_cost(nodes: Int64Array, devices: Int64Array, costs: Int64Array, node: int, card_a: int, card_b: int) -> int:
    """Cost between two cards of a node, by its type or else by their switch and socket."""
    kind = nodes[LINK_TYPE, node]
    if kind != UNREGISTERED:
        return int(costs[kind, card_a, card_b])
    a = nodes[FIRST_DEVICE, node] + card_a
    b = nodes[FIRST_DEVICE, node] + card_b
    return int(id_cost(devices[SWITCH, a], devices[SWITCH, b], devices[SOCKET, a], devices[SOCKET, b]))


@lean_kernel
def closest_cards(
    nodes: Int64Array, devices: Int64Array, lookup: Int64Array, costs: Int64Array, node: int, free: int, wanted: int
) -> int:
    """The ``wanted`` cards among the bits of ``free`` that are linked best, as bits; 0 if there are too few."""
    total = nodes[DEVICE_TOTAL, node]
    kind = nodes[LINK_TYPE, node]
    if kind != UNREGISTERED and total <= 8:
        return int(lookup[kind, free, wanted]) if wanted <= 8 else 0
    count = 0
    for card in range(total):
        count += (free >> card) & 1
    if count <= wanted:
        return free if count == wanted else 0
    best = 0
    best_worst = 0
    best_sum = 0
    for seed in range(total):
        if (free >> seed) & 1 == 0:
            continue
        cards = 1 << seed
        worst = 0
        added = 0
        for _ in range(wanted - 1):
            card, card_worst, card_sum = nearest_card(nodes, devices, costs, node, free & ~cards, cards)
            cards |= 1 << card
            worst = max(worst, card_worst)
            added += card_sum
        if best == 0 or worst < best_worst or (worst == best_worst and added < best_sum):
            best = cards
            best_worst = worst
            best_sum = added
        elif worst == best_worst and added == best_sum:
            lowest_difference = (cards ^ best) & -(cards ^ best)
            if cards & lowest_difference != 0:
                best = cards
    return best


@lean_kernel
def nearest_card(
    nodes: Int64Array, devices: Int64Array, costs: Int64Array, node: int, free: int, cards: int
) -> tuple[int, int, int]:
    """The card of ``free`` nearest to the set ``cards``, its worst and its summed cost to them; -1 if none."""
    total = nodes[DEVICE_TOTAL, node]
    best = -1
    best_worst = 0
    best_sum = 0
    for card in range(total):
        if (free >> card) & 1 == 0:
            continue
        worst = 0
        added = 0
        for other in range(total):
            if (cards >> other) & 1 == 1:
                cost = pair_cost(nodes, devices, costs, node, card, other)
                worst = max(worst, cost)
                added += cost
        if best < 0 or worst < best_worst or (worst == best_worst and added < best_sum):
            best = card
            best_worst = worst
            best_sum = added
    return best, best_worst, best_sum
