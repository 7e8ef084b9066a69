"""Parts of cards that never leave, in queues that are owed cells: they share a card that is bound for them."""

from __future__ import annotations

from typing import Any

from twinned import TwinnedWorld
from worlds import World, asks, gang, machine, queue, single

from millpond.model.decisions import Start, Stop
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job


def lab(count: int, level: str = "card", cards: int = 1) -> Queue:
    return queue("lab", guarantee=count * cards, cells=(CellCount(level, count),))


def part(name: str, share: float = 0.25, tasks: int = 1, owner: str = "lab", **fields: Any) -> Job:
    return gang(name, tasks, asks(share), **{"queue": owner, "preemptible": False, **fields})


def cards_of(world: World, job: str) -> list[str]:
    start: Start = world.of_kind(Start, job)[-1]
    return [grant.device for place in start.placements for grant in place.grants]


def test_a_part_that_never_leaves_starts_in_an_idle_cell_of_its_queue() -> None:
    world = World(machine("n", 4), queues=(lab(4),))
    world.submit(part("session"))
    assert world.state("session") is JobState.RUNNING


def test_further_parts_of_the_queue_fill_the_same_card_before_another() -> None:
    world = World(machine("n", 4), queues=(lab(2), queue("others")))
    world.submit(*(part(f"s{number}") for number in range(6)))
    cards = [cards_of(world, f"s{number}")[0] for number in range(6)]
    assert len(set(cards[:4])) == 1
    assert len(set(cards)) == 2


def test_parts_have_no_more_cards_than_the_queue_is_owed() -> None:
    world = World(machine("n", 4), queues=(lab(1), queue("others", guarantee=3)))
    world.submit(*(part(f"s{number}", 0.5) for number in range(3)))
    assert [world.state(f"s{number}") for number in range(3)] == [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED]


def test_a_card_is_another_queue_s_again_when_its_last_part_has_ended() -> None:
    world = World(machine("n", 1), queues=(lab(1), queue("others")))
    world.submit(part("first"), part("second"))
    world.submit(single("whole", 1, queue="others"))
    world.end("first")
    assert world.state("whole") is JobState.QUEUED
    world.end("second")
    assert world.state("whole") is JobState.RUNNING


def test_a_card_that_is_lent_comes_back_for_a_part() -> None:
    world = World(machine("n", 2), queues=(lab(1), queue("others")))
    world.submit(single("o0", 1, queue="others"), single("o1", 1, queue="others"))
    world.submit(part("session"))
    assert world.state("session") is JobState.RUNNING
    assert len(world.of_kind(Stop)) == 1


def test_others_on_a_card_leave_only_where_their_room_is_needed() -> None:
    world = World(machine("n", 1), queues=(lab(1), queue("others")))
    world.submit(part("guest", 0.5, owner="others", preemptible=True))
    world.submit(part("s0"))
    assert not world.of_kind(Stop)
    world.submit(part("s1"))
    assert not world.of_kind(Stop)
    world.submit(part("s2"))
    assert [stop.job for stop in world.of_kind(Stop)] == ["guest"]
    assert world.state("s2") is JobState.RUNNING


def test_a_part_takes_a_card_of_a_whole_machine_that_is_owed_and_leaves_it_the_others() -> None:
    world = World(machine("n", 8), queues=(lab(1, "node", 8), queue("others")))
    world.submit(part("session"), single("training", 7, queue="lab", preemptible=False))
    assert world.running() == {"session", "training"}
    world.submit(single("whole", 1, queue="others", preemptible=False))
    assert world.state("whole") is JobState.QUEUED


def test_the_tasks_of_a_job_share_a_card() -> None:
    world = World(machine("n", 2), queues=(lab(1), queue("others")))
    world.submit(part("four", 0.25, tasks=4))
    assert len(set(cards_of(world, "four"))) == 1
    world.submit(part("one"))
    assert world.state("one") is JobState.QUEUED
    world.end("four")
    assert world.state("one") is JobState.RUNNING


def test_parts_by_memory_alone_fill_the_memory_of_a_card() -> None:
    owed = queue("lab", guarantee=1, cells=(CellCount("card", 1),))
    world = World(machine("n", 1, card_mib=32_000), queues=(owed,))
    slices = [gang(f"s{n}", 1, asks(0, card_mib=10_000), queue="lab", preemptible=False) for n in range(4)]
    world.submit(*slices)
    assert [world.state(f"s{number}") for number in range(4)].count(JobState.RUNNING) == 3


def test_what_shares_a_card_is_the_same_in_a_copy_and_when_the_log_is_redone() -> None:
    world = TwinnedWorld(machine("n", 2), queues=(lab(2), queue("others")))
    world.share = 1.0
    world.submit(*(single(f"o{number}", 1, queue="others") for number in range(2)))
    world.submit(part("a", 0.25, tasks=2), part("b", 0.5), part("c", 0.5))
    assert world.running() == {"a", "b", "c"}
    world.end("a")
    world.submit(part("d", 0.5))
    assert world.running() == {"b", "c", "d"}
