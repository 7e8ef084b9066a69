"""Single cards are closed, emptied and opened; those that fail again soon after they came back close by themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from worlds import World, asks, gang, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.events import (
    CardClosed,
    CardOpened,
    DeviceHealthChanged,
    JobSubmitted,
    MigrateRequested,
    NodeClosed,
    NodeJoined,
    NodeLost,
)
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.scheduling.nodes.card_cordons import BY_HEALTH, PROBATION_S
from millpond.scheduling.nodes.views import DeviceUse
from millpond.scheduling.scheduler import Scheduler


def close(world: World, card: str, **fields: Any) -> None:
    """A card, named ``NODE-INDEX``, takes nothing new from now on."""
    world.tell(CardClosed(world.now, card.rpartition("-")[0], card, Cordon(world.now, **fields)))
    world.settle()


def open_again(world: World, card: str) -> None:
    world.tell(CardOpened(world.now, card.rpartition("-")[0], card, "ada"))
    world.settle()


def report(world: World, card: str, health: DeviceHealth, detail: str = "", **fields: Any) -> None:
    """What a driver says of a card."""
    node = card.rpartition("-")[0]
    world.tell(
        DeviceHealthChanged(world.now, node, card, health, detail if health is not DeviceHealth.OK else "", **fields)
    )
    world.settle()


def fails_and_comes_back(world: World, card: str, **fields: Any) -> None:
    report(world, card, DeviceHealth.FAULTY, "XID 119", **fields)
    report(world, card, DeviceHealth.OK)


def seen(world: World, card: str) -> DeviceUse:
    return next(use for view in world.core.node_views() for use in view.devices if use.device.uuid == card)


def cards_of(world: World, job: str) -> set[str]:
    return {
        world.core._state.cluster.device_ids[device]
        for task in world.core.jobs[job].tasks
        if task.holding is not None
        for device in task.holding.devices
    }


# ---- on request -------------------------------------------------------------------------------------------------


def test_nothing_starts_on_a_closed_card_what_runs_there_goes_on_and_its_neighbours_are_used() -> None:
    world = World(machine("a", 2))
    world.submit(single("old"))
    (old,) = cards_of(world, "old")
    close(world, old, reason="a fan is loud", by="ada")
    world.submit(single("other"), single("new"))
    assert world.running() == {"old", "other"}
    assert world.of_kind(Stop) == []
    world.end("old")
    assert world.state("new") is JobState.QUEUED
    open_again(world, old)
    assert world.running() == {"other", "new"}


def test_a_job_says_which_closed_card_it_waits_for_by_whom_and_why() -> None:
    world = World(machine("a", 1))
    close(world, "a-0", reason="a fan is loud", by="ada")
    world.submit(single("j"))
    reason = world.why("j")
    assert reason.cause is Cause.NODES_CLOSED
    assert reason.summary == "it would fit with card 0 of a, which is closed by ada (a fan is loud)"
    assert reason.blocked_by == "a"


@pytest.mark.parametrize(
    ("tasks", "cards", "named"),
    [
        (1, 2, "card 0 of a, card 1 of a, which are closed by ada"),
        (2, 3, "card 0 of a, card 1 of a, card 2 of a and 3 more, which are closed by ada"),
    ],
)
def test_of_the_closed_cards_those_alone_are_named_that_a_job_needs(tasks: int, cards: int, named: str) -> None:
    world = World(machine("a", 4), machine("b", 4))
    for node in "ab":
        for number in range(4):
            close(world, f"{node}-{number}", by="ada")
    world.submit(gang("g", tasks, asks(cards)))
    reason = world.why("g")
    assert reason.summary == f"it would fit with {named}"
    assert dict(reason.numbers) == {"cards": tasks * cards}


def test_a_closed_card_that_would_not_be_enough_is_named_beside_what_is_missing() -> None:
    world = World(machine("a", 2))
    world.submit(single("old"))
    (free,) = {"a-0", "a-1"} - cards_of(world, "old")
    close(world, free, by="ada")
    world.submit(gang("g", 2, asks(1)))
    reason = world.why("g")
    assert reason.cause is Cause.NO_ROOM
    assert f"card {free[-1]} of a is closed by ada" in reason.summary


def test_a_job_that_only_closed_cards_keep_out_is_accepted() -> None:
    world = World(machine("a", 2))
    close(world, "a-1")
    world.submit(single("wide", 2))
    assert world.state("wide") is JobState.QUEUED
    open_again(world, "a-1")
    assert world.running() == {"wide"}


def test_preemptible_work_leaves_a_drained_card_alone_and_goes_on_elsewhere() -> None:
    world = World(machine("a", 3))
    world.submit(single("first"), single("second"))
    (left,) = cards_of(world, "first")
    close(world, left, drain=True)
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.cause) == ("first", Cause.DRAINED)
    assert world.running() == {"first", "second"}
    assert left not in cards_of(world, "first")
    assert world.core.jobs["first"].failures == 0


def test_work_that_may_not_be_preempted_stays_on_a_drained_card_to_its_end() -> None:
    world = World(machine("a", 1))
    world.submit(single("firm", preemptible=False))
    close(world, "a-0", drain=True)
    assert world.running() == {"firm"}
    assert world.of_kind(Stop) == []


def test_a_divided_card_is_closed_with_all_its_instances() -> None:
    parts = tuple(Device(f"mig-{i}", 0, "nvidia", "H100-MIG", 10_000, parent="a-0", instance=i) for i in range(2))
    world = World(Node("a", 64_000, 256_000, parts))
    close(world, "a-0")
    world.submit(single("j"))
    assert world.running() == set()
    assert all(use.closure is not None for view in world.core.node_views() for use in view.devices)
    open_again(world, "a-0")
    assert world.running() == {"j"}


def test_a_closed_card_counts_for_no_guarantee() -> None:
    world = World(machine("a", 2), queues=(queue("red", guarantee=2), queue("blue", guarantee=0, borrows=True)))
    close(world, "a-0")
    assert world.core._state.cluster.capacity.gpu_milli == 1_000


def test_a_job_is_not_moved_onto_a_closed_card() -> None:
    world = World(machine("a", 2, remaps=True))
    world.submit(single("j"))
    (other,) = {"a-0", "a-1"} - cards_of(world, "j")
    close(world, other)
    with pytest.raises(ConflictError, match="is closed"):
        world.tell(MigrateRequested(world.now, "j", (f"a/{other[-1]}",)))


@pytest.mark.parametrize("again", ["reports anew", "is lost and comes back"])
def test_a_card_stays_closed_while_its_node_comes_and_goes(again: str) -> None:
    world = World(machine("a", 1))
    close(world, "a-0")
    if again == "is lost and comes back":
        world.tell(NodeLost(world.now, "a"))
    world.tell(NodeJoined(world.now, machine("a", 1, memory_mib=128_000)))
    world.submit(single("j"))
    assert world.running() == set()
    open_again(world, "a-0")
    assert world.running() == {"j"}


def test_what_makes_no_sense_is_refused_with_the_remedy_and_changes_nothing() -> None:
    world = World(machine("a", 1))
    with pytest.raises(NotFoundError, match="no node 'b'"):
        world.tell(CardClosed(0.0, "b", "b-0", Cordon(0.0)))
    with pytest.raises(NotFoundError, match="has no card 'a-7'"):
        world.tell(CardClosed(0.0, "a", "a-7", Cordon(0.0)))
    for closure in (Cordon(0.0, 50.0), Cordon(50.0, 90.0, planned=True)):
        with pytest.raises(InvalidInputError, match="closed for a span"):
            world.tell(CardClosed(0.0, "a", "a-0", closure))
    with pytest.raises(ConflictError, match="is open"):
        world.tell(CardOpened(0.0, "a", "a-0"))
    world.submit(single("j"))
    assert world.running() == {"j"}


# ---- by itself --------------------------------------------------------------------------------------------------


def test_a_card_that_fails_once_comes_back_and_is_on_probation() -> None:
    world = World(machine("a", 1))
    fails_and_comes_back(world, "a-0")
    world.submit(single("j"))
    assert world.running() == {"j"}
    assert seen(world, "a-0").probation_until == PROBATION_S
    world.go_to(PROBATION_S)
    assert seen(world, "a-0").probation_until is None


def test_a_card_that_fails_again_on_probation_is_closed_until_a_person_opens_it() -> None:
    world = World(machine("a", 1))
    fails_and_comes_back(world, "a-0")
    world.go_to(PROBATION_S - 1.0)
    fails_and_comes_back(world, "a-0")
    world.submit(single("j"))
    assert world.running() == set()
    assert world.why("j").summary == (
        "it would fit with card 0 of a, which is closed by device health (XID 119; it had failed shortly before)"
    )
    world.go_to(10 * PROBATION_S)
    assert world.running() == set()
    open_again(world, "a-0")
    assert world.running() == {"j"}


def test_a_card_that_was_closed_for_its_faults_is_on_probation_when_a_person_opens_it() -> None:
    world = World(machine("a", 1))
    fails_and_comes_back(world, "a-0")
    fails_and_comes_back(world, "a-0")
    world.go_to(5 * PROBATION_S)
    open_again(world, "a-0")
    fails_and_comes_back(world, "a-0")
    closure = seen(world, "a-0").closure
    assert closure is not None
    assert closure.by == BY_HEALTH


def test_a_card_that_fails_again_after_its_probation_comes_back_once_more() -> None:
    world = World(machine("a", 1))
    fails_and_comes_back(world, "a-0")
    world.go_to(PROBATION_S + 1.0)
    fails_and_comes_back(world, "a-0")
    assert seen(world, "a-0").closure is None


def test_a_card_that_no_reset_mends_is_closed_at_its_first_fault() -> None:
    world = World(machine("a", 2))
    fails_and_comes_back(world, "a-0", needs_person=True)
    closure = seen(world, "a-0").closure
    assert closure is not None
    assert closure.reason == "XID 119; no reset mends that"


def test_work_on_a_card_that_fails_is_tried_again_on_another_one() -> None:
    world = World(machine("a", 2))
    world.submit(single("j"))
    (failed,) = cards_of(world, "j")
    report(world, failed, DeviceHealth.FAULTY, "XID 119")
    assert world.running() == {"j"}
    assert failed not in cards_of(world, "j")


def test_faults_on_a_closed_node_count_for_nothing_as_somebody_is_at_work_there() -> None:
    world = World(machine("a", 1))
    world.tell(NodeClosed(world.now, "a", Cordon(world.now, reason="new driver")))
    for _ in range(3):
        fails_and_comes_back(world, "a-0")
    assert seen(world, "a-0").closure is None


def test_a_card_that_was_faulty_before_the_server_started_again_is_on_probation() -> None:
    world = World(machine("a", 1))
    report(world, "a-0", DeviceHealth.FAULTY, "XID 119")
    world.tell(NodeJoined(world.now, machine("a", 1)))
    world.settle()
    assert seen(world, "a-0").probation_until == PROBATION_S
    fails_and_comes_back(world, "a-0")
    assert seen(world, "a-0").closure is not None


def test_a_restored_scheduler_knows_closed_cards_and_those_on_probation() -> None:
    world = World(machine("a", 3))
    close(world, "a-0", reason="a fan is loud", by="ada")
    fails_and_comes_back(world, "a-1")
    report(world, "a-2", DeviceHealth.FAULTY, "XID 79")
    stored = json.loads(json.dumps(world.core.snapshot()))
    twin = Scheduler.restore(stored)
    assert twin.snapshot() == world.core.snapshot()
    assert [view.devices for view in twin.node_views()] == [view.devices for view in world.core.node_views()]
    twin.handle(JobSubmitted(world.now, single("j", 3)))
    assert twin.decide(world.now) == []
