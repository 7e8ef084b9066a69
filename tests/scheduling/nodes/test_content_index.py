"""What nodes report of their contents says for how long they would fetch what a job needs."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import World, machine, restarted

from millpond.model.contents import MOST_CONTENTS, Content
from millpond.model.errors import InvalidInputError
from millpond.model.events import NodeContents, NodeJoined, NodeLost
from millpond.scheduling.ledger.content_index import ContentIndex
from millpond.scheduling.placement.nearest_contents import FetchTimes, nearest_first

FACES, BASE = Content("data:faces@3", 3_000), Content("image:base", 1_000)


def index_of(*nodes: str) -> ContentIndex:
    return World(*(machine(node) for node in nodes)).core._state.cluster.contents


def seconds(index: ContentIndex, *contents: Content) -> list[float] | None:
    found = index.fetch_s(contents)
    return None if found is None else found.tolist()


def report(index: ContentIndex, node: str, *contents: Content, rate: int = 100) -> None:
    index.note(NodeContents(0.0, node, contents, rate))


def test_a_node_fetches_what_it_lacks_at_its_own_rate() -> None:
    index = index_of("a", "b", "c")
    report(index, "a", FACES, BASE)
    report(index, "b", BASE, rate=1_000)
    report(index, "c")
    assert seconds(index, FACES, BASE) == [0.0, 3.0, 40.0]


def test_a_copy_knows_what_was_reported_and_nothing_of_what_it_knew_before() -> None:
    index, twin = index_of("a", "b"), index_of("a", "b")
    report(index, "a", FACES)
    report(twin, "b", FACES)
    assert seconds(twin, FACES) == [30.0, 0.0]
    twin.copy_from(index)
    assert seconds(twin, FACES) == seconds(index, FACES) == [0.0, 30.0]


def test_a_node_that_reported_nothing_holds_nothing_and_fetches_at_the_slowest_known_rate() -> None:
    index = index_of("a", "b", "c", "new")
    report(index, "a", FACES, rate=1_000)
    report(index, "b", rate=10)
    report(index, "c", rate=0)
    assert seconds(index, FACES) == [0.0, 300.0, 300.0, 300.0]


def test_an_unknown_size_is_that_of_the_largest_reported_under_the_name() -> None:
    index = index_of("a", "b", "c")
    report(index, "a", Content("data:faces@3", 500))
    report(index, "b", Content("data:faces@3", 700))
    report(index, "c")
    assert seconds(index, Content("data:faces@3")) == [0.0, 0.0, 7.0]


def test_nothing_follows_where_neither_sizes_nor_rates_are_known_or_all_nodes_hold_it() -> None:
    index = index_of("a", "b")
    assert seconds(index, BASE) is None
    report(index, "a", BASE, rate=0)
    assert seconds(index, BASE) is None
    report(index, "a", BASE)
    assert seconds(index, Content("data:unknown")) is None
    assert seconds(index, FACES) == [30.0, 30.0]
    assert seconds(index, BASE) == [0.0, 10.0]
    report(index, "b", BASE)
    assert seconds(index, BASE) is None


def test_a_report_replaces_the_one_before_and_a_node_that_is_forgotten_holds_nothing() -> None:
    index = index_of("a", "b")
    report(index, "a", FACES)
    report(index, "a", BASE)
    assert not index.holders(FACES.name)
    assert index.holders(BASE.name) == {"a": 1_000}
    index.forget("a")
    index.forget("a")
    assert not index.holders(BASE.name)
    assert seconds(index, BASE) is None


def test_of_a_long_report_the_first_contents_count() -> None:
    index = index_of("a")
    report(index, "a", *(Content(f"data:{number}", 1) for number in range(MOST_CONTENTS + 1)))
    assert index.holders(f"data:{MOST_CONTENTS - 1}")
    assert not index.holders(f"data:{MOST_CONTENTS}")


@pytest.mark.parametrize(("name", "size"), [("", 1), ("data:faces@3", -1)])
def test_a_content_has_a_name_and_no_negative_size(name: str, size: int) -> None:
    with pytest.raises(InvalidInputError, match="give it a name"):
        Content(name, size)


def test_contents_are_those_of_a_node_until_it_is_lost_and_outlive_a_restart_and_other_devices() -> None:
    world = World(machine("a", 2), machine("b", 2))
    core = world.core
    for node in ("a", "b", "unknown"):
        core.handle(NodeContents(world.now, node, (FACES,), 100))
    core.handle(NodeJoined(world.now, machine("a", 3)))
    core.handle(NodeLost(world.now, "b"))
    for each in (core, core.fork(), restarted(core)):
        assert each._state.cluster.contents.holders(FACES.name) == {"a": 3_000}
        each.handle(NodeJoined(world.now, machine("c")))
        assert seconds(each._state.cluster.contents, FACES)[-2:] == [0.0, 30.0]


@pytest.mark.parametrize("run_s", [0.0, 300.0])
@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]),
        ([0, 1, 1, 1, 1], [[0, 1, 0, 0, 0], [0, 1, 1, 1, 0]]),
        ([0, 0, 1, 0, 0], []),
        ([0, 0, 0, 0, 0], []),
    ],
)
def test_steps_from_near_to_far_are_the_same_whatever_was_asked_before(
    run_s: float, mask: list[int] | None, expected: list[list[int]]
) -> None:
    allowed = None if mask is None else np.array(mask, dtype=np.uint8)
    times = FetchTimes(np.array([0.0, 1.0, 20.0, 24.0, 90.0]))
    for other_s in (700.0, 0.0, 2_500.0, 1e9):
        list(nearest_first(times, other_s, None))
    for _ in range(2):
        assert [step.tolist() for step in nearest_first(times, run_s, allowed)] == expected
