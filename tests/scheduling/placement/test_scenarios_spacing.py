"""Gangs whose tasks must lie together, apart or evenly over places: all of them start so, or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, asks, elastic, gang, machine, single

from ledgers import check_everything
from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Stop
from millpond.model.events import DeviceHealthChanged, NodeChoiceChanged
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.settings import Settings

HOST, ZONE = "host", "zone"


def node(name: str, cards: int = 2) -> Node:
    """A machine of the zone that its name begins with."""
    return replace(machine(name, cards), labels=((HOST, name), (ZONE, name[0])))


def apart(label: str, roles: tuple[str, ...] = ("worker",), others: tuple[str, ...] = ("worker",)) -> SpacingRule:
    return SpacingRule(SpacingKind.APART, label, roles, others)


def even(label: str, most: int = 1, counted: tuple[tuple[str, int], ...] = (), empty: int = 0) -> SpacingRule:
    return SpacingRule(SpacingKind.EVEN, label, ("worker",), ("worker",), most, counted, empty)


TOGETHER = SpacingRule(SpacingKind.TOGETHER, ZONE, ("worker",))


def test_tasks_that_must_lie_apart_have_a_node_or_a_zone_each() -> None:
    world = World(node("a1", 4), node("a2", 4), node("b1", 4))
    world.submit(gang("g", 3, asks(1), spacing=(apart(HOST),)), gang("z", 2, asks(1), spacing=(apart(ZONE),)))
    assert sorted(world.nodes_of("g")) == ["a1", "a2", "b1"]
    assert sorted(name[0] for name in world.nodes_of("z")) == ["a", "b"]
    check_everything(world.core)


def test_a_gang_that_has_too_few_places_even_on_an_empty_pool_is_refused_with_the_reason() -> None:
    world = World(node("a1", 4), node("a2", 4))
    refused = world.core.check(gang("g", 2, asks(1), spacing=(apart(ZONE),)))
    assert refused is not None
    assert refused.cause is Cause.IMPOSSIBLE
    assert "2 tasks that must lie apart, by zone; this pool has no room for them so" in refused.summary
    assert world.core.check(gang("g", 2, asks(1), spacing=(apart(HOST),))) is None


def test_one_that_has_room_but_not_so_waits_as_a_whole_and_hears_why() -> None:
    world = World(node("a1", 4), node("b1", 1))
    world.submit(single("first"))
    assert world.nodes_of("first") == ["b1"]
    world.submit(gang("g", 2, asks(1), spacing=(apart(ZONE),)))
    assert world.state("g") is JobState.QUEUED
    assert "there may be room for them, but not so that they lie apart, by zone" in world.why("g").summary
    world.end("first")
    assert sorted(world.nodes_of("g")) == ["a1", "b1"]


def test_a_spread_gang_fills_the_places_with_the_fewest_and_counts_what_lies_there() -> None:
    world = World(node("a1", 8), node("b1", 8), node("b2", 8))
    world.submit(gang("g", 4, asks(1), spacing=(even(ZONE, empty=2),)))
    assert Counter(name[0] for name in world.nodes_of("g")) == {"a": 2, "b": 2}
    world.submit(gang("h", 3, asks(1), spacing=(even(ZONE, counted=(("a", 2),), empty=1),)))
    assert Counter(name[0] for name in world.nodes_of("h"))["b"] >= 2


def test_a_place_without_nodes_of_the_pool_counts_as_one_with_the_fewest() -> None:
    world = World(node("a1", 8))
    assert world.submit(gang("g", 2, asks(1), spacing=(even(ZONE, counted=(("a", 0),), empty=2),))) == []
    assert world.state("g") is JobState.QUEUED


def test_roles_keep_off_each_other_and_not_their_own() -> None:
    roles = (Role.rigid(asks(1), 2, "leader"), Role.rigid(asks(1), 2, "worker"))
    world = World(node("a1", 4), node("a2", 2))
    world.submit(Job("g", roles, spacing=(apart(HOST, ("leader",), ("worker",)),)))
    first, second, *workers = world.nodes_of("g")
    assert first == second
    assert set(workers) == {"a1", "a2"} - {first}


def test_tasks_that_must_lie_together_by_a_label_find_the_place_that_takes_them_all() -> None:
    world = World(node("a1", 2), node("b1", 2), node("b2", 2))
    world.submit(gang("g", 3, asks(1), spacing=(TOGETHER,)))
    assert {name[0] for name in world.nodes_of("g")} == {"b"}
    assert world.core.check(gang("h", 5, asks(1), spacing=(TOGETHER,))) is not None


def test_work_leaves_only_where_the_tasks_may_go() -> None:
    world = World(node("a1"), node("a2"), node("b1"))
    for name, on in (("x", "a1"), ("y", "a2"), ("z", "b1")):
        chosen = ((NodeRequirement(HOST, NodeOperator.IN, (on,)),),)
        world.submit(single(name, 2, priority=Priority.LOW, only_on=chosen))
        world.go_to(world.now + 10)
    world.submit(gang("high", 2, asks(1), priority=Priority.HIGH, spacing=(apart(ZONE),)))
    assert sorted(name[0] for name in world.nodes_of("high")) == ["a", "b"]
    assert len(world.of_kind(Stop)) == 2
    world.submit(gang("both", 2, asks(2), priority=Priority.CRITICAL, spacing=(TOGETHER,)))
    assert {name[0] for name in world.nodes_of("both")} == {"a"}
    check_everything(world.core)


def test_tasks_that_join_a_running_gang_keep_apart_from_it() -> None:
    world = World(node("a1", 4), node("b1", 1))
    world.submit(single("first"), elastic("g", (1, 2, 2), asks(1), spacing=(apart(ZONE),)))
    assert world.nodes_of("g") == ["a1"]
    world.end("first")
    world.go_to(world.now + 100)
    assert sorted(world.nodes_of("g")) == ["a1", "b1"]


def test_a_gang_for_which_room_is_kept_gets_it_in_different_places() -> None:
    world = World(node("a1", 1), node("b1", 1), node("b2", 1))
    world.submit(single("p"), single("q"), single("r"), lasting=100.0, known=True)
    world.submit(gang("g", 2, asks(1), spacing=(apart(ZONE),)))
    for number in range(6):
        world.submit(single(f"later{number}"), lasting=1_000.0, known=True)
    world.go_to(101.0)
    assert sorted(name[0] for name in world.nodes_of("g")) == ["a", "b"]


@pytest.mark.parametrize("ordering", ["srtf", "tiresias"])
def test_preemptive_orderings_keep_it_too(ordering: str) -> None:
    world = World(node("a1", 4), node("b1", 4), settings=Settings(ordering=ordering, preempt=True))
    world.submit(gang("g", 2, asks(1), spacing=(apart(ZONE),)), lasting=50.0, known=True)
    world.go_to(10.0)
    assert sorted(name[0] for name in world.nodes_of("g")) == ["a", "b"]


def test_a_job_that_waits_follows_another_choice_of_nodes_and_one_that_runs_keeps_its_own() -> None:
    world = World(node("a1", 1), node("b1", 1))
    in_a, in_b = (((NodeRequirement(ZONE, NodeOperator.IN, (zone,)),),) for zone in "ab")
    world.submit(single("first", only_on=in_a), single("next", only_on=in_a))
    assert world.state("next") is JobState.QUEUED
    change = NodeChoiceChanged(world.now, "next", in_b, ())
    assert from_plain(to_plain(change)) == change
    world.tell(change)
    world.tell(NodeChoiceChanged(world.now, "first", in_b, (apart(HOST),)))
    world.settle()
    assert world.nodes_of("next") == ["b1"]
    assert world.core.jobs["first"].job.only_on == in_a
    check_everything(world.core)


CARDS = st.lists(st.integers(0, 3), min_size=1, max_size=2)


@given(CARDS, CARDS, st.integers(2, 4), st.sampled_from((apart(HOST), apart(ZONE), even(ZONE, empty=2), even(HOST, 2))))
def test_equal_tasks_are_placed_by_a_rule_wherever_that_is_possible(
    of_a: list[int], of_b: list[int], tasks: int, rule: SpacingRule
) -> None:
    nodes = [
        node(f"{zone}{number}", cards)
        for zone, sizes in (("a", of_a), ("b", of_b))
        for number, cards in enumerate(sizes)
    ]
    if rule.label == HOST:
        rule = replace(rule, empty=len(nodes))
    world = World(*nodes)
    world.submit(gang("g", tasks, asks(1), spacing=(rule,)))
    lying = world.nodes_of("g")
    possible = any(
        keeps(rule, nodes, layout)
        for layout in product(range(len(nodes)), repeat=tasks)
        if all(count <= len(nodes[index].devices) for index, count in Counter(layout).items())
    )
    assert len(lying) == (tasks if possible else 0)
    if lying:
        names = [each.name for each in nodes]
        assert keeps(rule, nodes, tuple(names.index(name) for name in lying))


def keeps(rule: SpacingRule, nodes: list[Node], layout: tuple[int, ...]) -> bool:
    places = [dict(each.labels)[rule.label] for each in nodes]
    counts = Counter(places[index] for index in layout)
    if rule.kind is SpacingKind.APART:
        return max(counts.values()) == 1
    return max(counts.values()) - min(counts[place] for place in set(places)) <= rule.most


def test_no_room_is_reserved_for_a_gang_of_which_the_rules_leave_a_task_no_place() -> None:
    world = World(node("a1", 4), node("a2", 4))
    for card in world.core.node_views()[1].node.devices:
        world.tell(DeviceHealthChanged(world.now, "a2", card.uuid, DeviceHealth.FAULTY))
    world.submit(single("first", 3), lasting=100.0, known=True)
    world.submit(gang("g", 2, asks(4), spacing=(apart(HOST),)))
    world.submit(single("long"), lasting=10_000.0, known=True)
    assert world.running() == {"first", "long"}


def test_what_is_reserved_for_a_gang_that_must_lie_apart_is_not_taken_though_it_would_have_as_many_cards() -> None:
    world = World(node("a1"), node("b1"), node("c1"), settings=Settings(ordering="fair"))
    world.submit(single("soon", 2), lasting=100.0, known=True)
    world.submit(single("late", 2), lasting=500.0, known=True)
    world.submit(gang("g", 2, asks(1), spacing=(apart(HOST),)), lasting=50.0, known=True)
    world.submit(single("behind", 2), lasting=1_000.0, known=True)
    assert world.running() == {"soon", "late"}
    world.go_to(100.0)
    assert world.running() == {"late", "g"}
    world.go_to(150.0)
    assert world.running() == {"late", "behind"}
