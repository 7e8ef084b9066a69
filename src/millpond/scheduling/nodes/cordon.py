"""Closed nodes: which are closed now, which will be, and when they are open again.

A cordon is set by operators, not by the engine, and kept by the name of the node, so that it outlives the node's
absence. Cordons begin and end by themselves; ``follow_clock`` brings the ledger in step with the clock.

What starts on a node before a planned closure follows one rule, ``stays_until``: work that is known to run into it does
not start there. Work that leaves when asked may: if it saves itself on notice, or if nothing is known about its end and
it is preemptible, so that the node would else stand idle on a mere guess. Work that may not be ended counts with its
whole time limit, other work with a length that it will hardly exceed. That is the rule of Slurm's maintenance
reservations (https://slurm.schedmd.com/reservations.html), but for those who leave when asked.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millpond.model.codec import from_plain, to_plain
from millpond.model.errors import ConflictError
from millpond.model.hardware.node_power import RETRY_S, NodePower, NodePowerState
from millpond.model.hardware.nodes import Cordon
from millpond.model.resources import CARD_MILLI
from millpond.model.workloads import CheckpointMode
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ordering.forecasts import NEVER, debt_s
from millpond.scheduling.ordering.time_left import TimeLeft
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord

MARGIN_S = 30.0
"""So long before reserved cards are wanted work on them should have gone, by its grace: its end takes time too."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A node closes or opens at an instant."""

    at: float
    node: str
    closed: bool


Spans = dict[str, tuple[tuple[float, float], ...]]
"""By name of a node: spans (begin, end) in order of their begin."""


