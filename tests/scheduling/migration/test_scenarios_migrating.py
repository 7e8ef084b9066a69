"""Work moves to other cards: as it runs where its engine can, else by an end and a start there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scenes import racks, started_tasks
from worlds import CARD_MIB, World, asks, gang, machine, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Migrate, Resume, Start, Stop
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.model.events import (
    DeviceHealthChanged,
    Ended,
    MigrateRequested,
    NodeClosed,
    NodeJoined,
    NodeLost,
    Refused,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Checkpoint, CheckpointMode, GangRule
from millpond.scheduling.settings import Settings

SAVES = {"checkpoint": Checkpoint(CheckpointMode.SIGNAL)}


def place(cards: int = 2, *others: Any, **fields: Any) -> World:
    return World(machine("n", cards, remaps=True, swap_mib=4 * CARD_MIB, **fields), *others)


def migrate(world: World, job: str = "a", *to: str, restart: bool = False, fixed: str = "") -> None:
    world.tell(MigrateRequested(world.now, job, to, restart, fixed))
    world.settle()
    check_everything(world.core)


def cards_of(world: World, job: str) -> list[str]:
    (task,) = world.core.jobs[job].tasks
    return [] if task.placement is None else [grant.device for grant in task.placement.grants]


def test_a_refused_migration_draws_no_lots_and_leaves_stale_tables_stale() -> None:
    settings = Settings(placement="random")
    world = World(machine("n", 1, model="V100"), machine("m", 4), settings=settings)
    world.submit(gang("a", 1, asks(1, models=["V100"])), gang("b", 1, asks(3, models=["A100"])))
    world.tell(NodeJoined(world.now, machine("p", 1)))
    before = world.core.snapshot()
    with pytest.raises(ConflictError, match="no room"):
        migrate(world, "a", restart=True)
    assert before["tables_stale"]
    assert world.core.snapshot() == before


def test_a_job_goes_to_the_card_that_was_named_and_its_old_one_is_free_when_it_has_arrived() -> None:
    world = place(2)
    world.submit(single("a"))
    assert cards_of(world, "a") == ["n-0"]
    world.slow.add("a")
    migrate(world, "a", "n/1")
    world.submit(single("b"))
    assert world.running() == {"a"}  # both cards are held while it is on its way
    assert "being live-migrated from n/0 to n/1" in world.why("a").summary
    world.leave_devices("a")
    assert world.running() == {"a", "b"}
    assert (cards_of(world, "a"), cards_of(world, "b")) == (["n-1"], ["n-0"])
    assert world.core.jobs["a"].attempt == 1
    assert "live-migrated from n/0 to n/1" in world.why("a").summary
    check_everything(world.core)


@pytest.mark.parametrize("gpus", [0.5, 2])
def test_slices_and_several_cards_go_to_the_best_other_cards(gpus: float) -> None:
    world = place(5)
    world.submit(single("a", gpus), single("b", 0.5))
    before = set(cards_of(world, "a"))
    migrate(world)
    assert len(world.of_kind(Migrate)) == 1
    assert not before & set(cards_of(world, "a"))


def test_a_refused_migration_leaves_the_job_where_it_was() -> None:
    world = place(2)
    world.submit(single("a"))
    world.clinging.add("a")
    migrate(world)
    assert (cards_of(world, "a"), world.running()) == (["n-0"], {"a"})
    assert "stayed on n/0, as it could not be live-migrated to n/1: it cannot be moved" in world.why("a").summary
    assert not world.of_kind(Stop)


def test_a_job_that_saves_its_work_starts_on_the_card_anew_where_its_engine_refuses() -> None:
    world = place(2)
    world.submit(single("a", **SAVES))
    world.clinging.add("a")
    migrate(world)
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, world.of_kind(Start, "a")[-1].cause) == (Cause.MIGRATED, Cause.MIGRATED)
    assert (cards_of(world, "a"), world.core.jobs["a"].attempt) == (["n-1"], 2)
    assert "restart-migrated from n/0 to n/1" in world.why("a").summary


def test_a_restart_is_neither_a_failure_nor_a_preemption_and_its_place_is_kept_from_others() -> None:
    world = World(machine("m", 1), machine("n", 1))
    world.submit(single("a", retries=0))
    world.lingering.add("a")
    migrate(world, "a", "n", restart=True)
    world.submit(single("b"))
    assert world.why("a").cause is Cause.MIGRATED
    assert "being restart-migrated from m/0 to n/0" in world.why("a").summary
    assert not world.running()
    world.leave("a")
    assert (world.nodes_of("a"), world.nodes_of("b")) == (["n"], ["m"])
    record = world.core.jobs["a"]
    assert (record.failures, record.preemptions, record.attempt) == (0, 0, 2)
    check_everything(world.core)


def test_a_gang_is_restarted_on_the_cards_named_for_its_tasks() -> None:
    world = World(machine("m", 2), machine("n", 2))
    world.submit(gang("a", 2, asks(1), **SAVES))
    there = set(world.nodes_of("a"))
    (other,) = {"m", "n"} - there
    migrate(world, "a", f"{other}/1", f"{other}/0")
    assert world.nodes_of("a") == [other, other]
    assert [task.placement.grants[0].device for task in world.core.jobs["a"].tasks if task.placement] == [
        f"{other}-1",
        f"{other}-0",
    ]


@pytest.mark.parametrize(
    ("to", "kind", "words"),
    [
        (("n/9",), NotFoundError, "has no card '9'"),
        (("x/0",), NotFoundError, "no node or card 'x/0'"),
        (("n/0",), ConflictError, "has card n/0 already"),
        (("n/1",), ConflictError, "no room for it on n/1"),
        (("n/2", "n/3"), InvalidInputError, "2 cards named for a job that has 1"),
        (("n/3",), ConflictError, "card n/3 is faulty"),
        (("m/0",), ConflictError, "another node"),
        (("v/0",), ConflictError, "another node"),
        (("s/0",), ConflictError, "not of pool"),
        (("c/0",), ConflictError, "nothing starts on node c"),
    ],
)
def test_what_cannot_be_is_refused_with_one_answer_and_nothing_changes(
    to: tuple[str, ...], kind: type[MillpondError], words: str
) -> None:
    world = place(4)
    world.submit(single("a"), single("b"))
    for other in (machine("m"), machine("v", model="V100"), machine("s", pool="shared"), machine("c")):
        world.tell(NodeJoined(world.now, other))
    world.tell(NodeClosed(0.0, "c", Cordon(0.0)))
    for job, card in (("a", "n-0"), ("b", "n-1")):
        assert cards_of(world, job) == [card]
    world.tell(DeviceHealthChanged(0.0, "n", "n-3", DeviceHealth.FAULTY, "gone"))
    before = json.dumps(world.core.snapshot())
    with pytest.raises(kind, match=words) as refused:
        world.tell(MigrateRequested(world.now, "a", to))
    assert refused.value.remedy
    assert json.dumps(world.core.snapshot()) == before


@pytest.mark.parametrize(
    ("job", "fields", "words"),
    [
        (single("a"), {"swap_mib": 0}, "host memory"),
        (single("a"), {"remaps": False}, "nothing on node n can bring device memory back"),
        (gang("a", 2, asks(1)), {}, "it has 2 tasks"),
        (single("a", 4), {}, "no other card"),
    ],
)
def test_work_that_would_be_lost_stays_until_somebody_says_that_it_may(
    job: Any, fields: dict[str, Any], words: str
) -> None:
    fields = {"remaps": True, "swap_mib": 4 * CARD_MIB, **fields}
    world = World(machine("n", 4, **fields), machine("m", 4, model="V100"))
    world.submit(job)
    with pytest.raises(ConflictError, match=words) as refused:
        migrate(world)
    assert "--restart" in refused.value.remedy
    migrate(world, restart=True)
    assert world.running() == {"a"}
    assert world.core.jobs["a"].attempt == 2


def test_what_the_server_knows_against_it_counts() -> None:
    world = place(2)
    world.submit(single("a"))
    with pytest.raises(ConflictError, match="it runs in a container"):
        migrate(world, fixed="it runs in a container")


def test_only_running_work_with_cards_is_migrated() -> None:
    world = place(2)
    world.submit(single("a"), gang("cpu", 1, asks(0)))
    with pytest.raises(InvalidInputError, match="uses no card"):
        migrate(world, "cpu")
    with pytest.raises(NotFoundError):
        migrate(world, "nobody")
    world.tell(SuspendRequested(world.now, "a"))
    world.settle()
    with pytest.raises(ConflictError, match="suspended") as refused:
        migrate(world)
    assert "resume it first" in refused.value.remedy


def test_a_job_that_is_on_its_way_can_be_stopped_suspended_and_lost() -> None:
    for event in (StopRequested(0.0, "a"), SuspendRequested(0.0, "a", swap=True), Ended(0.0, "a", 1, Outcome.SUCCESS)):
        world = place(2)
        world.submit(single("a"))
        world.slow.add("a")
        migrate(world)
        with pytest.raises(ConflictError, match="on its way"):
            world.tell(MigrateRequested(world.now, "a"))
        world.tell(event)
        world.settle()
        check_everything(world.core)
        (order,) = world.of_kind(Migrate)
        world.slow.discard("a")
        world.tell(Refused(world.now, order.id, "no"))
        check_everything(world.core)


def test_work_leaves_a_card_that_fails_for_another_of_its_node_and_ends_only_if_that_cannot_be() -> None:
    world = place(2)
    world.submit(single("a"))
    world.tell(DeviceHealthChanged(world.now, "n", "n-0", DeviceHealth.FAULTY, "ECC"))
    world.settle()
    (move,) = world.of_kind(Migrate)
    assert (move.cause, cards_of(world, "a"), world.of_kind(Stop)) == (Cause.DEVICE_FAILED, ["n-1"], [])
    world.tell(DeviceHealthChanged(world.now, "n", "n-1", DeviceHealth.FAULTY, "ECC"))
    world.settle()
    assert world.state("a") is JobState.QUEUED  # there is no third card
    check_everything(world.core)


def test_work_that_cannot_be_moved_off_a_failed_card_is_ended_and_tried_again() -> None:
    world = place(2)
    world.submit(single("a"))
    world.clinging.add("a")
    world.tell(DeviceHealthChanged(world.now, "n", "n-0", DeviceHealth.FAULTY, "ECC"))
    world.settle()
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.DEVICE_FAILED]
    assert (cards_of(world, "a"), world.core.jobs["a"].failures) == (["n-1"], 0)


@pytest.mark.parametrize("refused", [False, True])
def test_swapped_work_outlives_its_card_and_comes_back_on_another_when_asked(refused: bool) -> None:
    world = place(2)
    world.submit(single("a"))
    world.tell(SuspendRequested(world.now, "a", swap=True))
    world.settle()
    world.tell(DeviceHealthChanged(world.now, "n", "n-0", DeviceHealth.FAULTY, "XID 79"))
    world.settle()
    assert (world.state("a"), world.of_kind(Stop)) == (JobState.SUSPENDED, [])
    assert "on another card, as n/0 has failed" in world.why("a").summary
    if refused:
        world.clinging.add("a")
    world.tell(ResumeRequested(world.now, "a"))
    world.settle()
    assert (cards_of(world, "a"), world.core.jobs["a"].attempt) == (["n-1"], 2 if refused else 1)
    check_everything(world.core)


def test_swapped_work_ends_with_its_card_where_its_node_has_no_other() -> None:
    world = place(1)
    world.submit(single("a"))
    world.tell(SuspendRequested(world.now, "a", swap=True))
    world.settle()
    world.tell(DeviceHealthChanged(world.now, "n", "n-0", DeviceHealth.FAULTY, "XID 79"))
    world.settle()
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.DEVICE_FAILED]


def swapped_beside(world: World) -> None:
    """Job a was swapped off card n-0, which job b has now."""
    world.submit(single("a"))
    world.tell(SuspendRequested(world.now, "a", swap=True))
    world.settle()
    world.submit(single("b"))
    assert cards_of(world, "b") == ["n-0"]
    world.tell(ResumeRequested(world.now, "a"))
    world.settle()
    check_everything(world.core)


@pytest.mark.parametrize("remaps", [True, False])
def test_swapped_work_comes_back_on_another_card_only_where_the_engine_can_map(remaps: bool) -> None:
    world = World(machine("n", 1, remaps=remaps, swap_mib=4 * CARD_MIB))
    swapped_beside(world)
    assert world.state("a") is JobState.SUSPENDED
    world.core.handle(joined(2, remaps))
    world.settle()
    assert world.state("a") is (JobState.RUNNING if remaps else JobState.SUSPENDED)
    if remaps:
        assert (cards_of(world, "a"), world.of_kind(Resume)[-1].placement.grants[0].device) == (["n-1"], "n-1")
    check_everything(world.core)


def test_swapped_work_that_could_not_come_back_elsewhere_waits_for_its_own_card() -> None:
    world = World(machine("n", 1, remaps=True, swap_mib=4 * CARD_MIB))
    swapped_beside(world)
    world.clinging.add("a")
    world.core.handle(joined(2, True))
    world.settle()
    assert (world.state("a"), cards_of(world, "a"), len(world.of_kind(Resume))) == (JobState.SUSPENDED, ["n-0"], 1)
    check_everything(world.core)
    world.end("b")
    assert (world.state("a"), cards_of(world, "a")) == (JobState.RUNNING, ["n-0"])


def test_a_scheduler_restored_in_mid_migration_goes_on_alike() -> None:
    world = place(2)
    world.submit(single("a"))
    world.slow.add("a")
    migrate(world)
    twin = restarted(world.core)
    check_everything(twin)
    (order,) = world.of_kind(Migrate)
    for core in (world.core, twin):
        core.handle(Refused(world.now, order.id, "no"))
    assert json.dumps(twin.snapshot()) == json.dumps(world.core.snapshot())


def joined(cards: int, remaps: bool) -> NodeJoined:
    """The node has more cards now."""
    return NodeJoined(0.0, machine("n", cards, remaps=remaps, swap_mib=4 * CARD_MIB))


@pytest.mark.parametrize("restart", [False, True])
def test_a_move_that_was_turned_down_is_none_when_the_log_is_redone(restart: bool) -> None:
    # Where a cycle keeps nodes for waiting jobs, a redo does not, and would find a place.
    world = place(4)
    world.submit(single("a"))
    world.core.expect([])
    with pytest.raises(ConflictError):
        world.core.handle(MigrateRequested(world.now, "a", restart=restart))
    world.core.redo(world.now, [])
    assert world.settle() == []
    migrate(world, "a", restart=restart)
    assert len(world.of_kind(Migrate)) == 1


def test_a_pool_that_suspends_brings_displaced_work_back_beside_its_successor() -> None:
    node = machine("n", 2, remaps=True, swap_mib=4 * CARD_MIB)
    world = World(node, pools=(Pool(suspends=True, turn_s=0.0),))
    world.submit(single("a"), single("b"))
    world.tell(SuspendRequested(world.now, "b", swap=True))
    world.settle()
    world.submit(single("c"))
    world.tell(ResumeRequested(world.now, "b"))
    world.settle()
    world.end("a")
    assert world.running() == {"b", "c"}
    assert cards_of(world, "b") == ["n-0"]


def test_a_gang_of_which_a_task_has_succeeded_starts_whole_after_a_migration() -> None:
    world = World(machine("m", 2), machine("n", 2))
    world.submit(gang("a", 2, asks(1), **SAVES))
    (other,) = {"m", "n"} - set(world.nodes_of("a"))
    world.end("a", task=0)
    migrate(world, "a", other)
    assert world.nodes_of("a") == [other, other]
    assert started_tasks(world, "a") == [(0, 1), (0, 1)]


def test_as_many_cards_are_named_for_a_gang_as_it_starts_with_anew() -> None:
    world = World(machine("m", 2), machine("n", 2))
    world.submit(gang("a", 2, asks(1), **SAVES))
    (other,) = {"m", "n"} - set(world.nodes_of("a"))
    world.end("a", task=0)
    with pytest.raises(InvalidInputError, match="1 cards named for a job that has 2"):
        migrate(world, "a", f"{other}/0")
    migrate(world, "a", f"{other}/1", f"{other}/0")
    assert started_tasks(world, "a") == [(0, 1), (0, 1)]


def test_a_gang_is_migrated_with_a_lost_task_that_it_cannot_start_without() -> None:
    world = World(*(machine(node, 1, rack_name=rack) for rack, node in racks(r=2, s=2)))
    together = {"together": Level.RACK, "together_required": True, "gang_rule": GangRule.RESTART_TASK}
    world.submit(gang("a", 2, asks(1), **together, **SAVES))
    here = world.nodes_of("a")
    world.tell(NodeLost(world.now, here[1]))
    world.settle()
    assert world.nodes_of("a") == here[:1]
    migrate(world, "a")
    assert set(world.nodes_of("a")) == {"r0", "r1", "s0", "s1"} - set(here)
    assert started_tasks(world, "a") == [(0, 1), (0, 1)]
