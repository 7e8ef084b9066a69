"""Several clusters in one pool: a job goes where there is room first, and all of its tasks lie in one of them."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, asks, elastic, gang, machine, single

from ledgers import check_everything
from millpond.engines.clusters.engine_router import node_of_cluster
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.nodes import CLUSTER_LABEL, Node
from millpond.model.hardware.topology import Level
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.workloads import Job, Priority, Role

IN_ONE = (SpacingRule(SpacingKind.TOGETHER, CLUSTER_LABEL, ("worker",)),)
IN_EAST, IN_WEST = (((NodeRequirement(CLUSTER_LABEL, NodeOperator.IN, (name,)),),) for name in ("east", "west"))


def node(name: str, cards: int = 2) -> Node:
    """A machine of the cluster that its name begins with."""
    return node_of_cluster(machine(name, cards), {"e": "east", "w": "west"}[name[0]])


def test_a_job_goes_to_the_cluster_that_has_room_and_a_gang_lies_in_one() -> None:
    world = World(node("e1"), node("w1"), node("w2"))
    world.submit(single("first", 1, only_on=IN_WEST))
    world.submit(gang("g", 2, asks(1), spacing=IN_ONE), single("s", 2))
    assert world.nodes_of("g") == ["e1", "e1"]
    assert world.nodes_of("s")[0].startswith("w")
    check_everything(world.core)


def test_a_gang_waits_though_both_clusters_together_have_room_and_hears_what_each_has() -> None:
    world = World(node("e1"), node("w1"))
    world.submit(single("a", 1, only_on=IN_WEST), single("b", 1, only_on=IN_EAST))
    world.submit(gang("g", 2, asks(1), spacing=IN_ONE))
    assert world.state("g") is JobState.QUEUED
    said = world.why("g").summary
    assert "there may be room for them, but not so that they lie in one cluster" in said
    assert "; 1 GPU is free in cluster east; 1 GPU is free in cluster west" in said


def test_what_no_cluster_can_hold_is_refused_though_all_together_could() -> None:
    world = World(node("e1"), node("w1"), node("w2"))
    assert world.core.check(gang("g", 4, asks(1), spacing=IN_ONE)) is None
    refused = world.core.check(gang("h", 5, asks(1), spacing=IN_ONE))
    assert refused is not None
    assert "5 tasks that must lie in one cluster; this pool has no room for them so" in refused.summary


def test_roles_of_one_job_lie_in_one_cluster_too() -> None:
    roles = (Role.rigid(asks(2), 1, "head"), Role.rigid(asks(1), 2, "worker"))
    rule = replace(IN_ONE[0], roles=("head", "worker"))
    world = World(node("e1"), node("w1"), node("w2"))
    world.submit(Job("g", roles, spacing=(rule,)))
    assert {name[0] for name in world.nodes_of("g")} == {"w"}


def test_an_elastic_gang_grows_within_its_cluster_alone() -> None:
    world = World(node("e1"), node("w1"))
    world.submit(single("first", 1, only_on=IN_WEST))
    world.submit(elastic("g", (2, 4, 4), asks(1), spacing=IN_ONE))
    assert world.nodes_of("g") == ["e1", "e1"]
    world.end("first")
    world.go_to(world.now + 3_600)
    assert world.nodes_of("g") == ["e1", "e1"], "west has free cards, which are none for it"


def test_work_leaves_within_one_cluster_for_a_gang_of_a_higher_class() -> None:
    world = World(node("e1"), node("w1"), node("w2"))
    for name in ("a", "b", "c"):
        world.submit(single(name, 2, priority=Priority.LOW))
        world.go_to(world.now + 10)
    world.submit(gang("high", 4, asks(1), priority=Priority.HIGH, spacing=IN_ONE))
    assert {name[0] for name in world.nodes_of("high")} == {"w"}
    assert [world.state(name) for name in ("a", "b", "c")].count(JobState.QUEUED) == 2


def test_zones_and_racks_of_one_name_are_two_where_the_clusters_are_two() -> None:
    world = World(*(node_of_cluster(machine(name, 2, zone_name="z", rack_name="r"), name) for name in ("east", "west")))
    assert world.core.check(gang("g", 2, asks(2), together=Level.RACK, together_required=True)) is not None
    assert world.core.check(gang("g", 2, asks(2), together=Level.ZONE, together_required=True)) is not None


def test_where_there_is_one_cluster_all_nodes_are_of_it() -> None:
    world = World(machine("n0", 2), machine("n1", 2))
    world.submit(gang("g", 4, asks(1), spacing=IN_ONE))
    assert sorted(world.nodes_of("g")) == ["n0", "n0", "n1", "n1"]
    world.submit(gang("h", 2, asks(1), spacing=IN_ONE))
    assert "in cluster" not in world.why("h").summary