class Cordons:
    """All closures of a cluster's nodes, and the spans in which cards of them are reserved.

    A node with reserved cards is not closed: their owners start there. All others keep off it by the rule for a node
    that is to be closed, and are gone when the span begins, not asked to go.

    Attributes:
        by_node: by name of the node, in order of their begin; none that is over once ``follow_clock`` has run.
        kept: the reserved spans; set by ``keep``.
        power: of nodes that were switched, by name; those that are not on are closed too.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.by_node: dict[str, tuple[Cordon, ...]] = {}
        self.kept: Spans = {}
        self.power: dict[str, NodePower] = {}
        self._drained: set[str] = set()
        self._as_of = -NEVER
        self._due = NEVER
        self._ahead: list[tuple[float, str]] = []
        self._kept_ahead: list[tuple[float, str]] = []
        self._masks: dict[tuple[int, int, int], NodeMask] = {}
        self._asleep: tuple[int, int] | None = None

    def copy_from(self, other: Cordons) -> None:
        """Have the same closures, on a copy of the same cluster."""
        self.by_node, self._drained = dict(other.by_node), set(other._drained)
        self._as_of, self._due, self._ahead = other._as_of, other._due, list(other._ahead)
        self.kept, self._kept_ahead = dict(other.kept), list(other._kept_ahead)
        self.power = dict(other.power)

    # ---- on request ---------------------------------------------------------------------------------------------

    def close(self, node: str, closure: Cordon) -> None:
        """Enter a closure; see ``model.events.NodeClosed`` for which one it replaces."""
        others = [
            other
            for other in self.by_node.get(node, ())
            if other.planned != closure.planned or (closure.planned and other.begin != closure.begin)
        ]
        self.by_node[node] = tuple(sorted((*others, closure), key=lambda each: (each.begin, each.planned)))
        self._due = -NEVER

    def open(self, node: str, now: float, *, planned: bool) -> None:
        """Drop what keeps a node closed now and, if asked for, what is planned for it.

        Raises:
            ConflictError: there is nothing to drop.
        """
        there = self.by_node.get(node, ())
        kept = () if planned else tuple(closure for closure in there if not closure.covers(now))
        if len(kept) == len(there):
            if (power := self.power.get(node)) is not None and power.is_closed:
                raise ConflictError(
                    f"node {node!r} is {power_text(power, now)}",
                    "it is switched on when a job needs it; `spare` of its pool keeps more nodes on",
                )
            raise ConflictError(
                f"node {node!r} is open" + (" now, and to be closed later" if there else ""),
                "give up what is planned with `pond nodes uncordon --planned`" if there else "it takes work already",
            )
        self.by_node[node] = kept
        self._due = -NEVER

    def keep(self, spans: Spans) -> None:
        """Let these be the spans in which cards of nodes are reserved, from the next ``follow_clock`` on."""
        self.kept = spans
        self._due = -NEVER

    def set_power(self, node: str, power: NodePower | None) -> None:
        """Note a node's power; None: it is on, and there is nothing to say about it."""
        if power is None:
            self.power.pop(node, None)
        else:
            self.power[node] = power
        self._due = -NEVER

    def powered_down(self, now: float) -> list[str]:
        """The nodes that are closed for their power alone, those first that work should count on first."""
        found = (node for node in self._down if not any(each.covers(now) for each in self.by_node.get(node, ())))
        return sorted(found, key=lambda node: self.power[node].wake_rank)

    def asleep_milli(self, now: float) -> int:
        """Compute of these nodes but for those that failed to boot: what is to be had soon after it is needed."""
        hardware = self._cluster.hardware
        if self._asleep is None or self._asleep[0] != hardware.version:
            names = (name for name in self.powered_down(now) if self.power[name].state is not NodePowerState.FAILED)
            nodes = filter(None, map(self._cluster.node_named, names))
            cards = sum(hardware.is_usable(device) for node in nodes for device in node.devices)
            self._asleep = hardware.version, CARD_MILLI * cards
        return self._asleep[1]

    @property
    def _down(self) -> list[str]:
        return [node for node, power in self.power.items() if power.is_closed]

    # ---- time passes --------------------------------------------------------------------------------------------

    def follow_clock(self, now: float) -> list[str]:
        """Bring the ledger in step with the clock, in the open transaction; returns nodes to be emptied from now on."""
        if now < self._due:
            return []
        alive = {node: tuple(each for each in found if not each.is_over(now)) for node, found in self.by_node.items()}
        self.by_node = {node: found for node, found in alive.items() if found}
        covering = {node: [each for each in found if each.covers(now)] for node, found in self.by_node.items()}
        closed = {node for node, found in covering.items() if found}.union(self._down)
        for node in sorted(closed ^ self._cluster.closed):
            self._cluster.set_closed(node, node in closed)
        draining = {node for node, found in covering.items() if any(each.drain for each in found)}
        fresh = sorted(draining - self._drained)
        self._drained = draining
        self._look_ahead(now)
        return fresh

    def next_change(self) -> float | None:
        """When a node closes or opens next; None when none will by itself."""
        return None if self._due == NEVER else self._due

    def _look_ahead(self, now: float) -> None:
        self._as_of = now
        changes = [flip for found in self.by_node.values() for each in found for flip in (each.begin, each.until)]
        changes += [flip for spans in self.kept.values() for span in spans for flip in span]
        self._due = min((flip for flip in changes if flip is not None and flip > now), default=NEVER)
        self._ahead = sorted(
            (begin, node) for node in self.by_node if (begin := self._next_begin(node, now)) is not None
        )
        left = ((node, *span) for node, spans in self.kept.items() for span in spans if span[1] > now)
        self._kept_ahead = sorted((begin if begin > now else -NEVER, node) for node, begin, _ in left)
        self._masks.clear()
        self._asleep = None

    @contextmanager
    def without_kept(self) -> Iterator[None]:
        """Masks keep nobody off reserved cards meanwhile."""
        kept_ahead, self._kept_ahead = self._kept_ahead, []
        try:
            yield
        finally:
            self._kept_ahead = kept_ahead

    def is_kept(self, node: str, instant: float) -> bool:
        """Whether cards of a node are reserved at an instant."""
        return any(begin <= instant < until for begin, until in self.kept.get(node, ()))

    def _next_begin(self, node: str, now: float) -> float | None:
        """When a node that is open, or off, closes."""
        if any(each.covers(now) for each in self.by_node[node]):
            return None
        return min((each.begin for each in self.by_node[node] if each.begin > now), default=None)

    # ---- what is closed, and until when -------------------------------------------------------------------------

    def at(self, node: str, now: float) -> Cordon | None:
        """What keeps a node closed now, of several the one that ends last, and its power; None when it is open."""
        covering = [each for each in self.by_node.get(node, ()) if each.covers(now)]
        closure = max(covering, key=lambda each: NEVER if each.until is None else each.until, default=None)
        power = self.power.get(node)
        if power is None or not power.is_closed:
            return closure
        if closure is None:
            return Cordon(power.since, reason=power_text(power, now))
        return replace(closure, reason=f"{closure.reason or 'cordoned'}; {power_text(power, now)}")

    def next_of(self, node: str, now: float) -> Cordon | None:
        """What closes a node next; None when nothing is planned."""
        return next((each for each in self.by_node.get(node, ()) if each.begin > now), None)

    def is_draining(self, node: str) -> bool:
        """Whether preemptible work there has been asked to leave."""
        return node in self._drained

    @property
    def has_spans(self) -> bool:
        """Whether there are such nodes."""
        return bool(self.by_node or self.kept or self.power)

    @property
    def concerned(self) -> tuple[str, ...]:
        """The nodes that are closed or to be closed, or of which cards are reserved."""
        return tuple(dict.fromkeys((*self.by_node, *self.kept, *self._down)))

    def opens_at(self, node: str, instant: float) -> float:
        """The first instant from the given one on at which the node is open to all; ``NEVER`` when it stays closed."""
        power = self.power.get(node)
        if power is not None and power.is_closed:
            return NEVER
        while True:
            if (closure := self.at(node, instant)) is not None:
                if closure.until is None:
                    return NEVER
                instant = closure.until
            elif until := max((end for begin, end in self.kept.get(node, ()) if begin <= instant < end), default=0.0):
                instant = until
            else:
                return instant

    def earliest(self, node: str, instant: float, length_s: float) -> float:
        """The first instant from the given one on at which so long a span without a closure begins."""
        begins = [each.begin for each in self.by_node.get(node, ())]
        begins += [begin for begin, _ in self.kept.get(node, ())]
        while True:
            instant = self.opens_at(node, instant)
            begin = min((begin for begin in begins if begin > instant), default=NEVER)
            if instant == NEVER or begin >= instant + length_s:
                return instant
            instant = begin

    def flips(self, now: float) -> list[Flip]:
        """Every closing and opening to come, in order; of reserved cards nothing is said."""
        return list(heapq.merge(*(self._flips_of(node, now) for node in self.by_node), key=lambda flip: flip.at))

    def _flips_of(self, node: str, now: float) -> Iterator[Flip]:
        closed = node in self._cluster.closed
        instants = {flip for each in self.by_node.get(node, ()) for flip in (each.begin, each.until)}
        for instant in sorted(flip for flip in instants if flip is not None and flip > now):
            if (self.at(node, instant) is not None) != closed:
                closed = not closed
                yield Flip(instant, node, closed)

    # ---- who may start there ------------------------------------------------------------------------------------

    @property
    def has_closings_ahead(self) -> bool:
        """Whether a node that is open is to be closed, or cards of one are reserved."""
        return bool(self._ahead or self._kept_ahead)

    def reach(self, record: JobRecord, time_left: TimeLeft, now: float) -> int:
        """How many of the closings ahead a job would run into if it started now; 0: it may start on any open node."""
        if not self._ahead:
            return 0
        return bisect_left(self._ahead, (stays_until(record, time_left, now), ""))

    def kept_reach(self, record: JobRecord, time_left: TimeLeft, now: float) -> int:
        """How many of the reserved spans, those that have begun first; from these it has to be gone in time."""
        if not self._kept_ahead:
            return 0
        return bisect_left(self._kept_ahead, (holds_until(record, time_left, now), ""))

    def mask(self, reach: int, kept_reach: int = 0) -> NodeMask:
        """(nodes,), 0 for the nodes of the first so many closings ahead, and of the first so many reserved spans."""
        key = (reach, kept_reach, self._cluster.arrays.node_count)
        mask = self._masks.get(key)
        if mask is None:
            mask = np.ones(self._cluster.arrays.node_count, dtype=np.uint8)
            for _, node in (*self._ahead[:reach], *self._kept_ahead[:kept_reach]):
                index = self._cluster.node_index.get(node)
                if index is not None:
                    mask[index] = 0
            self._masks[key] = mask
        return mask

    def closing(self, reach: int) -> list[str]:
        """The nodes of the first so many closings ahead."""
        return [node for _, node in self._ahead[:reach]]

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain data, what has been carried out included."""
        return {
            "nodes": {node: [to_plain(each) for each in found] for node, found in self.by_node.items()},
            "closed": sorted(self._cluster.closed),
            "drained": sorted(self._drained),
            "as_of": None if self._as_of == -NEVER else self._as_of,
            "power": {node: to_plain(power) for node, power in self.power.items()},
        }  # what is reserved follows from the reservations

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned, before any node is added, and after ``keep``."""
        self.by_node = {node: tuple(map(from_plain, found)) for node, found in plain["nodes"].items()}
        self.power = {node: from_plain(power) for node, power in plain["power"].items()}
        self._cluster.closed.update(plain["closed"])
        self._drained = set(plain["drained"])
        self._look_ahead(-NEVER if plain["as_of"] is None else plain["as_of"])


