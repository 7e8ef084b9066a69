"""The selector: for a shape, the best node now, at the price of what changed since the shape was last asked for.

Each class of equal shapes keeps a score per node, the maximum of every block of 64, and its place in the change
log. A selection rescores the nodes logged since then and looks through the block maxima: exact, and flat in the
size of the cluster. Masks act at the argmax, so they never cost a cached score.

Nearest relative: score caching and equivalence classes in Verma et al., "Large-scale cluster management at Google with
Borg", EuroSys 2015, section 3.4.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement import filters, search
from millpond.scheduling.placement.arrays import BoolArray, ClusterArrays, Int64Array, NodeMask
from millpond.scheduling.placement.filters import FilterStep
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.links import LinkTables
from millpond.scheduling.placement.score_cache import BLOCK, SUMMARY_COLUMNS
from millpond.scheduling.placement.scoring import NOWHERE
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import Scorer, ScoreTables

NO_NODE = -1
_NO_MASK: NodeMask = np.zeros(0, dtype=np.uint8)


class Choice(NamedTuple):
    """Where a task goes: the node, its score, and the devices by their index on the node."""

    node: int
    score: int
    devices: tuple[int, ...]


@dataclass(slots=True)
class _Class:
    """Cache of one shape.

    Attributes:
        seen: up to where the change log has been read, -1 for never; ``known``: the nodes scored.
        nowhere_at: where the change log was when the shape was last seen to fit nowhere; -1: it may fit.
        somewhere_at: where it was when the shape was last seen to fit; -1: never.
        has_cards: whether a node has as many cards of the models, whoever holds them; of the first nodes, or of all.
    """

    shape: Int64Array
    scores: Int64Array
    block_best: Int64Array
    seen: int = -1
    known: int = 0
    nowhere_at: int = -1
    somewhere_at: int = -1
    has_cards: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


class Selector:
    """Exact best-node selection over ``ClusterArrays``, by the scorer that ``tables`` were built for."""

    def __init__(
        self,
        arrays: ClusterArrays,
        tables: ScoreTables,
        *,
        links: LinkTables | None = None,
        kernels: KernelSet | None = None,
        class_limit: int = 400,
    ) -> None:
        self.arrays = arrays
        self.links = links or LinkTables()
        self.rounds = 0  # random selections made; part of a snapshot
        self._class_limit = class_limit
        self._classes: OrderedDict[Shape, _Class] = OrderedDict()
        self._summary: Int64Array
        self._summary_seen = -1
        self._summary_known = 0
        self.use_tables(tables)
        self.use_kernels(kernels or interpreted())

    def use_tables(self, tables: ScoreTables) -> None:
        """Score by other tables from now on; all cached scores are dropped."""
        self.tables = tables
        self._flat = tables.flat
        self.is_random = tables.scorer is Scorer.RANDOM
        self._classes.clear()
        self._forget_summary()

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; results and caches are the same."""
        self.kernels = kernels
        self._select_best = kernels.call(search.select_best.__name__)
        self._fit_on_any = kernels.call(filters.fit_on_any.__name__)

    def place(self, shape: Shape, node_mask: NodeMask | None = None) -> Choice | None:
        """The best node, the lowest index on ties, and the devices to take there; None if none fits. Changes nothing.

        ``node_mask``: uint8 (at least node_count,), 0 excludes a node.
        """
        arrays, entry = self.arrays, self._class_of(shape)
        if self.is_random:
            return self._place_anywhere(entry, node_mask)
        head, count = arrays.change_head, arrays.node_count
        if self._summary.shape[0] < count:
            self._forget_summary()
        node, score, cards = self._select_best(
            arrays.node_table, arrays.device_table, arrays.changed,
            self._begin(self._summary_seen, head), self._summary_known, self._begin(entry.seen, head), entry.known,
            head, count, entry.shape, self._flat, self._summary, entry.scores, entry.block_best,
            _NO_MASK if node_mask is None else node_mask, self.links.lookup, self.links.costs,
        )  # fmt: skip
        self._summary_seen = entry.seen = head
        self._summary_known = entry.known = count
        return None if node < 0 else Choice(int(node), int(score), bits_of(int(cards)))

    def choose_devices(self, node: int, shape: Shape) -> tuple[int, ...] | None:
        """The devices, by index on the node, that the shape would take there; None if it does not fit."""
        choice = self._choice_at(node, self._class_of(shape).shape)
        return None if choice.score == NOWHERE else choice.devices

    def vector(self, shape: Shape) -> Int64Array:
        """The shape as kernels read it, for this cluster's extra resources."""
        return shape.vector(self.arrays.extras)

    def fit(self, node: int, shape: Shape) -> FilterStep:
        """The first filter that keeps the shape off the node; ``FilterStep.FITS`` if it fits there now."""
        arrays = self.arrays
        failure = self.kernels.call("first_failure")(
            arrays.node_table, arrays.device_table, node, shape.vector(arrays.extras)
        )
        return FilterStep(int(failure))

    def vectors(self, shapes: Sequence[Shape]) -> Int64Array:
        """(shapes, fields) the shapes as kernels read them; zeros stand for extra resources not asked for."""
        vectors = [self.vector(shape) for shape in shapes]
        lengths = set(map(len, vectors))
        if len(lengths) == 1:
            return np.array(vectors)
        table = np.zeros((len(vectors), max(lengths, default=0)), dtype=np.int64)
        for row, vector in zip(table, vectors, strict=True):
            row[: len(vector)] = vector
        return table

    def fit_on(self, nodes: Int64Array, vectors: Int64Array) -> BoolArray:
        """(shapes,) whether each, as in ``vectors``, fits on one of some nodes now."""
        found = np.empty(len(vectors), dtype=np.bool_)
        self._fit_on_any(self.arrays.node_table, self.arrays.device_table, nodes, vectors, found)
        return found

    def fit_anywhere(self, shapes: Sequence[Shape]) -> list[bool]:
        """(shapes,) whether each fits on some node now; where it fitted nowhere, only changed nodes are looked at."""
        arrays, entries = self.arrays, [self._class_of(shape) for shape in shapes]
        head = arrays.change_head
        unchanged_since: dict[int, list[int]] = {}
        for number, entry in enumerate(entries):
            if 0 <= entry.nowhere_at < head:
                unchanged_since.setdefault(entry.nowhere_at, []).append(number)
        for since, numbers in unchanged_since.items():
            vectors = self.vectors([shapes[number] for number in numbers])
            found = self.fit_on(arrays.changed_since(since), vectors)
            for number, fits in zip(numbers, found.tolist(), strict=True):
                entries[number].nowhere_at = -1 if fits else head
        for shape, entry in zip(shapes, entries, strict=True):
            if entry.nowhere_at != head and entry.somewhere_at != head:
                fits = self.place(shape) is not None
                entry.nowhere_at, entry.somewhere_at = (-1, head) if fits else (head, -1)
        return [entry.nowhere_at < 0 for entry in entries]

    def failures(self, shape: Shape, node_mask: NodeMask | None = None) -> Int64Array:
        """Live nodes by the first filter that refuses the shape: int64 (14,), indexed by ``FilterStep``."""
        arrays = self.arrays
        histogram = np.zeros(len(FilterStep), dtype=np.int64)
        self.kernels.call("count_failures")(
            arrays.node_table, arrays.device_table, arrays.node_count, shape.vector(arrays.extras),
            _NO_MASK if node_mask is None else node_mask, histogram,
        )  # fmt: skip
        return histogram

    def member_room(self, shape: Shape, node_mask: NodeMask) -> Int64Array:
        """How many tasks of the shape each node could hold at once: int64 (node_count,), 0 where masked out."""
        arrays = self.arrays
        room = np.zeros(arrays.node_count, dtype=np.int64)
        self.kernels.call("count_room")(
            arrays.node_table, arrays.device_table, arrays.node_count, shape.vector(arrays.extras), node_mask, room
        )
        return room

    def free_compute(self) -> Int64Array:
        """Free compute of the usable devices of each node, in milli: int64 (node_count,)."""
        arrays = self.arrays
        return self._by_node(arrays.compute_free_milli * (arrays.device_usable != 0))

    def startable_compute(self, shapes: Sequence[Shape]) -> Int64Array:
        """As ``free_compute``, of devices that could hold a part of one of the shapes if nobody held anything of them.

        Those whose memory is all held, as by frozen work, take nothing more.
        """
        arrays = self.arrays
        capacity = arrays.device_memory_mib
        # Of unknown memory a share is free wherever compute is.
        has_memory = (arrays.device_memory_free_mib > 0) | (capacity == 0)
        suits = np.zeros(len(capacity), dtype=np.bool_)
        for shape in shapes:
            is_large = (capacity >= shape.device_memory_mib) | ((capacity == 0) & (shape.compute_milli > 0))
            suits |= ((shape.model_mask >> arrays.device_model) & 1 != 0) & is_large
        return self._by_node(arrays.compute_free_milli * ((arrays.device_usable != 0) & has_memory & suits))

    def may_ever_hold(self, shape: Shape) -> NDArray[np.bool_]:
        """(node_count,) whether a node is of the pool and has as many cards of the models, whoever holds them."""
        arrays = self.arrays
        of_pool: NDArray[np.bool_] = arrays.pool[: arrays.node_count] == shape.pool
        if shape.devices == 0:
            return of_pool
        entry = self._class_of(shape)
        if len(entry.has_cards) < arrays.node_count:  # a node keeps its row, and its cards their models
            entry.has_cards = self._by_node((shape.model_mask >> arrays.device_model) & 1) >= shape.devices
        return of_pool & entry.has_cards

    def _by_node(self, of_devices: Int64Array) -> Int64Array:
        """(node_count,) the sum over the devices of each node."""
        arrays = self.arrays
        upto = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(of_devices[: arrays.device_count])])
        first = arrays.first_device[: arrays.node_count]
        sums: Int64Array = upto[first + arrays.device_total[: arrays.node_count]] - upto[first]
        return sums

    def _place_anywhere(self, entry: _Class, node_mask: NodeMask | None) -> Choice | None:
        """A random one of the nodes that fit."""
        arrays, call = self.arrays, self.kernels.call
        nodes, devices = arrays.node_table, arrays.device_table
        head, count = arrays.change_head, arrays.node_count
        mask = _NO_MASK if node_mask is None else node_mask
        if self._summary.shape[0] < count:
            self._forget_summary()
        call("refresh_summary")(
            nodes, devices, arrays.changed, self._begin(self._summary_seen, head), self._summary_known, head, count,
            self._flat, self._summary,
        )  # fmt: skip
        call("refresh_scores")(
            nodes, devices, arrays.changed, self._begin(entry.seen, head), entry.known, head, count,
            entry.shape, self._flat, self._summary, entry.scores, entry.block_best,
        )  # fmt: skip
        self._summary_seen = entry.seen = head
        self._summary_known = entry.known = count
        self.rounds += 1
        seed = self.tables.seed * 7919 + self.rounds
        node = int(call("scattered_node")(entry.scores, count, mask, seed))
        return None if node < 0 else self._choice_at(node, entry.shape)

    def _choice_at(self, node: int, vector: Int64Array) -> Choice:
        score, cards = self.kernels.call("free_choice")(
            self.arrays.node_table, self.arrays.device_table, node, vector, self._flat,
            self.links.lookup, self.links.costs,
        )  # fmt: skip
        return Choice(node, int(score), bits_of(int(cards)))

    def _class_of(self, shape: Shape) -> _Class:
        entry = self._classes.get(shape)
        if entry is None:
            if len(self._classes) >= self._class_limit:
                self._classes.popitem(last=False)
            entry = self._classes[shape] = _Class(shape.vector(self.arrays.extras), *self._room())
        else:
            self._classes.move_to_end(shape)
            if entry.scores.shape[0] < self.arrays.node_count:
                entry.scores, entry.block_best = self._room()
                entry.seen = -1
        return entry

    def _room(self) -> tuple[Int64Array, Int64Array]:
        capacity = self.arrays.node_table.shape[1]
        return np.full(capacity, NOWHERE, dtype=np.int64), np.full(-(-capacity // BLOCK), NOWHERE, dtype=np.int64)

    def _forget_summary(self) -> None:
        self._summary = np.zeros((self.arrays.node_table.shape[1], SUMMARY_COLUMNS), dtype=np.int64)
        self._summary_seen = -1
        self._summary_known = 0

    def _begin(self, seen: int, head: int) -> int:
        """Where to start reading the log; -1 to rebuild, if the log overran or a rebuild reads less."""
        lag = head - seen
        if seen < 0 or lag > self.arrays.changed.shape[0] or lag > self.arrays.node_count:
            return -1
        return seen


@lru_cache(maxsize=4096)
def bits_of(cards: int) -> tuple[int, ...]:
    """The places of the bits that are set, lowest first."""
    indices = []
    while cards:
        lowest = cards & -cards
        indices.append(lowest.bit_length() - 1)
        cards ^= lowest
    return tuple(indices)
