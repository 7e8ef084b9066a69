"""Who gets room on a device, who makes it, and who is told no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.model.sharing import ShareClass
from millpond.node.sharing.arbiter import Arbiter, NodeContext
from millpond.node.sharing.backend import DONE, STAYS, MoveOutcome, MoveResult
from millpond.node.sharing.ledger import Account, Ledger, LedgerEntry, Residence
from millpond.node.task.records import TaskId

ONLINE, NORMAL, BACKFILL = ShareClass


@dataclass
class Mover:
    """Answers as it is told, and remembers who was moved."""

    answers: dict[str, MoveResult] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        self.moved.append(f"out {task.job}")
        return self.answers.get(task.job, DONE)

    def swap_in(self, task: TaskId, deadline_s: float, moves: Mapping[str, str] = STAYS) -> MoveResult:
        self.moved.append(f"in {task.job}")
        return DONE


@dataclass
class Card:
    """One card of 100 MiB, and 1000 MiB of host memory for swapped work."""

    mover: Mover = field(default_factory=Mover)
    lost: list[str] = field(default_factory=list)
    available_mib: int = 1000

    def __post_init__(self) -> None:
        self.ledger = Ledger({"gpu": 100}, {"node": 1000})
        context = NodeContext(
            lambda: 0.0,
            on_lost=lambda task, reason: self.lost.append(task.job),
            available_mib={"node": lambda: self.available_mib},
        )
        self.arbiter = Arbiter(self.ledger, self.mover, context)

    def arrive(self, job: str, mib: int, share_class: ShareClass = NORMAL) -> MoveResult:
        return self.arbiter.arrive(LedgerEntry(TaskId(job, 1, 0), "node", {"gpu": mib}, share_class), 10.0)

    def account(self) -> Account:
        return self.ledger.account("gpu")


def test_whoever_goes_first_gets_room_from_the_smallest_that_is_enough() -> None:
    card = Card()
    for job, mib in (("small", 20), ("middle", 30), ("large", 50)):
        assert card.arrive(job, mib, BACKFILL).ok
    assert card.arrive("online", 25, ONLINE).ok
    assert card.mover.moved == ["out middle"]
    assert (card.account().resident_mib, card.account().swapped_mib) == (95, 30)


def test_the_lowest_class_leaves_first() -> None:
    card = Card()
    card.arrive("normal", 50, NORMAL)
    card.arrive("backfill", 50, BACKFILL)
    assert card.arrive("online", 40, ONLINE).ok
    assert card.mover.moved == ["out backfill"]


def test_nobody_leaves_for_an_equal_nor_in_vain() -> None:
    card = Card()
    card.arrive("online", 60, ONLINE)
    card.arrive("backfill", 40, BACKFILL)
    refused = card.arrive("another", 70, ONLINE)
    assert refused.outcome is MoveOutcome.TIMEOUT
    assert "device gpu lacks 70 MiB: 100 of its 100 MiB are in use" in refused.reason
    assert card.mover.moved == []


def test_one_that_cannot_leave_is_asked_once_and_another_instead() -> None:
    card = Card(Mover({"stuck": MoveResult(MoveOutcome.UNSUPPORTED, "managed memory")}))
    card.arrive("stuck", 50, BACKFILL)
    card.arrive("other", 50, BACKFILL)
    card.arrive("online", 40, ONLINE)
    assert card.mover.moved == ["out other"] or card.mover.moved == ["out stuck", "out other"]
    assert not card.arrive("more", 60, ONLINE).ok
    assert card.mover.moved.count("out stuck") <= 1


def test_one_that_is_lost_on_the_way_is_told_and_its_room_is_free() -> None:
    card = Card(Mover({"backfill": MoveResult(MoveOutcome.LOST, "the driver failed")}))
    card.arrive("backfill", 100, BACKFILL)
    assert card.arrive("online", 100, ONLINE).ok
    assert card.lost == ["backfill"]


def test_who_made_room_returns_when_there_is_some() -> None:
    card = Card()
    card.arrive("backfill", 80, BACKFILL)
    card.arrive("online", 80, ONLINE)
    assert card.arbiter.bring_back(10.0) == []
    card.arbiter.leave(TaskId("online", 1, 0))
    assert card.arbiter.bring_back(10.0) == [TaskId("backfill", 1, 0)]
    assert [entry.residence for entry in card.ledger] == [Residence.RESIDENT]


def test_host_memory_that_others_took_meanwhile_is_told_in_numbers() -> None:
    card = Card(available_mib=10)
    card.arrive("job", 80)
    answer = card.arbiter.swap_out(TaskId("job", 1, 0), 10.0)
    assert answer.reason == (
        "its 80 MiB of device memory do not fit into host memory: 10 MiB of node node are available at this moment"
    )
    assert card.account().resident_mib == 80