def power_text(power: NodePower, now: float) -> str:
    """Why a node that was switched is closed."""
    match power.state:
        case NodePowerState.BOOTING if power.ready_at is not None and power.ready_at > now:
            return f"booting, about {math.ceil((power.ready_at - now) / 60)} min"
        case NodePowerState.BOOTING:
            return "booting, for longer than usual"
        case NodePowerState.FAILED:
            pause_s = power.since + RETRY_S - now
            pause = f", not tried again for about {math.ceil(pause_s / 60)} min" if pause_s > 0.0 else ""
            return f"off after a failed boot{pause}: {power.detail}"
        case NodePowerState.DRAINING:
            return "being switched off to save energy"
        case _:
            return "off to save energy"


def stays_until(record: JobRecord, time_left: TimeLeft, now: float) -> float:
    """Until when a job that started now would keep its place on a node that is to be emptied (see above)."""
    job = record.job
    is_known = record.cautious_s is not None or job.time_limit_s is not None
    if job.preemptible and (not is_known or job.checkpoint.mode is CheckpointMode.SIGNAL):
        return now
    if not is_known:
        return NEVER
    if job.time_limit_s is not None and not job.preemptible:
        return now + max(job.time_limit_s - record.service_s(now), 0.0) + debt_s(record, now)
    return time_left.cautious_end(record, now)


def holds_until(record: JobRecord, time_left: TimeLeft, now: float) -> float:
    """Until when a job that started now would have its place, if it were asked to leave at once for who reserved it."""
    stays = stays_until(record, time_left, now)
    if stays > now:
        return stays
    return math.nextafter(now + record.job.checkpoint.grace_s + MARGIN_S, math.inf)


def stays_beside_reserved(record: JobRecord, time_left: TimeLeft, now: float) -> float:
    """Until when a job that started now counts beside the reservations that begin while it is there."""
    return (holds_until if record.job.preemptible else stays_until)(record, time_left, now)
