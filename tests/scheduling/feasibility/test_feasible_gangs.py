"""What is accepted can be started: judgement and placement of gangs, held against trying everything."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts_by_hand import fits
from worlds import World, asks, gang, machine, restarted, single

from ledgers import overdrawn
from millpond.model.events import NodeJoined, PoolChanged, ResumeRequested, SuspendRequested
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import DEFAULT_POOL, Node, Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.states import JobState
from millpond.model.workloads import Job, Role
from seeds import few_then_many

MODELS = ("A", "B", "C")


def some_node(rng: random.Random, number: int) -> Node:
    """A small node: up to three cards of any models, one of them perhaps of unknown memory."""
    devices = tuple(
        Device(f"{number}-{card}", card, "nvidia", rng.choice(MODELS), rng.choice([0, 10_000, 20_000, 20_000]))
        for card in range(rng.choice([0, 1, 2, 2, 3]))
    )
    rdma = rng.randrange(3)
    return Node(
        f"n{number}",
        cpu_milli=rng.choice([4_000, 8_000]),
        memory_mib=rng.choice([4_000, 8_000]),
        devices=devices,
        rack_name=rng.choice(["r", "s"]),
        zone_name=rng.choice(["y", "z"]),
        extras=(("rdma", rdma),) if rdma else (),
    )


def some_request(rng: random.Random) -> TaskRequest:
    """Whole cards, a share, a share with named memory, memory alone, or no card at all."""
    gpus, card_mib = rng.choice([(0, -1), (0, 6_000), (0.3, -1), (0.5, -1), (0.6, 6_000), (0.7, -1), (1, -1), (2, -1)])
    if gpus == 1 and rng.random() < 0.3:
        card_mib = 15_000
    limit = min(1.0, gpus + 0.3) if 0 < gpus < 1 and rng.random() < 0.3 else None
    models = rng.sample(MODELS, rng.choice([1, 2])) if (gpus or card_mib > 0) and rng.random() < 0.4 else ()
    return asks(
        gpus,
        cpus=rng.choice([0, 1, 2, 3]),
        memory_mib=rng.choice([0, 1_000, 2_000]),
        card_mib=card_mib,
        limit=limit,
        models=models,
        extras=[("rdma", 1)] if rng.random() < 0.2 else (),
    )


def some_gang(rng: random.Random) -> Job:
    """One to three roles of up to three tasks, at most five in all, anywhere or close together."""
    roles: list[Role] = []
    left = 5
    for number in range(rng.choice([1, 2, 2, 3])):
        count = rng.randrange(1, min(3, left - 2 + number) + 1)
        left -= count
        desired = count + rng.choice([0, 0, 1])
        roles.append(Role(some_request(rng), desired, count, desired, f"r{number}"))
    together = rng.choice([Level.ZONE, Level.ZONE, Level.RACK, Level.NODE])
    required = rng.random() < 0.7
    together = together if required else rng.choice([together, Level.CLUSTER])
    return Job("g", tuple(roles), together=together, together_required=required)


@pytest.mark.parametrize("examples", few_then_many([50], [150]))
def test_a_gang_is_accepted_if_and_only_if_it_fits_on_the_empty_cluster_and_then_it_starts(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(seed=st.integers(0, 10**9))
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        pool = Pool(DEFAULT_POOL, SharingPolicy.OVERCOMMITTED, rng.choice([1_000, 1_500]))
        nodes = [some_node(rng, number) for number in range(rng.choice([1, 2, 3, 4]))]
        job = some_gang(rng)
        world = World(*nodes, pools=[pool])
        reason = world.core.check(job)
        assert (reason is None) == fits(job, nodes, pool)
        if reason is None:
            world.submit(job)
            assert world.state("g") is JobState.RUNNING
            assert overdrawn(world.core._state.cluster) == ""
        else:
            assert reason.cause is Cause.IMPOSSIBLE

    compare()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_what_is_faulty_cordoned_or_taken_now_does_not_make_a_gang_impossible(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [some_node(rng, number) for number in range(3)]
    job = some_gang(rng)
    healthy = World(*nodes).core.check(job)
    ill = [
        replace(
            node,
            schedulable=rng.random() < 0.5,
            devices=tuple(replace(d, health=rng.choice([DeviceHealth.OK, DeviceHealth.FAULTY])) for d in node.devices),
        )
        for node in nodes
    ]
    world = World(*ill)
    world.submit(Job("x", (Role.rigid(asks(0, cpus=1), 1),)))
    assert world.core.check(job) == healthy


def test_one_allowed_model_that_is_there_is_enough() -> None:
    world = World(machine("n", 1, model="A100"))
    request = asks(1, models=["H100", "A100"])
    assert world.core.check(gang("j", 1, request)) is None
    world.submit(gang("j", 1, request))
    assert world.state("j") is JobState.RUNNING
    reason = world.core.check(gang("k", 1, asks(1, models=["H100", "B200"])))
    assert reason is not None
    assert "'H100' or 'B200'" in reason.summary


def test_a_model_that_joins_later_is_used_by_work_that_named_it_before() -> None:
    world = World(machine("n", 1, model="A100"))
    world.submit(single("x"))
    world.submit(gang("j", 1, asks(1, models=["H100", "A100"])))
    assert world.state("j") is JobState.QUEUED
    twin = world.core.fork()
    for core in (world.core, twin):
        core.handle(NodeJoined(world.now, machine("m", 1, model="H100")))
    assert twin.decide(world.now) == world.tick()
    assert world.nodes_of("j") == ["m"]


def test_models_that_nobody_has_do_not_use_up_what_nodes_need() -> None:
    world = World(machine("n", 1, model="A100"))
    world.submit(single("x"))
    for number in range(70):
        world.submit(gang(f"j{number}", 1, asks(1, models=[f"M{number}", "A100"])))
    world.tell(NodeJoined(world.now, machine("m", 1, model="M69")))
    world.settle()
    assert world.nodes_of("j69") == ["m"]


def test_memory_of_a_card_of_unknown_size_is_not_handed_out_by_the_mib() -> None:
    world = World(machine("n", 1, card_mib=0))
    assert world.core.check(gang("j", 1, asks(0, card_mib=4_000))) is not None
    assert world.core.check(gang("k", 1, asks(0.5, card_mib=4_000))) is None


def test_slices_by_memory_alone_lie_together_on_a_card_whose_compute_is_taken() -> None:
    world = World(machine("n", 1), machine("m", 0))
    world.submit(gang("x", 1, asks(0.5, limit=1.0)))
    world.submit(gang("g", 2, asks(0, card_mib=2_000), together=Level.NODE, together_required=True))
    assert world.nodes_of("g") == ["n", "n"]


def test_a_slice_by_memory_alone_leaves_whole_cards_whole() -> None:
    world = World(machine("n", 2))
    world.submit(single("a"))
    world.submit(single("b", 0.5))
    world.end("a")
    world.submit(gang("slice", 1, asks(0, card_mib=4_000)))
    world.submit(single("whole"))
    assert world.state("whole") is JobState.RUNNING


def test_a_slice_by_memory_alone_is_not_taken_into_a_pool_of_whole_cards() -> None:
    world = World(machine("n", 1), pools=[Pool(DEFAULT_POOL, SharingPolicy.EXCLUSIVE)])
    reason = world.core.check(gang("j", 1, asks(0, card_mib=2_000)))
    assert reason is not None
    assert reason.remedy is not None
    assert (reason.remedy.field, reason.remedy.value) == ("gpus", "1")


def test_a_gang_of_unlike_roles_that_is_too_large_is_told_which_role_to_make_smaller() -> None:
    world = World(machine("n", 4), machine("m", 4))
    roles = (Role.rigid(asks(4), 1, "chief"), Role.rigid(asks(2), 3, "worker"))
    reason = world.core.check(Job("g", roles))
    assert reason is not None
    assert reason.remedy is not None
    assert "at most 2 tasks of role 'worker'" in reason.remedy.change
    smaller = (roles[0], Role.rigid(asks(2), int(reason.remedy.value), "worker"))
    assert world.core.check(Job("g", smaller)) is None


def test_letting_tasks_lie_apart_is_offered_only_where_that_would_do() -> None:
    world = World(machine("n", 4), machine("m", 4))
    for tasks, field in ((2, "topology"), (3, "tasks")):
        reason = world.core.check(gang("g", tasks, asks(3), together=Level.NODE, together_required=True))
        assert reason is not None
        assert reason.remedy is not None
        assert reason.remedy.field == field


def test_a_large_gang_of_three_roles_is_laid_out_whatever_the_order_in_which_they_are_written() -> None:
    nodes = [machine(f"x{n}", 8, model="X") for n in range(6)] + [machine(f"y{n}", 16, model="Y") for n in range(2)]
    roles = (
        Role.rigid(asks(1, cpus=8), 16, "easy"),
        Role.rigid(asks(16, cpus=1, models=["Y"]), 1, "wide"),
        Role.rigid(asks(8, cpus=1, models=["X", "Y"]), 6, "whole"),
    )
    for order in permutations(roles):
        world = World(*nodes)
        job = Job("g", order)
        assert world.core.check(job) is None
        world.submit(job)
        assert len(world.nodes_of("g")) == 23


def test_a_pool_without_nodes_is_told_with_those_that_have_some() -> None:
    world = World(machine("n", 1), pools=[Pool("gold")])
    reason = world.core.check(single("j", pool="gold"))
    assert reason is not None
    assert reason.remedy is not None
    assert (reason.summary, reason.remedy.change) == (
        "pool 'gold' has no nodes",
        "add a node to it, or set `pool` to one of: default",
    )
    assert (reason.remedy.field, reason.remedy.value) == ("pool", "default")
    alone = World(pools=[Pool("gold")]).core.check(single("j", pool="gold"))
    assert alone is not None
    assert alone.remedy is not None
    assert (alone.remedy.change, alone.remedy.field) == ("add a node to it", "")


def test_a_part_of_a_card_starts_in_no_pool_that_gives_out_whole_cards_by_now() -> None:
    sliced, whole = (Pool(DEFAULT_POOL, sharing) for sharing in (SharingPolicy.SLICED, SharingPolicy.EXCLUSIVE))
    world = World(machine("n", 2), pools=[sliced])
    world.submit(single("full", 2))
    world.submit(single("part", 0.5))
    world.tell(PoolChanged(world.now, whole))
    world.end("full")
    assert world.state("part") is JobState.QUEUED
    assert "in a pool of whole cards" in world.why("part").summary
    for core in (world.core.fork(), restarted(world.core)):
        assert not core.decide(world.now)
    world.submit(single("one", 1))
    assert world.state("one") is JobState.RUNNING
    world.tell(PoolChanged(world.now, sliced))
    world.settle()
    assert world.state("part") is JobState.RUNNING


def test_a_part_of_a_card_that_runs_goes_on_in_a_pool_that_gives_out_whole_cards_by_now() -> None:
    world = World(machine("n", 2), pools=[Pool(DEFAULT_POOL, SharingPolicy.SLICED, suspends=True)])
    world.submit(single("part", 0.5), single("other", 0.5))
    world.tell(SuspendRequested(world.now, "part"))
    world.settle()
    world.tell(PoolChanged(world.now, Pool(DEFAULT_POOL, SharingPolicy.EXCLUSIVE)))
    world.tell(ResumeRequested(world.now, "part"))
    world.settle()
    assert (world.state("part"), world.state("other")) == (JobState.RUNNING, JobState.RUNNING)
    assert overdrawn(world.core._state.cluster) == ""
