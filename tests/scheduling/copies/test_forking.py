"""A fork is an independent twin; a change of policy keeps what no policy decides."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import fields

import pytest
from worlds import CARD_MIB, World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.events import LimitChanged, NodeJoined, PolicyChanged
from millpond.model.hardware.nodes import Pool
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Job, Priority, Suspendable
from millpond.scheduling.copies import forking
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.scheduler import Scheduler


@pytest.fixture
def _no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def world_of_all_kinds() -> World:
    """Work that runs, waits, is suspended, grows, has a claim, and has ended."""
    nodes = [machine(name, 4, swap_mib=8 * CARD_MIB) for name in "ab"]
    world = World(*nodes, pools=(Pool(suspends=True),), queues=(queue("own", guarantee=2), queue("guest")))
    world.tell(LimitChanged(0.0, Limit("ada", "", gpu_milli=6_000)))
    world.submit(single("ended"), lasting=1.0, known=True)
    world.go_to(10.0)
    world.submit(*(single(f"s{number}", queue="guest", suspendable=Suspendable.SWAP) for number in range(5)))
    world.submit(elastic("e", (1, 3, 3), asks(1), queue="guest", user="ada"))
    world.slow = {"s0", "s1"}
    world.submit(gang("high", 2, asks(2), priority=Priority.HIGH, user="ada"))
    world.submit(single("waits", 4, user="ada"), single("later", 4, user="bob", minimum_run_s=5.0))
    return world


def test_a_fork_has_the_snapshot_of_its_source_and_decides_the_same() -> None:
    world = world_of_all_kinds()
    twin = world.core.fork()
    assert twin.snapshot() == world.core.snapshot()
    check_everything(twin)
    assert twin.decide(world.now + 1.0) == world.core.decide(world.now + 1.0)


def test_what_happens_to_a_fork_changes_nothing_in_its_source() -> None:
    world = world_of_all_kinds()
    before = world.core.snapshot()
    twin = World()
    twin.core, twin.now = world.core.fork(), world.now
    twin.submit(single("other", 2, priority=Priority.CRITICAL))
    twin.end("high")
    twin.go_to(world.now + 10_000.0)
    assert twin.decisions
    assert world.core.snapshot() == before
    check_everything(world.core)
    check_everything(twin.core)


@pytest.mark.long
def test_what_happens_to_a_source_changes_nothing_in_its_fork_nor_in_a_fork_of_that() -> None:
    world = world_of_all_kinds()
    before = world.core.snapshot()
    first = world.core.fork()
    second, third = first.fork(), world.core.fork()
    world.submit(single("other", 2, priority=Priority.CRITICAL))
    world.end("high")
    world.go_to(world.now + 10_000.0)
    assert world.core.snapshot() != before
    for twin in (second, first, third):
        check_everything(twin)
        assert twin.snapshot() == before
    check_everything(world.core)


def test_forks_of_one_source_go_on_alike_whoever_goes_first() -> None:
    source = world_of_all_kinds()
    ends = []
    for _ in range(3):
        twin = World()
        twin.core, twin.now = source.core.fork(), source.now
        twin.end("high")
        twin.go_to(source.now + 10_000.0)
        check_everything(twin.core)
        ends.append((twin.decisions, twin.core.snapshot()))
    assert ends[0] == ends[1] == ends[2]
    source.end("high")
    source.go_to(source.now + 10_000.0)
    assert source.core.snapshot() == ends[0][1]


def test_a_fork_and_its_source_may_each_change_work_with_a_claim() -> None:
    world = World(machine("a", 2))
    world.lingering = {"low"}
    world.submit(single("low", 2))
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.core.snapshot()["claims"]
    twin = World()
    twin.core, twin.now = world.core.fork(), world.now
    for each in (world, twin, world):
        assert each.core.fork().snapshot() == each.core.snapshot()
    world.tell(PolicyChanged(world.now, "fair", "default", preempt=True, reserve=True))
    for each in (world, twin):
        each.end("low")
        assert each.core.jobs["high"].state is JobState.RUNNING
        check_everything(each.core)


def test_nodes_join_a_fork_also_of_a_scheduler_without_any() -> None:
    for source in (world_of_all_kinds(), World()):
        twin = World()
        twin.core, twin.now = source.core.fork(), source.now
        twin.tell(NodeJoined(twin.now, machine("c", 4)))
        twin.submit(single("other", 4, priority=Priority.CRITICAL))
        assert twin.core.jobs["other"].state is JobState.RUNNING
        check_everything(twin.core)


@pytest.mark.parametrize("ordering", ["default", "fair", "tiresias"])
def test_a_change_of_policy_keeps_what_runs_and_lines_up_anew_who_waits(ordering: str) -> None:
    world = world_of_all_kinds()
    before = world.core.snapshot()
    world.tell(PolicyChanged(world.now, ordering, "default", preempt=True, reserve=True))
    after = world.core.snapshot()
    assert {item["job"]["id"] for item in after["jobs"] if item["key"]} == {
        item["job"]["id"] for item in before["jobs"] if item["key"]
    }
    for kept in ("running", "suspended", "growing", "pending", "claims", "deadlines"):
        assert after[kept] == before[kept]
    check_everything(world.core)
    restored = Scheduler.restore(after)
    assert restored.decide(world.now) == world.core.decide(world.now)


def test_a_change_of_policy_takes_jobs_over_without_a_copy() -> None:
    world = world_of_all_kinds()
    before = dict(world.core.jobs)
    world.tell(PolicyChanged(world.now, "fair", "default", preempt=True, reserve=True))
    assert {job: record for job, record in world.core.jobs.items() if record is not before[job]} == {}
    assert list(world.core.jobs) == list(before)


@pytest.mark.parametrize("orderings", [("fair",), ("fifo", "default"), ("fifo", "sjf", "fair")])
def test_what_runs_is_counted_for_fair_shares_once_whatever_policies_came_between(orderings: tuple[str, ...]) -> None:
    world = world_of_all_kinds()

    def rates() -> dict[str, list[float]]:
        return {account: values[:3] for account, values in world.core.snapshot()["usage"].items()}

    before = rates()
    assert any(map(any, before.values()))
    for ordering in orderings:
        world.tell(PolicyChanged(world.now, ordering, "default", preempt=True, reserve=True))
    assert rates() == before


@pytest.mark.sources
def test_copies_of_records_have_every_field() -> None:
    job = Job("j", (single("j").roles))
    record, demand = JobRecord(job, RequestClass(job), 1, 0.0), RequestClass(job)
    for kind, source in ((JobRecord, record), (TaskRecord, record.tasks[0])):
        for number, each in enumerate(fields(kind)):
            if each.name not in ("demand", "line", "_tasks", "_common_tasks", "holding", "vacating"):
                setattr(source, each.name, f"value {number}")
    twin = record.copy(demand)
    assert (twin.demand, twin.line, len(twin.tasks)) == (demand, (), 1)
    for one, other in ((record, twin), (record.tasks[0], twin.tasks[0])):
        for each in fields(type(one)):
            if each.name not in ("demand", "line", "_tasks", "_common_tasks"):
                assert getattr(other, each.name) == getattr(one, each.name)


@pytest.mark.sources
@pytest.mark.usefixtures("_no_garbage_collector")
def test_a_fork_that_was_used_is_gone_at_once_when_it_is_dropped() -> None:
    twin = World()
    twin.core = world_of_all_kinds().core.fork()
    twin.submit(single("other", 2, priority=Priority.CRITICAL))
    twin.core.explain("waits", twin.now)
    twin.tell(PolicyChanged(twin.now, "fair", "default", preempt=True, reserve=True))
    twin.go_to(10_000.0)
    state = twin.core._state
    parts = [weakref.ref(part) for part in vars(twin.core).values() if hasattr(part, "__weakref__")]
    parts += [weakref.ref(part) for part in (state.cluster, state.cluster.arrays, state.queues, state.roster)]
    assert len(parts) > 10
    del state, twin
    assert [part() for part in parts] == [None] * len(parts)


@pytest.mark.long
@pytest.mark.sources
def test_garbage_is_found_in_a_process_that_forks_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(forking, "LOOK_AFTER", 5_000)
    core, knots = world_of_all_kinds().core, list[weakref.ref[Knot]]()
    for _ in range(20):  # each look at all objects of a process full of tests takes half a second
        knots += [weakref.ref(Knot()) for _ in range(100)]
        core.fork()
    assert sum(knot() is not None for knot in knots) < 1_000


@pytest.mark.sources
def test_the_first_fork_of_a_process_does_not_search_all_objects_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(forking, "LOOK_AFTER", 0)
    monkeypatch.setattr(forking, "_made_between", None)
    monkeypatch.setattr(forking.gc, "collect", lambda: searched.append(1))
    core = world_of_all_kinds().core
    core.fork()
    assert not searched
    made = [[number] for number in range(50)]
    core.fork()
    assert searched
    assert len(made) == 50
