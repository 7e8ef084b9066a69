"""Random worlds with cells: what is owed is there, what is in cells stays, and every copy has the same cells."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from worlds import World, asks, gang, machine, queue, single

from millpond.model.cells import CellCount
from millpond.model.decisions import Decision, Stop, Suspend
from millpond.model.devices import DeviceHealth
from millpond.model.errors import InvalidInputError
from millpond.model.events import DeviceHealthChanged, NodeJoined, NodeLost, QueueChanged
from millpond.model.states import JobState
from millpond.model.tenants import Queue
from millpond.model.workloads import Priority
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.cells.book import CellBook
from millpond.scheduling.tenancy.cells.chains import Chain

OWNERS = ("a", "b", "c")


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
            sorted((cell, domain.cluster, domain.pin) for cell, domain in chain.bound.items()),
        )
        for name, chain in book.allocator.chains.items()
    ]


class WatchedWorld(World):
    """A world in which nothing that is in cells may leave for work of other queues."""

    def tick(self) -> list[Decision]:
        book, jobs = book_of(self.core), self.core.jobs
        # What lies in cells may lose its right to them when machines or guarantees have changed.
        in_cells = set() if book.stale else {job.id for job in jobs.values() if is_wholly_in_cells(job)}
        decisions = super().tick()
        for each in decisions:
            if isinstance(each, Stop | Suspend) and each.job in in_cells and each.for_job:
                is_own = jobs[each.for_job].queue == jobs[each.job].queue
                assert is_own or each.job in book.demoted, f"{each} was in cells, and lost none to its queue"
        return decisions


class Walk:
    """A world of machines and queues on which everything happens at random."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.sizes = [self.draw.choice((4, 8, 8)) for _ in range(self.draw.randint(2, 6))]
        self.nodes = [
            machine(f"n{number}", cards, rack_name=f"r{number // 2}") for number, cards in enumerate(self.sizes)
        ]
        self.world = WatchedWorld(*self.nodes, queues=(*self.queues(), queue("others")))
        self.names = iter(range(1_000_000))
        self.lost: set[str] = set()

    def queues(self) -> list[Queue]:
        """Cells that fit together on all machines: at most one machine or its halves for each."""
        owed: dict[str, list[CellCount]] = {name: [] for name in OWNERS}
        eights = sum(size == 8 for size in self.sizes)
        for _ in range(self.draw.randint(0, eights)):
            level, count = self.draw.choice((("8 cards", 1), ("socket", 2), ("switch", 3), ("card", 5)))
            owed[self.draw.choice(OWNERS)].append(CellCount(level, count))
        cards = {"8 cards": 8, "socket": 4, "switch": 2, "card": 1}
        return [
            queue(name, guarantee=sum(cards[cell.level] * cell.count for cell in cells), cells=merged(cells))
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

    def submit(self, owner: str, cards: int) -> None:
        draw, fields = self.draw, {"queue": owner}
        job = f"{owner}{next(self.names)}"
        fields["preemptible"] = draw.random() < 0.8
        fields["priority"] = draw.choice((Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH))
        made = gang(job, 2, asks(cards // 2), **fields) if cards > 1 and draw.random() < 0.3 else None
        self.world.submit(made or single(job, cards, **fields))

    def change_queue(self) -> None:
        (changed,) = self.draw.sample(self.queues(), 1)
        with suppress(InvalidInputError):  # too much beside the others
            self.world.tell(QueueChanged(self.world.now, changed))

    def check(self, *, copies: bool) -> None:
        core = self.world.core
        book = book_of(core)
        for chain in () if book.allocator is None else book.allocator.chains.values():
            check_chain(chain)
        if copies and not book.stale:
            assert picture(book_of(Scheduler.restore(core.snapshot()))) == picture(book)
            assert picture(book_of(core.fork())) == picture(book)


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
    return bool(job.tasks) and all(task.holding is not None and task.holding.is_in_cell for task in job.tasks)


def walk(seed: int, steps: int, checks_every: int = 1) -> None:
    one = Walk(seed)
    for number in range(steps):
        one.step()
        one.check(copies=number % checks_every == 0)


@pytest.mark.parametrize("seed", range(12))
def test_cells_are_the_same_in_every_copy_and_nothing_is_lost(seed: int) -> None:
    walk(seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_cells_are_the_same_in_every_copy_on_long_walks(seed: int) -> None:
    walk(seed, 400, checks_every=10)


@pytest.mark.parametrize("seed", range(20))
def test_what_fits_the_cells_starts_after_one_round(seed: int) -> None:
    """Whatever others run, of a healthy cluster; none of it is protected, but some cannot leave."""
    draw = random.Random(seed)
    nodes = [machine(f"n{number}", 8) for number in range(4)]
    owed = {"a": "node", "b": "socket", "c": "switch"}
    counts = {"a": draw.randint(0, 2), "b": draw.randint(0, 2), "c": draw.randint(0, 4)}
    cards = {"a": 8, "b": 4, "c": 2}
    queues = [
        queue(name, guarantee=counts[name] * cards[name], cells=(CellCount(level, counts[name]),))
        for name, level in owed.items()
        if counts[name]
    ]
    world = World(*nodes, queues=(*queues, queue("others", guarantee=32 - sum(cards[n] * counts[n] for n in owed))))
    for number in range(60):
        stays = draw.random() < 0.3
        world.submit(single(f"o{number}", draw.choice((1, 1, 1, 2, 4)), queue="others", preemptible=not stays))
        if draw.random() < 0.3:
            running = sorted(job for job in world.running() if job[0] == "o")
            world.end(draw.choice(running))
    asked = [name for name in owed for _ in range(counts[name])]
    draw.shuffle(asked)
    for number, name in enumerate(asked):
        world.submit(single(f"{name}{number}", cards[name], queue=name))
        assert world.state(f"{name}{number}") is JobState.RUNNING, (name, number)
