"""Random walks over worlds in which queues are owed cells, with what must hold at every step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from twinned import TwinnedWorld
from worlds import asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Decision, Stop, Suspend
from millpond.model.errors import InvalidInputError, MillpondError
from millpond.model.events import (
    DeviceHealthChanged,
    MigrateRequested,
    NodeJoined,
    NodeLost,
    QueueChanged,
    ReservationMade,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.hardware.topology import Level
from millpond.model.resources import CARD_MILLI, TaskRequest
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import ROOT_QUEUE, Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority, Role
from millpond.scheduling.ledger.holdings import FROZEN, RUNNING
from millpond.scheduling.reclaiming.roster import SLOT_IN_CELLS
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.cells.book import CellBook
from millpond.scheduling.tenancy.cells.chains import Chain
from millpond.scheduling.tenancy.cells.uses import CardPart

OWNERS = ("a", "b", "c")
CARDS = {"8 cards": 8, "socket": 4, "switch": 2, "card": 1}
MOST_WAITING = 12
"""If more wait, one of them does so no longer: a cycle looks at each of them, and most ask for the same."""


def book_of(core: Scheduler) -> CellBook:
    return core._state.cluster.cells  # no decision shows them


def picture(book: CellBook) -> Any:
    """All that a book says, in a form that can be compared."""
    if book.allocator is None:
        return None
    return [
        (
            name,
            chain.clean,
            chain.spare,
            chain.demand,
            chain.gone,
            chain.visitors,
            sorted(chain.holders.items()),
            sorted(chain.parts.items()),
            sorted((cell, domain.cluster, domain.pin) for cell, domain in chain.bound.items()),
        )
        for name, chain in book.allocator.chains.items()
    ]


class WatchedWorld(TwinnedWorld):
    """A world in which no cycle breaks into cells.

    Nothing that is in cells leaves for work of other queues, and whatever is placed, as much of what is owed has a
    place as before, but for what a queue has given up itself: cells of its work of lower classes.

    Attributes:
        rounds: in how many cycles others were asked to leave for a job.
    """

    def __init__(self, *nodes: Node, **fields: Any) -> None:
        self.rounds: Counter[str] = Counter()
        super().__init__(*nodes, **fields)

    def tick(self) -> list[Decision]:
        book, jobs = book_of(self.core), self.core.jobs
        # What lies in cells may lose its right to them when machines or guarantees have changed.
        in_cells = set() if book.stale else {job.id for job in jobs.values() if is_wholly_in_cells(job)}
        before, unbound = ({}, {}) if book.stale else (self.with_claims(shortages), self.with_claims(unbound_cells))
        demoted = dict(book.demoted)
        decisions = super().tick()
        self.rounds.update({each.for_job for each in decisions if isinstance(each, Stop | Suspend) and each.for_job})
        losers = {each for job in book.demoted.keys() - demoted.keys() for each in book.clusters_of(jobs[job].queue)}
        now_unbound = self.with_claims(unbound_cells)
        given_up = {key: now - unbound[key] for key, now in now_unbound.items() if unbound and key[0] in losers}
        after = self.with_claims(lambda book: shortages(book, given_up)) if before else {}
        for name, short in after.items():
            assert all(now <= then for now, then in zip(short, before[name], strict=True)), (name, before, decisions)
        for each in decisions:
            if isinstance(each, Stop | Suspend) and each.job in in_cells and each.for_job:
                is_own = jobs[each.for_job].queue == jobs[each.job].queue
                assert is_own or each.job in book.demoted, f"{each} was in cells, and lost none to its queue"
        for job in self.core._state.running.values():
            if job.slot >= 0:
                assert book.is_in_cells(job) == self.core._state.roster.slots[SLOT_IN_CELLS, job.slot], job.id
        return decisions

    def with_claims(self, look: Callable[[CellBook], dict[Any, Any]]) -> dict[Any, Any]:
        """What a book says while the cells of places that are claimed count as used, as they do in each cycle."""
        journal = self.core._state.journal
        mark = journal.begin()
        self.core._claims.charge(1)
        found = look(book_of(self.core))
        journal.rollback(mark)
        return found


class CellWalk:
    """A world of machines and queues on which everything happens at random."""

    pools: tuple[Pool, ...] = ()

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.sizes = [self.draw.choice((4, 8, 8)) for _ in range(self.draw.randint(2, 6))]
        self.nodes = [
            replace(
                machine(f"n{number}", cards, rack_name=f"r{number // 2}", swap_mib=500_000, remaps=True),
                labels=(("host", f"n{number}"),),
            )
            for number, cards in enumerate(self.sizes)
        ]
        self.world = WatchedWorld(*self.nodes, queues=(*self.queues(), self.others()), pools=self.pools)
        self.names = iter(range(1_000_000))
        self.lost: set[str] = set()
        self.ran: set[str] = set()

    def others(self) -> Queue:
        """The queue without cells; some of its work may be such that it never leaves."""
        return queue("others", guarantee=self.draw.choice((0, 0, 2, 4)))

    def queues(self) -> list[Queue]:
        """Cells that fit together on all machines: at most one machine or its halves for each."""
        owed: dict[str, list[CellCount]] = {name: [] for name in OWNERS}
        eights = sum(size == 8 for size in self.sizes)
        for _ in range(self.draw.randint(0, eights)):
            level, count = self.draw.choice((("8 cards", 1), ("socket", 2), ("switch", 3), ("card", 5)))
            owed[self.draw.choice(OWNERS)].append(CellCount(level, count))
        return [
            queue(name, guarantee=sum(CARDS[cell.level] * cell.count for cell in cells), cells=merged(cells))
            for name, cells in owed.items()
        ]

    def step(self) -> None:
        draw, world = self.draw, self.world
        running = sorted(world.running())
        match draw.randrange(12):
            case 0 | 1 | 2 | 3:
                self.submit("others", self.draw.choice((1, 1, 2, 4)))
            case 4 | 5 | 6:
                self.submit(draw.choice(OWNERS), draw.choice((1, 2, 4, 8)))
            case 7 | 8 if running:
                world.end(draw.choice(running))
            case 9:
                node = draw.choice([node for node in self.nodes if node.name not in self.lost] or self.nodes)
                health = draw.choice((DeviceHealth.OK, DeviceHealth.OK, DeviceHealth.FAULTY))
                if node.name not in self.lost:
                    device = draw.choice(node.devices)
                    world.tell(DeviceHealthChanged(world.now, node.name, device.uuid, health, "test"))
            case 10:
                node = draw.choice(self.nodes)
                if node.name in self.lost:
                    self.lost.remove(node.name)
                    world.tell(NodeJoined(world.now, node))
                elif draw.random() < 0.3:
                    self.lost.add(node.name)
                    world.tell(NodeLost(world.now, node.name))
            case _:
                if draw.random() < 0.2:
                    self.change_queue()
        world.go_to(world.now + draw.choice((0.0, 1.0, 60.0)))
        world.settle()
        # As a server does; else each copy has all that ever ran.
        for job in [job for job, record in world.core.jobs.items() if record.state.ended]:
            world.core.forget(job)

    def submit(self, owner: str, cards: int) -> None:
        draw, fields = self.draw, {"queue": owner}
        job = f"{owner}{next(self.names)}"
        fields["preemptible"] = draw.random() < 0.8
        fields["priority"] = draw.choice((Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH))
        made = gang(job, 2, asks(cards // 2), **fields) if cards > 1 and draw.random() < 0.3 else None
        self.world.submit(made or single(job, cards, **fields))

    def request_of_cell(self, job: str, owner: str, cards: int) -> Job:
        """What asks for one of the cells that a queue has left."""
        return single(job, cards, queue=owner)

    def change_queue(self) -> None:
        (changed,) = self.draw.sample(self.queues(), 1)
        with suppress(InvalidInputError):  # too much beside the others
            self.world.tell(QueueChanged(self.world.now, changed))

    def check(self, *, copies: bool) -> None:
        core = self.world.core
        book = book_of(core)
        for chain in () if book.allocator is None else book.allocator.chains.values():
            check_chain(chain)
        if not book.stale:
            self.check_rights(book)
            self.check_verdicts(book)
        if copies and not book.stale:
            assert picture(book_of(Scheduler.restore(core.snapshot()))) == picture(book)
            assert picture(book_of(core.fork())) == picture(book)

    def check_rights(self, book: CellBook) -> None:
        """What is in a cell has it to itself, or with parts of its queue; a gang is in cells wholly or not at all."""
        shared: dict[tuple[str, int], list[tuple[str, CardPart]]] = {}
        for record in self.world.core.jobs.values():
            holdings = [task.holding for task in record.tasks if task.holding is not None]
            for holding in (each for each in holdings if each.is_in_cell):
                assert holding.stake.use.cluster in book.clusters_of(record.queue)
                for name, leaves in book.cards_of(holding).items():
                    chain = book.allocator.chains[name]
                    domains = {chain.bound[chain.bound_cell(leaf)] for leaf in leaves}
                    assert {domain.cluster for domain in domains} == {holding.stake.use.cluster}
                    if (part := holding.stake.use.part) is None:
                        assert not any(chain.visitors[0][leaf] for leaf in leaves)
                    else:
                        shared.setdefault((name, *leaves), []).append((record.id, part))
            on_cards = [each for each in holdings if each.devices and each.hold in (RUNNING, FROZEN)]
            assert record.elastic or len({each.is_in_cell for each in on_cards}) < 2
        for name, chain in () if book.allocator is None else book.allocator.chains.items():
            for leaf, parts in chain.parts.items():
                assert parts == sorted(shared.pop((name, leaf)))
                assert sum(part.compute_milli for _, part in parts) <= CARD_MILLI
        assert not shared

    def check_verdicts(self, book: CellBook) -> None:
        """What has started, all cards being well, is not among what is refused as it could never run."""
        core, running = self.world.core, self.world.running()
        is_well = not (self.lost or book._lost)
        for job in running - self.ran if is_well else ():
            assert core.check(core.jobs[job].job) is None, job
        self.ran = running


def shortages(
    book: CellBook, given_up: Mapping[tuple[str, str, int], int] = MappingProxyType({})
) -> dict[str, list[int]]:
    """By chain and level, how much of what is owed has no place.

    Args:
        given_up: by queue, chain and level, how many cells count as owed no longer.
    """
    chains = {} if book.allocator is None else book.allocator.chains
    for (_, name, level), count in given_up.items():
        chains[name].demand[level] -= max(0, count)
    found = {name: chain.shortage() for name, chain in chains.items()}
    for (_, name, level), count in given_up.items():
        chains[name].demand[level] += max(0, count)
    return found


def unbound_cells(book: CellBook) -> dict[tuple[str, str, int], int]:
    """By queue, chain and level, how many of its cells nobody uses."""
    return {
        (cluster.name, domain.chain.spec.name, level): count
        for cluster in (() if book.allocator is None else book.allocator.clusters)
        for domain in book.domains_of(cluster.name)
        for level, count in enumerate(domain.unbound)
    }


def merged(cells: list[CellCount]) -> tuple[CellCount, ...]:
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell.level] = counts.get(cell.level, 0) + cell.count
    return tuple(CellCount(level, count) for level, count in counts.items())


def check_chain(chain: Chain) -> None:
    """Each card is in a clean cell, in a bound one, or gone; and what can be joined is."""
    for leaf in range(len(chain.gone[0])):
        states = [chain.is_clean(0, leaf), chain.bound_cell(leaf) is not None]
        assert sum(states) <= 1
        assert any(states) or chain.gone[0][leaf]
    for level in range(chain.top):
        fan = chain.fans[level]
        for parent in range(len(chain.gone[level + 1])):
            assert not all(chain.clean[level] >> cell & 1 for cell in range(parent * fan, (parent + 1) * fan))


def is_wholly_in_cells(job: JobRecord) -> bool:
    """A gang of which a task is a visitor elsewhere leaves with that."""
    holdings = [task.holding for task in job.tasks]
    return bool(holdings) and all(each is not None and (each.is_in_cell or not each.devices) for each in holdings)


def walk(one: CellWalk, steps: int, checks_every: int = 1) -> None:
    """So many steps, with what must hold after each, and in copies after some."""
    for number in range(steps):
        one.step()
        one.check(copies=number % checks_every == 0)


class CellWalkOnAllPaths(CellWalk):
    """The same with gangs that grow, work that is suspended, resumed and moved, turns, and reservations."""

    pools = (Pool(suspends=True, turn_s=300.0),)

    def step(self) -> None:
        draw, world = self.draw, self.world
        jobs = sorted(job for job, record in world.core.jobs.items() if record.started_at is not None)
        suspended = sorted(job for job, record in world.core.jobs.items() if record.suspended_by)
        with suppress(MillpondError):  # what cannot be is refused, and nothing is changed
            match draw.randrange(8):
                case 0:
                    self.submit_elastic(draw.choice((*OWNERS, "others")))
                case 1 if jobs:
                    world.tell(SuspendRequested(world.now, draw.choice(jobs), swap=draw.random() < 0.7))
                case 2 | 3 if suspended:
                    world.tell(ResumeRequested(world.now, draw.choice(suspended)))
                case 4 if jobs:
                    world.tell(MigrateRequested(world.now, draw.choice(jobs), restart=draw.random() < 0.5))
                case 5 if draw.random() < 0.3:
                    self.reserve()
        super().step()
        waiting = [job for job, record in world.core.jobs.items() if record.line]
        if len(waiting) > MOST_WAITING:
            world.tell(StopRequested(world.now, draw.choice(waiting)))

    def submit_elastic(self, owner: str) -> None:
        draw, least = self.draw, self.draw.randint(1, 2)
        bounds = least, least + draw.randint(0, 2), least + 3
        fields = {"queue": owner, "preemptible": draw.random() < 0.8, "checkpoint": Checkpoint(CheckpointMode.SIGNAL)}
        self.world.submit(elastic(f"{owner}{next(self.names)}", bounds, asks(draw.choice((1, 1, 2))), **fields))

    def reserve(self) -> None:
        draw, begin = self.draw, self.world.now + self.draw.choice((0.0, 600.0))
        name, owner, cards = f"r{next(self.names)}", draw.choice((*OWNERS, "others")), draw.randint(1, 4)
        wanted = AdvanceReservation(name, owner, cards, begin, begin + 600.0)
        self.world.tell(ReservationMade(self.world.now, wanted))


class CellWalkInHierarchies(CellWalk):
    """The same with groups that are owed cells, and hand some on to the queues below them, whole or in part."""

    GROUPS = {"a": "g", "b": "g", "c": "h"}  # noqa: RUF012

    def queues(self) -> list[Queue]:
        owed: dict[str, list[CellCount]] = {name: [] for name in (*OWNERS, *self.GROUPS.values())}
        handed_on = {"8 cards": (("socket", 1), ("switch", 3)), "socket": (("switch", 1), ("card", 3)), "switch": ()}
        for _ in range(self.draw.randint(0, sum(size == 8 for size in self.sizes))):
            level, count = self.draw.choice((("8 cards", 1), ("socket", 2), ("switch", 4)))
            owner = self.draw.choice(OWNERS)
            owed[self.GROUPS[owner]].append(CellCount(level, count))
            for _ in range(self.draw.randint(0, count)):
                parts = ((level, 1), *handed_on[level])
                owed[owner].append(CellCount(*self.draw.choice(parts)))
        found = []
        for name, cells in owed.items():
            amount = sum(CARDS[cell.level] * cell.count for cell in cells)
            found.append(queue(name, guarantee=amount, cells=merged(cells), parent=self.GROUPS.get(name, ROOT_QUEUE)))
        return sorted(found, key=lambda each: each.name in OWNERS)

    def change_queue(self) -> None:
        changed = [each for each in self.queues() if each.name in OWNERS]
        with suppress(InvalidInputError):
            self.world.tell(QueueChanged(self.world.now, self.draw.choice(changed)))


class CellWalkBesideSlices(CellWalk):
    """The same where all run on parts of cards too."""

    def submit(self, owner: str, cards: int) -> None:
        draw = self.draw
        is_others = owner == "others"
        if draw.random() < (0.3 if is_others else 0.6):
            super().submit(owner, cards)
            return
        job, stays = f"{owner}{next(self.names)}", draw.random() < (0.2 if is_others else 0.9)
        request = asks(draw.choice((0.25, 0.5, 0.7)))
        self.world.submit(gang(job, draw.choice((1, 1, 2)), request, queue=owner, preemptible=not stays))

    def request_of_cell(self, job: str, owner: str, cards: int) -> Job:
        """Now and then a part of a card."""
        if self.draw.random() < 0.5:
            return super().request_of_cell(job, owner, cards)
        return gang(job, 1, asks(self.draw.choice((0.3, 0.5, 1.0))), queue=owner, preemptible=False)


class CellWalkOfGangs(CellWalk):
    """The same with gangs whose tasks differ, must lie together or apart, or take no cards."""

    def submit(self, owner: str, cards: int) -> None:
        draw = self.draw
        if cards == 1 or draw.random() < 0.3:
            super().submit(owner, cards)
            return
        parts = [draw.choice((0.0, 0.25, 0.5)) for _ in range(draw.choice((0, 1, 2)))]
        wholes = [cards // 2, cards // 2] if draw.random() < 0.5 else [cards]
        names = [f"role{number}" for number in range(len(wholes) + len(parts))]
        roles = [
            Role(asks(share) if share else TaskRequest(1000, 1024), name=name)
            for name, share in zip(names, (*wholes, *parts), strict=True)
        ]
        job, fields = f"{owner}{next(self.names)}", dict[str, Any](queue=owner, preemptible=draw.random() < 0.4)
        match draw.randrange(4):
            case 0:
                fields |= {"together": draw.choice((Level.NODE, Level.RACK)), "together_required": True}
            case 1:
                fields["spacing"] = (SpacingRule(SpacingKind.TOGETHER, "host", tuple(names[:2])),)
            case 2:
                fields["spacing"] = (SpacingRule(SpacingKind.APART, "host", tuple(names), tuple(names)),)
        self.world.submit(Job(job, tuple(roles), **fields))

    def check(self, *, copies: bool) -> None:
        super().check(copies=copies)
        by_name = {node.name: node for node in self.nodes}
        for record in self.world.core.jobs.values():
            nodes = [by_name[place.node] for task in record.tasks if (place := task.placement)]
            if record.job.together_required:
                assert len({node.rack_name if record.job.together is Level.RACK else node.name for node in nodes}) < 2
            for rule in record.job.spacing:
                apart = rule.kind is SpacingKind.APART
                where = [node.name for node in nodes[: None if apart else 2]]
                assert len(set(where)) == (len(where) if apart else min(len(where), 1))

    def request_of_cell(self, job: str, owner: str, cards: int) -> Job:
        """With a task beside the cell."""
        roles = Role(asks(cards)), Role(TaskRequest(1000, 1024), name="beside")
        return Job(job, roles, queue=owner)


def require_what_is_owed(one: CellWalk) -> None:
    """What asks for one of the cells that its queue has left starts after one round of reclaim.

    Nothing waits then, and the queues' own work that is in no cells has ended: it leaves for higher classes alone.
    """
    world, asked = one.world, list[str]()
    for record in list(world.core.jobs.values()):
        if record.line or (record.queue in OWNERS and not record.state.ended and not is_wholly_in_cells(record)):
            world.tell(StopRequested(world.now, record.id))
    world.settle()
    while left := sorted(cells_left(one)):
        owner, cards = one.draw.choice(left)
        asked.append(f"{owner}{next(one.names)}")
        world.submit(one.request_of_cell(asked[-1], owner, cards))
        assert world.state(asked[-1]) is JobState.RUNNING, (owner, cards, left)
        assert world.rounds[asked[-1]] <= 1
    for job in asked:
        world.tell(StopRequested(world.now, job))
    world.settle()


def cells_left(one: CellWalk) -> set[tuple[str, int]]:
    """Queues, and of how many cards there are cells that these, or queues above them, are owed and do not use."""
    book = book_of(one.world.core)
    return {
        (owner, domain.chain.size[level])
        for owner in OWNERS
        for cluster in book.clusters_of(owner)
        for domain in book.domains_of(cluster)
        for level in range(domain.chain.node_level + 1)
        if domain.unbound[level] > book.doomed(domain, level)
    }
