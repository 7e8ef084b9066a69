"""Work goes where what it needs lies, or comes soonest; where nothing is known of that, it goes by score alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import Setting, jobs, worlds
from worlds import World, asks, elastic, gang, machine, single

from millpond.model.contents import Content
from millpond.model.events import JobSubmitted, NodeContents, NodeJoined

FACES = Content("data:faces@3", 6_000)
NEEDED = (FACES,)


def report(world: World, node: str, *contents: Content, rate: int = 100) -> None:
    world.tell(NodeContents(world.now, node, contents, rate))


@pytest.fixture
def world() -> World:
    """Three nodes of four cards: c holds the faces, b fetches them in 6 seconds, a in a minute."""
    world = World(*(machine(name) for name in "abc"))
    report(world, "a")
    report(world, "b", rate=1_000)
    report(world, "c", FACES)
    return world


def test_a_job_goes_to_the_node_that_holds_what_it_needs_and_else_where_it_comes_soonest(world: World) -> None:
    world.submit(*(single(f"job-{number}", 3, contents=NEEDED) for number in range(3)))
    assert [world.nodes_of(f"job-{number}") for number in range(3)] == [["c"], ["b"], ["a"]]


def test_a_node_that_fetches_at_another_rate_than_before_or_comes_later_counts_so(world: World) -> None:
    world.submit(single("first", 3, contents=NEEDED))
    report(world, "a", rate=6_000)
    world.submit(single("second", 3, contents=NEEDED))
    world.tell(NodeJoined(world.now, machine("d")))
    report(world, "d", rate=6_000)
    world.submit(single("third", 3, contents=NEEDED))
    assert [world.nodes_of(job) for job in ("first", "second", "third")] == [["c"], ["a"], ["d"]]


def test_jobs_that_need_nothing_and_what_no_node_is_known_to_hold_go_by_score(world: World) -> None:
    world.submit(single("any", 3))
    assert world.nodes_of("any") == ["a"]
    world.submit(single("unknown", 4, contents=(Content("data:unknown"),)))
    assert world.nodes_of("unknown") == ["b"]


def test_a_job_that_starts_says_how_long_its_slowest_node_fetches_until_that_tells_that_it_has_all(
    world: World,
) -> None:
    world.core.handle(JobSubmitted(world.now, gang("gang", 2, asks(4), contents=NEEDED)))
    world.tick()
    assert world.core.explain("gang", world.now).summary == (
        "starting on b and c, run 1; what it needs takes 6s to fetch to b"
    )
    world.core.handle(NodeContents(world.now, "b", NEEDED, 1_000))
    assert world.core.explain("gang", world.now).summary == "starting on b and c, run 1"


def test_a_gang_goes_where_its_slowest_node_is_ready_soonest(world: World) -> None:
    world.submit(gang("gang", 2, asks(4), contents=NEEDED))
    assert sorted(world.nodes_of("gang")) == ["b", "c"]


def test_an_elastic_gang_is_not_made_smaller_to_lie_nearer(world: World) -> None:
    world.submit(elastic("gang", (1, 2, 2), asks(4), contents=NEEDED))
    assert sorted(world.nodes_of("gang")) == ["b", "c"]


def test_a_fetch_that_is_short_beside_the_run_does_not_break_into_an_empty_node(world: World) -> None:
    world.submit(single("there", 1))
    for job, length_s in (("long", 60_000.0), ("short", 60.0)):
        world.submit(single(job, 1, contents=NEEDED), lasting=length_s, known=True)
    assert world.nodes_of("there") == world.nodes_of("long") == ["a"]
    assert world.nodes_of("short") == ["c"]


@settings(derandomize=True, deadline=None, max_examples=25)
@given(setting=worlds(orderings=("default", "edf")), data=st.data(), holds=st.booleans())
def test_what_all_nodes_hold_or_lack_decides_nothing(setting: Setting, data: Any, holds: bool) -> None:
    drawn = [data.draw(jobs(f"job-{number}", contents=NEEDED)) for number in range(6)]

    def play(contents: tuple[Content, ...], *, reports: bool) -> list[object]:
        world = World(*setting.nodes, settings=setting.settings, pools=setting.pools, queues=setting.queues)
        for node in setting.nodes if reports else ():
            report(world, node.name, *(NEEDED if holds else ()))
        world.submit(*(replace(job, contents=contents) for job in drawn))
        return list(world.decisions)

    assert play(NEEDED, reports=True) == play(NEEDED, reports=False) == play((), reports=True)
