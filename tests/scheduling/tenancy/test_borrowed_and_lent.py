"""Used, within guarantees, borrowed, lent and waiting: what each queue is said to hold, and whose that is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, asks, gang, machine, queue, single

from millpond.model.errors import MillpondError
from millpond.model.events import NodeJoined, NodeLost, QueueChanged, QueueRemoved, StopRequested
from millpond.model.resources import Amount
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.queue_views import QueueStatus
from queue_sums import check_queue_sums

HALVES = (queue("vision", guarantee=6), queue("speech", guarantee=10))
GROUP = (
    queue("org", guarantee=12),
    queue("vision", guarantee=4, parent="org"),
    queue("speech", guarantee=4, parent="org"),
)


def status(world: World, name: str) -> QueueStatus:
    return next(each for each in world.core.queue_statuses() if each.queue.name == name)


def shares(world: World, name: str) -> tuple[float, float, float, float, float]:
    """Cards used, within guarantees, borrowed, lent and free."""
    share = status(world, name).share
    return tuple(milli / 1000 for milli in (share.used, share.within, share.borrowed, share.lent, share.free))  # type: ignore[return-value]


def test_what_a_queue_holds_beyond_its_guarantee_is_borrowed_and_lent_by_whose_cards_they_are() -> None:
    world = World(machine("n", 16), queues=HALVES)
    world.submit(gang("a", 10, asks(1), queue="vision"))
    assert shares(world, "vision") == (10, 6, 4, 0, 0)
    assert shares(world, "speech") == (0, 0, 0, 4, 6)


def test_cards_that_nobody_is_guaranteed_are_borrowed_first() -> None:
    world = World(machine("n", 16), queues=[HALVES[0], queue("speech", guarantee=6)])
    world.submit(gang("a", 10, asks(1), queue="vision"))
    assert shares(world, "speech") == (0, 0, 0, 0, 6)
    world.submit(gang("b", 2, asks(1), queue="vision"))
    assert shares(world, "speech") == (0, 0, 0, 2, 4)


def test_what_a_group_is_guaranteed_beyond_its_queues_covers_these_in_proportion_by_whole_cards() -> None:
    world = World(machine("n", 16), queues=GROUP)
    world.submit(gang("a", 8, asks(1), queue="vision"), gang("b", 6, asks(1), queue="speech"))
    assert shares(world, "org") == (14, 12, 2, 0, 0)
    assert shares(world, "vision")[:3] == (8, 7, 1)
    assert shares(world, "speech")[:3] == (6, 5, 1)
    world.submit(single("part", 0.5, queue="speech"))
    assert shares(world, "vision")[:3] == (8, 6.462, 1.538), "by thousandths where parts of cards are held"


def test_a_group_within_its_guarantee_lends_and_borrows_inside() -> None:
    world = World(machine("n", 16), queues=GROUP)
    world.submit(gang("a", 12, asks(1), queue="vision"))
    assert shares(world, "org") == (12, 12, 0, 0, 0)
    assert shares(world, "vision") == (12, 8, 4, 0, 0)
    assert shares(world, "speech") == (0, 0, 0, 4, 0)


def test_what_is_missing_with_a_lost_machine_is_neither_lent_nor_free() -> None:
    world = World(machine("n", 8), machine("m", 8), queues=HALVES)
    world.tell(NodeLost(world.now, "m"))
    assert shares(world, "speech") == (0, 0, 0, 0, 5)
    assert shares(world, "vision") == (0, 0, 0, 0, 3)


def test_waiting_jobs_are_counted_with_the_cards_that_they_ask_for() -> None:
    world = World(machine("n", 4), queues=HALVES)
    world.submit(gang("a", 4, asks(1), queue="vision"))
    world.submit(gang("b", 3, asks(1), queue="vision", user="max"), single("c", 0.5, queue="vision", user="mia"))
    work = status(world, "vision").work
    assert (work.running, work.waiting, work.asked_milli) == (1, 2, 3_500)
    detail = world.core.queue_detail("vision")
    assert (detail.largest, detail.largest_milli) == ("b", 3_000)
    assert [(user, work.held.gpu_milli, work.waiting) for user, work in detail.users] == [
        ("", 4_000, 0), ("max", 0, 1), ("mia", 0, 1)
    ]  # fmt: skip


def test_who_lends_sees_who_has_borrowed() -> None:
    world = World(machine("n", 16), queues=HALVES)
    world.submit(gang("a", 9, asks(1), queue="vision"), gang("b", 4, asks(1), queue="default"))
    assert shares(world, "speech") == (0, 0, 0, 7, 3)
    assert world.core.queue_detail("speech").borrowers == (("default", 4_000), ("vision", 3_000))
    assert world.core.queue_detail("vision").borrowers == ()


def test_other_guarantees_are_tried_on_a_copy_and_nothing_is_changed() -> None:
    world = World(machine("n", 16), queues=HALVES)
    world.submit(gang("a", 10, asks(1), queue="vision"))
    before = world.core.snapshot()
    changed = world.core.queue_statuses([queue("vision", guarantee=2)])
    assert next(each.share.borrowed for each in changed if each.queue.name == "vision") == 8_000
    assert world.core.snapshot() == before
    with pytest.raises(MillpondError, match="would move"):
        world.core.queue_statuses([queue("vision", parent="speech")])


# ---- the sums, in any tree ------------------------------------------------------------------------------------------

NAMES = ("org", "lab", "vision", "speech", "max", "mia", "eve")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("submit", "submit", "submit", "end", "stop", "queue", "queue", "remove", "node")),
        st.integers(0, 100),
        st.integers(0, 9),
        st.integers(0, 12),
    ),
    max_size=40,
)


@pytest.mark.long
@given(steps=STEPS)
def test_the_sums_come_out_at_every_step_in_any_tree(steps: list[tuple[str, int, int, int]]) -> None:
    world = World(machine("n0", 8), machine("n1", 8, model="V100"))
    check_queue_sums(world.core)
    for number, step in enumerate(steps):
        _take(world, number, *step)
        check_queue_sums(world.core)
        world.settle()
        check_queue_sums(world.core)
        assert _standings(world.core.fork()) == _standings(world.core), "defined at once, queues stand otherwise"
        world.now += 10.0


def _standings(core: Scheduler) -> tuple[object, ...]:
    """What follows from how queues stand to each other."""
    tree = core._state.queues
    nodes = {
        name: (
            [each.queue.name for each in node.guarantors],
            [each.queue.name for each in node.confined_to],
            node.is_confined,
            node.part,
        )
        for name, node in tree.by_name.items()
    }
    return nodes, tree.depth, tree.has_guarantees, tree.guarantees_cpus, tree.has_bounds


def _take(world: World, number: int, what: str, pick: int, some: int, cards: int) -> None:
    """One step of people, of the configuration or of the hardware; what is refused changes nothing."""
    tree = world.core._state.queues
    queues = list(tree.by_name)
    running = list(world.core._state.running)
    match what:
        case "submit":
            leaves = [name for name in queues if tree.is_leaf(name)]
            job = gang(f"j{number}", 1 + some % 4, asks((0.5, 1, 2)[cards % 3]), queue=leaves[pick % len(leaves)])
            world.submit(job)
        case "end" if running:
            world.end(running[pick % len(running)])
        case "stop" if world.core.jobs:
            world.tell(StopRequested(world.now, list(world.core.jobs)[pick % len(world.core.jobs)]))
        case "queue":
            _change_queue(world, NAMES[some % len(NAMES)], queues[pick % len(queues)], cards)
        case "remove":
            _try(world, QueueRemoved(world.now, queues[pick % len(queues)]))
        case "node":
            name = f"n{pick % 2}"
            there = world.core._state.cluster.node_named(name) is not None
            joined = machine(name, 8, model="V100" if name == "n1" else "A100")
            world.tell(NodeLost(world.now, name) if there else NodeJoined(world.now, joined))


def _change_queue(world: World, name: str, parent: str, cards: int) -> None:
    """A queue is defined, or gets another guarantee, within that of its parent if that has one."""
    tree = world.core._state.queues
    known = tree.by_name.get(name)
    above = tree.by_name[parent] if known is None else known.parent
    assert above is not None
    others = sum(child.queue.guarantee.gpu_milli for child in above.children if child.queue.name != name)
    milli = 1_000 * cards
    if above.queue.guarantee.gpu_milli:
        milli = min(milli, max(above.queue.guarantee.gpu_milli - others, 0))
    defined = queue(name, parent=above.queue.name, borrows=cards % 4 > 0, weight=1.0 + cards)
    models = (("V100", milli // 2),) if cards % 3 == 0 and milli else ()
    if above.queue.guarantee.gpu_milli and not above.queue.guarantee.models:
        models = ()  # what the queue above is guaranteed of no model by name covers none of these
    _try(world, QueueChanged(world.now, replace(defined, guarantee=Amount(milli, models=models))))


def _try(world: World, event: QueueChanged | QueueRemoved) -> None:
    before = world.core.snapshot()
    try:
        world.tell(event)
    except MillpondError:
        assert {**world.core.snapshot(), "now": 0} == {**before, "now": 0}, "a refused event left a trace"
