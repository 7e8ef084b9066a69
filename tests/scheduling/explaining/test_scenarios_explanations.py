"""Why not me, and when? The answers, their numbers, and the remedies, which are tried out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Start
from millpond.model.errors import NotFoundError
from millpond.model.events import (
    Confirmed,
    DeviceHealthChanged,
    DurationPredicted,
    JobSubmitted,
    LimitChanged,
    NodeJoined,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause, DeadlineVerdict, Filter, Remedy
from millpond.model.resources import Amount, TaskRequest
from millpond.model.sharing import GPU_SLICES
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority, Role, Suspendable
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

POOL = (machine("n0", 4), machine("n1", 4))

IMPOSSIBLE = [
    ("more cards a task than any node has", single("j", 8), "gpus", "4"),
    ("an unknown model", gang("j", 1, asks(1, models=["A10"])), "gpu_models", "A100"),
    ("more CPUs than any node has", gang("j", 1, asks(1, cpus=65)), "cpus", "64"),
    ("more memory than any node has", gang("j", 1, asks(1, memory_mib=300_000)), "memory", "256000MiB"),
    ("more memory of a card than any card has", gang("j", 1, asks(0.5, card_mib=20_000)), "gpus.memory", "16000MiB"),
    ("an extra resource that no node has", gang("j", 1, asks(1, extras=[("rdma", 1)])), "extras", ""),
    ("a gang that the whole pool could not hold", gang("j", 3, asks(4)), "tasks", "2"),
    (
        "a gang on one node that no node could hold",
        gang("j", 2, asks(3), together=Level.NODE, together_required=True),
        "topology",
        "any",
    ),
    ("an unknown queue", single("j", queue="tame"), "queue", "team"),
    ("an unknown pool", single("j", pool="nowhere"), "pool", "default"),
    ("a part of a card in a pool of whole cards", single("j", 0.5, pool="whole"), "gpus", "1"),
    ("more than the queue may ever hold", single("j", 4, queue="team"), "gpus", "2"),
    (
        "more to be swapped than any node has host memory for",
        single("j", 2, pool="swaps", suspendable=Suspendable.SWAP),
        "suspend",
        "never",
    ),
]


@pytest.mark.parametrize(
    ("what", "job", "field", "value"), IMPOSSIBLE, ids=[row[0].replace(" ", "-") for row in IMPOSSIBLE]
)
def test_what_can_never_run_is_refused_beforehand_with_a_remedy(what: str, job: Job, field: str, value: str) -> None:
    world = World(
        *POOL,
        machine("w", 4, pool="whole"),
        machine("s", 4, pool="swaps", swap_mib=16_000),
        pools=(Pool("whole", SharingPolicy.EXCLUSIVE), Pool("swaps", suspends=True)),
        queues=(queue("team", limit=2),),
    )
    reason = world.core.check(job)
    assert reason is not None
    assert reason.cause is Cause.IMPOSSIBLE
    assert reason.summary
    assert reason.remedy is not None
    assert (reason.remedy.field, reason.remedy.value) == (field, value)


@pytest.mark.parametrize(
    ("request_", "runs"),
    [
        (asks(0.03), False),
        (asks(0, card_mib=512), False),
        (asks(0.5, card_mib=300), False),
        (asks(0, card_mib=513), True),
        (asks(0.04), True),
        (asks(1), True),
    ],
)
def test_a_slice_in_which_a_context_leaves_no_room_is_refused_where_all_cards_tell_so(
    request_: TaskRequest, runs: bool
) -> None:
    node = machine("n", 2)
    cards = tuple(replace(card, context_mib=512) for card in node.devices)
    reason = World(replace(node, devices=cards)).core.check(gang("j", 1, request_))
    assert (reason is None) is runs
    if reason is not None and reason.remedy is not None:
        assert "context alone takes 512 MiB" in reason.summary
        assert reason.remedy.value == "513MiB"
    assert World(replace(node, devices=(cards[0], node.devices[1]))).core.check(gang("j", 1, request_)) is None


def test_what_can_run_on_the_empty_cluster_is_not_refused_because_it_is_full() -> None:
    world = World(*POOL)
    world.submit(gang("all", 2, asks(4)))
    assert world.core.check(gang("j", 2, asks(4))) is None


def test_what_one_node_has_host_memory_to_swap_is_not_refused() -> None:
    world = World(*POOL, machine("s", 4, pool="swaps", swap_mib=16_000), pools=(Pool("swaps", suspends=True),))
    assert world.core.check(single("j", 1, pool="swaps", suspendable=Suspendable.SWAP)) is None
    assert world.core.check(single("j", 2, pool="swaps")) is None, "it does not say that it wants to be swapped"
    assert world.core.check(single("j", 2, suspendable=Suspendable.SWAP)) is None, "its pool swaps nothing"


def test_an_elastic_gang_is_judged_by_its_minimum() -> None:
    world = World(*POOL)
    assert world.core.check(elastic("j", (2, 8, 8), asks(4))) is None
    assert world.core.check(elastic("j", (3, 8, 8), asks(4))) is not None


def test_a_job_is_told_how_many_nodes_fail_on_what_and_how_much_is_free() -> None:
    world = World(machine("n0", 4), machine("n1", 4), machine("n2", 2), machine("n3", 4, schedulable=False))
    world.submit(single("x", 3), single("y", 3))
    world.submit(single("j", 4))
    why = world.why("j")
    assert why.cause is Cause.NO_ROOM
    assert dict(why.numbers)["asked_milli"] == 4000
    assert dict(why.numbers)["free_milli"] >= 4000
    assert sum(count for _, count in why.nodes) == 4
    assert dict(why.nodes)[Filter.UNSCHEDULABLE] == 1
    assert dict(why.nodes)[Filter.DEVICE_COUNT] == 1


def test_a_job_is_told_which_cards_are_out_of_use_and_what_is_wrong_with_them() -> None:
    world = World(machine("n", 2), machine("other", 1, model="V100"))
    for node in ("n", "other"):
        world.tell(DeviceHealthChanged(world.now, node, f"{node}-0", DeviceHealth.FAULTY, "it has fallen off the bus"))
    world.submit(single("runs"), gang("waits", 1, asks(1, models=["A100"])))
    summary = world.why("waits").summary
    assert "card 0 of n is faulty (it has fallen off the bus)" in summary
    assert "other" not in summary


def test_what_all_nodes_lack_is_named_first() -> None:
    world = World(replace(machine("n", 2), cpu_milli=2000))
    world.submit(gang("runs", 1, asks(1, cpus=2)), single("waits"))
    assert world.why("waits").summary == "it asks for 1 GPU; 1 GPU is free for it, and no node has enough free CPUs"


def test_cards_that_a_job_could_not_use_are_not_counted_as_free_for_it() -> None:
    nodes = (machine("n", 2), machine("old", 8, model="V100"), machine("small", 4, card_mib=8_000))
    world = World(*nodes)
    world.submit(gang("runs", 1, asks(2, models=["A100"], card_mib=16_000)))
    world.submit(gang("waits", 1, asks(2, models=["A100"], card_mib=16_000)))
    reason = world.why("waits")
    assert dict(reason.numbers)["free_milli"] == 0
    assert reason.summary.startswith("it asks for 2 GPUs; 0 GPUs are free for it, and no node has ")


def test_a_job_without_cards_is_told_how_many_cpus_are_free() -> None:
    world = World(replace(machine("n", 2), cpu_milli=4_000), machine("other", 2, pool="other"), pools=(Pool("other"),))
    world.submit(gang("runs", 1, asks(1, cpus=3)))
    world.submit(gang("waits", 1, asks(0, cpus=2)))
    reason = world.why("waits")
    assert reason.summary == "it asks for 1 CPU task; 1 CPU is free for it, and no node has enough free CPUs"
    assert dict(reason.numbers)["free_cpu_milli"] == 1_000


def test_a_slice_by_memory_alone_is_not_called_a_cpu_task() -> None:
    world = World(machine("n", 1, pool="shared"), pools=(Pool("shared", SharingPolicy.OVERCOMMITTED),))
    slices = [gang(name, 1, asks(0, card_mib=9_216), pool="shared") for name in ("runs", "waits")]
    world.submit(*slices)
    assert world.why("waits").summary.startswith("it asks for 9 GiB of card memory; ")


@pytest.mark.parametrize(
    ("only_on", "who"),
    [
        ((), "no node"),
        (((NodeRequirement("zone", NodeOperator.IN, ("a",)),),), "none of the nodes that it asks for"),
    ],
)
def test_where_all_nodes_of_a_job_are_closed_by_those_who_offer_them_it_is_told_why(
    only_on: NodeSelection, who: str
) -> None:
    closed = replace(machine("n", 2), schedulable=False, unschedulable_reason="it is cordoned", labels=(("zone", "a"),))
    other = replace(machine("other", 2, pool="others"), schedulable=False, unschedulable_reason="it is not ready")
    world = World(closed, other, pools=(Pool("others"),))
    world.submit(replace(single("waits"), only_on=only_on))
    summary = world.why("waits").summary
    assert summary == f"it asks for 1 GPU; 0 GPUs are free for it, and {who} takes new work (it is cordoned)"


def test_of_a_job_on_a_node_that_is_not_heard_of_it_is_told_why_whatever_it_does_there() -> None:
    world = World(machine("n", 2), machine("other", 2))
    world.tell(JobSubmitted(0.0, single("waits", 2)))
    (start,) = world.core.decide(0.0)
    assert isinstance(start, Start)
    (place,) = start.placements
    node = machine(place.node, 2)
    away = replace(node, schedulable=False, unschedulable_reason="it does not answer", is_silent=True)
    closed = f"; node {place.node} is closed: it does not answer"
    world.tell(NodeJoined(1.0, away))
    assert world.why("waits").summary == f"starting on {place.node}, run 1{closed}"
    world.tell(Confirmed(2.0, start.id))
    assert world.why("waits").summary == f"running on {place.node}, run 1{closed}"
    world.tell(StopRequested(3.0, "waits"))
    assert world.why("waits").summary.endswith(closed)
    world.tell(NodeJoined(4.0, node))
    assert "closed" not in world.why("waits").summary


def test_positions_follow_the_order_and_count_from_one() -> None:
    world = World(machine("n", 1), settings=Settings(ordering="fifo"))
    world.submit(single("runs"))
    world.submit(single("a"), single("b"), single("urgent", priority=Priority.LOW), single("c"))
    assert {job: world.why(job).position for job in ("a", "b", "c", "urgent")} == {"a": 1, "b": 2, "c": 3, "urgent": 4}
    assert world.why("runs").position is None


def test_a_queue_at_its_limit_is_named_with_its_numbers() -> None:
    world = World(*POOL, queues=(queue("team", limit=2),))
    world.submit(single("a", queue="team"), single("b", 2, queue="team"))
    why = world.why("b")
    assert (why.cause, why.blocked_by) == (Cause.QUEUE_LIMIT, "team")
    assert dict(why.numbers) == {"held_milli": 1000, "limit_milli": 2000, "asked_milli": 2000}


def test_a_queue_that_may_not_borrow_is_named() -> None:
    world = World(*POOL, queues=(queue("team", guarantee=1, borrows=False),))
    world.submit(single("a", queue="team"), single("b", queue="team"))
    assert world.why("b").cause is Cause.GUARANTEE_OF_OTHERS


def test_a_job_that_came_after_the_last_cycle_is_told_so() -> None:
    world = World(*POOL)
    world.tell(JobSubmitted(world.now, single("j")))
    assert world.why("j").cause is Cause.NOT_CONSIDERED


def test_running_and_ended_jobs_are_described() -> None:
    world = World(*POOL)
    world.submit(single("j"))
    assert world.nodes_of("j")[0] in world.why("j").summary
    world.end("j")
    assert "succeeded" in world.why("j").summary


def test_nothing_is_said_about_a_job_that_is_not_there() -> None:
    with pytest.raises(NotFoundError) as caught:
        World(*POOL).why("nobody")
    assert caught.value.remedy


def test_a_waiting_job_is_told_when_it_should_start_by_what_is_known_of_the_running_ones() -> None:
    world = World(machine("n", 4), settings=Settings(ordering="edf"))
    world.submit(single("runs", 4), lasting=100, known=True)
    world.go_to(10)
    world.submit(single("j", 4))
    start = world.why("j").start
    assert start is not None
    assert start.earliest_at <= 100
    assert start.latest_at is None or start.latest_at >= 100
    assert start.basis


# ---- remedies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stuck:
    """A job that waits, and the field that the remedy for it changes."""

    name: str
    job: Job
    field: str
    before: tuple[Job, ...] = ()

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


STUCK = [
    Stuck(
        "a model that is busy",
        gang("j", 1, asks(1, models=["H100"])),
        "gpu_models",
        (gang("h", 1, asks(4, models=["H100"])),),
    ),
    Stuck("too many CPUs", gang("j", 1, asks(1, cpus=40)), "cpus", (gang("c", 3, asks(1, cpus=40)),)),
    Stuck(
        "too much memory",
        gang("j", 1, asks(1, memory_mib=200_000)),
        "memory",
        (gang("m", 3, asks(3, memory_mib=100_000)),),
    ),
    Stuck("too many tasks", gang("j", 12, asks(1)), "tasks", (single("x", 4),)),
    Stuck("too many cards", single("j", 4), "gpus", tuple(single(f"x{i}", 3) for i in range(3))),
    Stuck(
        "must lie together",
        gang("j", 2, asks(1), together=Level.NODE, together_required=True),
        "topology",
        tuple(single(f"x{i}", 3) for i in range(3)),
    ),
    Stuck("a whole card where halves are free", single("j", 1), "gpus", tuple(single(f"x{i}", 0.6) for i in range(12))),
]


def changed(job: Job, remedy: Remedy) -> Job:
    """The job file with the remedy applied, under another id."""
    role, request = job.roles[0], job.roles[0].request
    job = replace(job, id="changed")
    match remedy.field:
        case "topology":
            return replace(job, together=Level.CLUSTER, together_required=False)
        case "tasks":
            return replace(job, roles=(Role.rigid(request, int(remedy.value)),))
        case "gpu_models":
            request = replace(request, models=())
        case "cpus":
            request = replace(request, cpu_milli=round(float(remedy.value) * 1000))
        case "memory":
            request = replace(request, memory_mib=int(remedy.value.removesuffix("MiB")))
        case "gpus":
            asked = asks(float(remedy.value))
            request = TaskRequest(request.cpu_milli, request.memory_mib, asked.devices, asked.slice)
    return replace(job, roles=(replace(role, request=request),))


@pytest.mark.parametrize("stuck", STUCK, ids=str)
def test_the_remedy_that_is_offered_works(stuck: Stuck) -> None:
    world = World(*POOL, machine("n2", 4, model="H100"), settings=Settings(reserve=False))
    world.submit(*stuck.before)
    world.submit(stuck.job)
    assert world.state("j") is JobState.QUEUED
    remedy = world.why("j").remedy
    assert remedy is not None
    assert remedy.field == stuck.field
    fork = world.core.fork()
    fork.handle(JobSubmitted(world.now, changed(stuck.job, remedy)))
    started = fork.decide(world.now)
    assert "changed" in {decision.job for decision in started}
    for decision in started:
        fork.handle(Confirmed(world.now, decision.id))
    assert fork.jobs["changed"].state is JobState.RUNNING
    assert "changed" not in world.core.jobs


def test_no_remedy_is_offered_where_none_works() -> None:
    world = World(machine("n", 1))
    world.submit(single("runs"))
    world.submit(single("j"))
    assert world.why("j").remedy is None


@pytest.mark.parametrize("with_agent", ["roomy", "full"])
def test_a_part_of_a_card_is_advised_where_a_node_has_room_whose_agent_gives_out_parts(with_agent: str) -> None:
    def node(name: str) -> Node:
        extras = ((GPU_SLICES, 64),) if name == with_agent else ()
        return replace(machine(name, 1), extras=extras, labels=(("name", name),))

    world = World(node("full"), node("roomy"), settings=Settings(reserve=False))
    for name, part in (("full", 0.95), ("roomy", 0.5)):
        there = NodeRequirement("name", NodeOperator.IN, (name,))
        world.submit(single(f"on-{name}", part, only_on=((there,),)))
    world.submit(single("j"))
    remedy = world.why("j").remedy
    assert (remedy is not None and remedy.value == "0.5") is (with_agent == "roomy")


def test_a_part_of_a_card_is_advised_to_a_job_with_one_card_and_not_to_one_with_several() -> None:
    world = World(machine("n", 4))
    world.submit(*(single(f"x{index}", 0.6) for index in range(4)))
    world.submit(single("one"), single("several", 4))
    advised = world.why("one").remedy
    assert advised is not None
    assert advised.change == "ask for 0.25 GPUs a task instead of 1"
    assert world.why("several").remedy is None


def test_asking_changes_nothing() -> None:
    world = World(*POOL)
    world.submit(single("x", 3), single("y", 3), single("j", 4))
    before = world.core.snapshot()
    world.why("j")
    world.core.check(single("other", 8))
    assert world.core.snapshot() == before


def test_room_that_is_left_to_shorter_work_is_told_only_where_there_is_room() -> None:
    world = World(machine("n0", 8))
    for number in range(30):
        world.submit(single(f"short{number}"), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("wide", 6), lasting=36_000.0, known=True)
    why = world.why("wide")
    assert (why.cause, why.summary.partition(",")[0]) == (Cause.HELD_BACK, "there is room")
    world.submit(single("a", 3, priority=Priority.HIGH), lasting=60.0, known=True)
    assert world.why("wide").cause is Cause.NO_ROOM


@pytest.mark.parametrize(("swap_mib", "how"), [(0, "stop"), (32_000, "suspend --swap")])
def test_a_halted_job_that_keeps_the_memory_of_a_card_is_named_with_what_frees_it(swap_mib: int, how: str) -> None:
    world = World(machine("n", 2, swap_mib=swap_mib))
    world.submit(single("busy"), single("lab"), lasting=60.0, known=True)
    world.tell(SuspendRequested(world.now, "lab", by="the rule for idle dev jobs"))
    world.settle()
    world.submit(single("next", 2))
    assert "lab" not in world.why("next").summary, "it would not be room enough"
    world.submit(single("late"))
    reason = world.why("late")
    assert reason.blocked_by == "lab"
    assert "lab is suspended and keeps its device memory" in reason.summary
    assert reason.remedy is not None
    assert how in reason.remedy.change
    assert reason.remedy.change.endswith("lab")


def test_a_card_whose_memory_halted_work_keeps_is_not_counted_as_free() -> None:
    world = World(machine("n", 3))
    world.submit(single("busy"), single("lab"))
    world.tell(SuspendRequested(world.now, "lab"))
    world.settle()
    world.submit(single("wide", 2))
    reason = world.why("wide")
    assert dict(reason.numbers)["free_milli"] == 1000
    assert reason.summary.startswith("it asks for 2 GPUs; 1 GPU is free for it, and no node has ")


def test_work_that_people_halted_is_not_expected_to_end() -> None:
    world = World(machine("n", 1))
    world.submit(single("lab"), lasting=60.0, known=True)
    world.tell(SuspendRequested(world.now, "lab"))
    world.settle()
    world.submit(single("next"))
    start = world.why("next").start
    assert start is not None
    assert start.unknown == "what runs and what comes before it leave it no room that can be foreseen"


def test_large_figures_are_exact_with_units_and_the_nearest_that_works() -> None:
    world = World(machine("n", memory_mib=1_048_575))
    request = TaskRequest(cpu_milli=1000, memory_mib=1_048_576)
    refusal = world.core.check(Job("big", (Role.rigid(request, 1),)))
    assert refusal is not None
    assert refusal.summary == "a task asks for 1024 GiB of memory; the largest node has 1048575 MiB"
    assert refusal.remedy is not None
    assert refusal.remedy.change == "ask for at most 1048575 MiB"


def test_no_start_is_told_where_nothing_says_when_running_work_ends() -> None:
    world = World(machine("n", 1))
    world.submit(single("unknown"), lasting=60.0)
    world.submit(single("next"))
    start = world.why("next").start
    assert start is not None
    assert start.unknown == "nothing runs whose length is known, and too few jobs have ended to learn from"


def test_no_start_is_told_once_running_work_has_outrun_its_forecast() -> None:
    world = World(machine("n", 1))
    world.submit(single("late"), lasting=600.0)
    world.tell(DurationPredicted(world.now, "late", 1.0, 2.0))
    world.submit(single("next"))
    before = world.why("next").start
    assert before is not None
    assert not before.unknown
    world.go_to(world.now + 100.0)
    after = world.why("next").start
    assert after is not None
    assert after.unknown


def test_a_job_that_replanning_leaves_out_although_there_is_room_is_told_so() -> None:
    world = World(machine("n0", 4), machine("n1", 4), settings=Settings(ordering="srtf", preempt=True))
    for number in range(2):
        world.submit(single(f"stays{number}", 3, preemptible=False), lasting=1_000.0, known=True)
    world.submit(single("first", 2), lasting=10.0, known=True)
    world.submit(single("small"), lasting=50.0, known=True)
    assert world.state("small") is JobState.QUEUED
    why = world.why("small")
    assert (why.cause, why.remedy) == (Cause.BEHIND, None)
    assert "'srtf' has given all cards of its pool to work that is ahead" in why.summary
    assert world.why("first").cause is Cause.NO_ROOM


def test_a_remedy_offers_no_part_of_a_card_where_cards_are_given_whole() -> None:
    world = World(
        machine("n", 2, pool="whole"),
        pools=[Pool("whole", SharingPolicy.EXCLUSIVE)],
        queues=(queue("team", limit=1.5),),
    )
    world.submit(single("x", pool="whole", queue="team"), single("j", pool="whole", queue="team"))
    why = world.why("j")
    assert (why.cause, why.remedy) == (Cause.QUEUE_LIMIT, None)


def left_to_short_work() -> World:
    """Short work is expected on a machine of which half is busy, and a job that wants all of it has waited long."""
    world = World(machine("n0", 8))
    for number in range(30):
        world.submit(single(f"short{number}"), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("runs", 4, priority=Priority.HIGH), lasting=60_000.0)
    world.submit(single("wide", 8), lasting=1_000.0, known=True)
    world.go_to(world.now + 200.0)
    return world


def test_a_remedy_is_tried_as_submitted_now_when_shorter_work_is_left_room_again() -> None:
    remedy = left_to_short_work().why("wide").remedy
    assert remedy is not None
    assert remedy.value == "1", "two cards or four would be held back, although the job itself is held back no longer"


def test_asking_what_would_help_changes_no_instant_at_which_the_scheduler_wakes() -> None:
    world = left_to_short_work()
    world.submit(single("late", 8), lasting=2_000.0, known=True)
    before = world.core.snapshot(), world.core.next_wakeup(world.now)
    world.why("late")
    assert (world.core.snapshot(), world.core.next_wakeup(world.now)) == before


def test_a_job_for_which_others_end_starts_within_their_grace_and_may_keep_its_deadline() -> None:
    world = World(machine("n", 4), queues=(queue("team", guarantee=4), queue("free")))
    world.lingering.add("lent")
    world.submit(single("lent", 4, queue="free", checkpoint=Checkpoint(CheckpointMode.SIGNAL, grace_s=90.0)))
    world.submit(single("own", 4, queue="team", time_limit_s=600.0, deadline_s=700.0))
    why, outlook = world.why("own"), world.core.deadline_outlook("own", world.now)
    assert why.cause is Cause.ROOM_BEING_MADE
    assert why.start is not None
    assert (why.start.earliest_at, why.start.latest_at) == (world.now, world.now + 90.0)
    assert why.start.basis == "those who make room for it end within 90s"
    assert outlook is not None
    assert (outlook.verdict, outlook.latest_end_at) == (DeadlineVerdict.ACCEPT, world.now + 690.0)
    world.leave("lent")
    assert world.state("own") is JobState.RUNNING


def test_a_job_for_which_others_end_on_a_silent_node_is_not_said_to_start_within_their_grace() -> None:
    node = machine("n", 4)
    world = World(node, queues=(queue("team", guarantee=4), queue("free")))
    world.lingering.add("lent")
    world.submit(single("lent", 4, queue="free"))
    world.submit(single("own", 4, queue="team", time_limit_s=600.0, deadline_s=700.0))
    silent = replace(node, schedulable=False, unschedulable_reason="Kubernetes has it as not ready (no word)")
    world.tell(NodeJoined(world.now, silent))
    world.go_to(world.now)
    why, outlook = world.why("own"), world.core.deadline_outlook("own", world.now)
    assert why.start is not None
    assert why.start.unknown == (
        "those who make room for it end on node n, which is closed: Kubernetes has it as not ready (no word)"
    )
    assert outlook is not None
    assert outlook.verdict is DeadlineVerdict.AT_RISK
    world.tell(NodeJoined(world.now, node))
    assert (start := world.why("own").start) is not None
    assert not start.unknown


def test_why_answers_and_the_cycle_goes_on_after_a_restart_with_nothing_running_any_more() -> None:
    world = World(machine("n", 4), queues=(queue("team", guarantee=4), queue("free")))
    world.submit(single("before", 1, queue="free"))
    world.end("before")
    world.tell(DeviceHealthChanged(world.now, "n", "n-0", DeviceHealth.FAULTY))
    world.submit(single("own", 4, queue="team"))
    restored = Scheduler.restore(world.core.snapshot())
    assert restored.explain("own", world.now) == world.why("own")
    assert restored.decide(world.now) == []


def test_quotas_count_what_is_claimed_and_the_answer_says_so() -> None:
    world = World(machine("n", 4), queues=(queue("team", limit=2), queue("free")))
    world.lingering.add("low")
    world.submit(single("low", 4, queue="free", priority=Priority.LOW))
    world.submit(single("high", 2, queue="team", priority=Priority.HIGH))
    assert world.why("high").cause is Cause.ROOM_BEING_MADE
    world.submit(single("j", queue="team", priority=Priority.HIGH))
    why = world.why("j")
    assert (why.cause, dict(why.numbers)["held_milli"]) == (Cause.QUEUE_LIMIT, 2_000)
    assert "claimed for jobs that are about to start" in why.summary


def test_a_job_whose_place_is_empty_already_is_told_who_has_to_leave_its_quota() -> None:
    world = World(machine("n0", 4), machine("n1", 4))
    world.lingering |= {"other", "low"}
    world.submit(single("other", 4, user="bob"), single("low", 4, user="ann", priority=Priority.LOW))
    world.submit(single("j", 4, user="bob"))
    world.tell(LimitChanged(world.now, Limit("bob", jobs=1)))
    world.tell(StopRequested(world.now, "other"))
    world.leave("low")
    why = world.why("j")
    assert (why.cause, why.blocked_by) == (Cause.ROOM_BEING_MADE, "other")
    world.leave("other")
    assert world.state("j") is JobState.RUNNING


def test_a_job_is_told_of_the_one_for_whom_room_is_kept_that_alone_is_in_its_way() -> None:
    world = World(machine("n", 3), settings=Settings(ordering="fair"))
    world.lingering.add("low")
    world.submit(single("low", user="ann", priority=Priority.LOW), single("short", user="ann", preemptible=False))
    world.submit(single("long", user="ann", preemptible=False), lasting=100.0, known=True)
    world.submit(single("high", user="bob"))
    world.end("short")
    world.submit(single("head", 2, user="bob"))
    world.submit(single("j", user="cid"))
    assert world.why("high").cause is Cause.ROOM_BEING_MADE
    why = world.why("j")
    assert (why.cause, why.blocked_by, dict(why.numbers)) == (Cause.RESERVED, "head", {"kept_for": 1})
    world.tell(StopRequested(world.now, "head"))
    world.settle()
    assert world.state("j") is JobState.RUNNING, "there is room for it beside what is claimed on that node"


def test_the_ordering_that_has_a_job_wait_is_named() -> None:
    world = World(
        machine("n", 2), settings=Settings(ordering="fifo"), queues=(queue("team", ordering="edf"), queue("other"))
    )
    world.submit(single("x", 2))
    world.submit(single("first", queue="team"), single("j", queue="other"))
    why = world.why("j")
    assert (why.cause, why.blocked_by) == (Cause.BEHIND, "first")
    assert "the ordering 'fifo' lets nobody overtake" in why.summary, "that of another queue does not concern it"


def test_a_limit_of_cpus_is_told_in_cpus() -> None:
    most = Queue("team", limit=Amount(8_000, 4_000))
    world = World(machine("n", 8), queues=(most,))
    world.submit(gang("x", 1, asks(1, cpus=3), queue="team"), gang("j", 1, asks(1, cpus=2), queue="team"))
    assert world.why("j").summary == "queue team holds 3 CPUs of at most 4 CPUs; the job asks for 2 CPUs"


def test_only_protected_work_that_would_be_room_enough_is_blamed() -> None:
    world = World(machine("n0", 2), machine("n1", 4), settings=Settings(preempt=True))
    world.submit(single("fixed", 2, priority=Priority.LOW, preemptible=False))
    world.submit(single("peer", 4, priority=Priority.HIGH))
    world.submit(single("j", 4, priority=Priority.HIGH))
    assert world.why("j").cause is Cause.NO_ROOM, "two cards more would not do"
    world.submit(single("k", 2, priority=Priority.HIGH))
    why = world.why("k")
    assert (why.cause, why.blocked_by) == (Cause.VICTIMS_PROTECTED, "fixed")
    assert "not preemptible" in why.summary


def test_a_job_beyond_the_guarantee_of_a_queue_that_may_not_borrow_is_impossible() -> None:
    world = World(machine("n", 4), queues=(queue("team", guarantee=2, borrows=False),))
    refusal = world.core.check(single("j", 3, queue="team"))
    assert refusal is not None
    assert (refusal.cause, refusal.remedy and refusal.remedy.value) == (Cause.IMPOSSIBLE, "2")
    assert world.core.check(single("j", 2, queue="team")) is None


def test_work_that_is_being_ended_already_is_said_to_be_what_a_job_waits_for_and_not_what_is_protected() -> None:
    world = World(machine("n0", 4))
    world.submit(single("kept", minimum_run_s=9_000.0, priority=Priority.LOW))
    world.submit(*(single(name, priority=Priority.HIGH) for name in ("one", "two", "three")))
    world.submit(single("job", 2))
    world.lingering |= {"one", "two"}
    world.tell(StopRequested(0.0, "one"))
    world.settle()
    assert "being ended" not in world.why("job").summary
    world.tell(StopRequested(0.0, "two"))
    world.settle()
    why = world.why("job")
    assert (why.cause, why.blocked_by) == (Cause.NO_ROOM, "one")
    assert why.summary.endswith("no node has room; one and 1 other job are being ended, which will be room enough")
    world.leave("one")
    assert world.why("job").summary.endswith("; two is being ended, which will be room enough")
    world.leave("two")
    assert world.running() == {"kept", "three", "job"}
