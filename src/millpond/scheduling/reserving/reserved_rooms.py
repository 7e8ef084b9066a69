"""What is kept for advance reservations: on which nodes, how many cards of each, and who has started on them.

A reservation is a number of cards until its nodes are chosen, a day before it begins (``reserving.upkeep``): which
nodes there will be, and what will run on them, is not known long before. From then on the nodes are kept: ``Cordons``
holds all others off them by the rule for nodes that are to be closed, so that nothing known to run into the span starts
there. The cards that its queue has not taken yet count as held by the queue while it lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.errors import NotFoundError
from millpond.model.resources import CARD_MILLI
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.workloads import Job
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.nodes.cordon import Cordons
from millpond.scheduling.records import JobRecord


@dataclass(slots=True)
class ReservedRoom:
    """One reservation and what is kept for it.

    Attributes:
        wanted: what was agreed.
        cards_on: by name of the node, how many of its cards are kept; empty before they are chosen.
        is_settled: they were chosen for the last time, and others are asked to leave them.
        users: by id, the run of each job that started on them.
    """

    wanted: AdvanceReservation
    cards_on: dict[str, int] = field(default_factory=dict)
    is_settled: bool = False
    users: dict[str, int] = field(default_factory=dict)

    def has_user(self, record: JobRecord) -> bool:
        """Whether this run of a job started on its cards."""
        return self.users.get(record.id) == record.attempt

    def copy(self) -> ReservedRoom:
        """The same by itself."""
        return ReservedRoom(self.wanted, dict(self.cards_on), self.is_settled, dict(self.users))


def most_kept(rooms: Iterable[ReservedRoom], begin: float, until: float) -> dict[str, int]:
    """Of each node, by name, the most cards that are kept for reservations at any one instant of a span."""
    there = [room for room in rooms if room.wanted.overlaps(begin, until)]
    most: dict[str, int] = {}
    for instant in {begin, *(room.wanted.begin for room in there if room.wanted.begin > begin)}:
        kept: dict[str, int] = {}
        for room in there:
            for node, cards in room.cards_on.items() if room.wanted.covers(instant) else ():
                kept[node] = kept.get(node, 0) + cards
        for node, cards in kept.items():
            most[node] = max(most.get(node, 0), cards)
    return most


class ReservedRooms:
    """All reservations that are not over.

    Attributes:
        by_name: in the order in which they were made.
        version: rises when other nodes are kept.
        counted_ahead: those to come that count in the quotas of a job which is asked about.
    """

    def __init__(self, cordons: Cordons) -> None:
        self._cordons = cordons
        self.by_name: dict[str, ReservedRoom] = {}
        self.version = 0
        self.counted_ahead: list[ReservedRoom] = []

    def copy_from(self, other: ReservedRooms) -> None:
        """Have the same, where the cordons have been copied."""
        self.by_name = {name: room.copy() for name, room in other.by_name.items()}
        self.version = other.version

    # ---- changes ------------------------------------------------------------------------------------------------

    def put(self, wanted: AdvanceReservation) -> None:
        """Enter a reservation, or change it: those who run on its cards keep them, all others are chosen anew."""
        before = self.by_name.get(wanted.name)
        self.by_name[wanted.name] = ReservedRoom(wanted, users={} if before is None else before.users)
        self._kept_changed()

    def drop(self, name: str) -> None:
        """It is over, or given up."""
        del self.by_name[name]
        self._kept_changed()

    def keep(self, room: ReservedRoom, cards_on: Mapping[str, int], *, is_settled: bool) -> None:
        """Keep cards of these nodes from now on."""
        room.cards_on, room.is_settled = dict(cards_on), is_settled
        self._kept_changed()

    def _kept_changed(self) -> None:
        spans: dict[str, list[tuple[float, float]]] = {}
        for room in self.by_name.values():
            for node in room.cards_on:
                spans.setdefault(node, []).append((room.wanted.begin, room.wanted.until))
        self._cordons.keep({node: tuple(sorted(found)) for node, found in spans.items()})
        self.version += 1

    # ---- questions ----------------------------------------------------------------------------------------------

    def required_by(self, job: Job) -> ReservedRoom | None:
        """The reservation on whose cards alone a job starts; None where it requires none, or only one that is over.

        Another one may bear its name by then, for another queue or in another pool.
        """
        room = self.by_name.get(job.reservation)
        return room if room is not None and (room.wanted.queue, room.wanted.pool) == (job.queue, job.pool) else None

    def open_to(self, record: JobRecord, now: float) -> list[ReservedRoom]:
        """The reservations on whose cards a job may start now."""
        if not self.by_name or record.job.is_background:
            return []
        required = record.job.reservation
        return [
            room
            for name, room in self.by_name.items()
            if room.wanted.queue == record.queue
            and room.wanted.pool == record.job.pool
            and room.cards_on
            and room.wanted.covers(now)
            and required in ("", name)
        ]

    def unused(self, room: ReservedRoom, running: Mapping[str, JobRecord], cluster: Cluster) -> dict[str, int]:
        """By name of the node, how much of its kept cards, in milli, nobody who started on them holds."""
        names = {cluster.node_index[name]: name for name in room.cards_on if name in cluster.node_index}
        left = {name: room.cards_on[name] * CARD_MILLI for name in names.values()}
        for job in room.users:
            record = running.get(job)
            if record is None or not room.has_user(record):
                continue
            for task in record.tasks:
                if task.holding is not None and (name := names.get(task.holding.node)) is not None:
                    left[name] -= task.holding.shape.total_compute_milli
        return {name: max(milli, 0) for name, milli in left.items()}

    def awaited_jobs(self, room: ReservedRoom, running: Mapping[str, JobRecord]) -> int:
        """How many jobs have to start at least on its kept cards: one, unless one runs there."""
        return int(not any(job in running and room.has_user(running[job]) for job in room.users))

    def used_nodes(self, room: ReservedRoom, running: Mapping[str, JobRecord]) -> set[int]:
        """The nodes, by index, of those who started on the kept cards."""
        users = (running[job] for job in room.users if job in running)
        tasks = (task for record in users if room.has_user(record) for task in record.tasks)
        return {task.holding.node for task in tasks if task.holding is not None}

    def require(self, name: str) -> ReservedRoom:
        """The reservation of this name.

        Raises:
            NotFoundError: there is none.
        """
        if name not in self.by_name:
            raise NotFoundError(f"no reservation {name!r}", "`pond reservations` lists them")
        return self.by_name[name]

    def beside(self, name: str) -> list[ReservedRoom]:
        """All but the one of this name."""
        return [room for other, room in self.by_name.items() if other != name]

    def has_user(self, record: JobRecord) -> bool:
        """Whether this run of a job started on reserved cards."""
        return any(room.has_user(record) for room in self.by_name.values())

    def uses_at(self, record: JobRecord, instant: float, own: ReservedRoom) -> bool:
        """Whether this run of a job started on the cards of a reservation, or of another that holds then."""
        others = (room for room in self.by_name.values() if room.wanted.covers(instant))
        return own.has_user(record) or any(room.has_user(record) for room in others)

    def requires(self, record: JobRecord) -> bool:
        """Whether a job may start on the cards of a reservation alone."""
        return self.required_by(record.job) is not None

    @property
    def users(self) -> frozenset[str]:
        """The jobs, by id, that started on reserved cards; some of them may have another run by now."""
        return frozenset(job for room in self.by_name.values() for job in room.users)

    def queues_served(self, now: float) -> set[str]:
        """The queues for which cards are kept now."""
        return {room.wanted.queue for room in self.by_name.values() if room.cards_on and room.wanted.covers(now)}

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """Everything as plain data."""
        return [[to_plain(room.wanted), room.cards_on, room.is_settled, room.users] for room in self.by_name.values()]

    def restore(self, plain: Iterable[Any]) -> None:
        """Take over what ``snapshot`` returned, before the cordons are restored."""
        for wanted, cards_on, is_settled, users in plain:
            room = ReservedRoom(from_plain(wanted), dict(cards_on), is_settled, dict(users))
            self.by_name[room.wanted.name] = room
        self._kept_changed()

    def kept_plain(self) -> list[Any]:
        """Which nodes are kept for which reservation, as plain data: what a cycle chooses."""
        return [[name, room.cards_on, room.is_settled] for name, room in self.by_name.items()]

    def keep_again(self, plain: Iterable[Any]) -> None:
        """Let these nodes be kept, as ``kept_plain`` wrote it."""
        for name, cards_on, is_settled in plain:
            room = self.by_name.get(name)
            if room is not None and (room.cards_on, room.is_settled) != (cards_on, is_settled):
                self.keep(room, cards_on, is_settled=is_settled)
