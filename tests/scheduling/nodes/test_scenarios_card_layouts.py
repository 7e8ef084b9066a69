"""Idle cards are divided otherwise (MIG) for jobs that wait: which, when, and when they are left as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, asks, gang, machine, queue, restarted

from ledgers import check_everything
from millpond.model.errors import ConflictError
from millpond.model.events import (
    CardClosed,
    CardLayoutChanged,
    CardOpened,
    DeviceHealthChanged,
    NodeClosed,
    NodeJoined,
    ReservationMade,
)
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutChangeState
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.reasons import Cause
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.workloads import Job, Priority
from millpond.scheduling.nodes.layout_planner import LEAST_WAIT_S as WAIT_S
from millpond.scheduling.nodes.layout_planner import MOST_JOBS, LayoutStep, in_layout
from millpond.scheduling.scheduler import Scheduler

CHANGING, DONE, FAILED = LayoutChangeState
STAY_S = 600.0


def layout(*profiles: str) -> CardLayout:
    """An A100 of 80 GB, divided so."""
    made = (Device("", 0, "nvidia", f"A100-MIG-{name}", int(name[3:-2]) * 1_000) for name in profiles)
    return CardLayout(profiles, tuple(made))


WHOLE, HALVES, SEVENTHS = layout("7g.80gb"), layout("3g.40gb", "3g.40gb"), layout(*["1g.10gb"] * 7)


def divisible(name: str, *now: CardLayout | None, allowed: tuple[CardLayout, ...] = (WHOLE, HALVES, SEVENTHS)) -> Node:
    """A machine whose cards are in MIG mode, and divided so; None: nothing is cut out of the card."""
    node = machine(name, len(now), model="A100", card_mib=80_000)
    cut = tuple(
        replace(card, health=DeviceHealth.BUSY_ELSEWHERE, health_detail="nothing is cut out") for card in node.devices
    )
    node = replace(node, devices=cut, divisible=tuple(DivisibleCard(card.uuid, allowed, STAY_S) for card in cut))
    for card, each in zip(cut, now, strict=True):
        node = node if each is None else in_layout(node, (card.uuid,), each)
    return node


def wants(id_: str, profile: str = "", tasks: int = 1, **fields: object) -> Job:
    return gang(id_, tasks, asks(1, models=(f"A100-MIG-{profile}",) if profile else ()), **fields)


def step(world: World) -> LayoutStep | None:
    """What is to be divided, once those that wait have waited for long enough."""
    world.go_to(world.now + WAIT_S)
    return world.core.layout_step(world.now)


def tell(world: World, state: LayoutChangeState, wanted: LayoutStep, detail: str = "") -> None:
    layout_ = wanted.layout.instances
    world.tell(CardLayoutChanged(world.now, wanted.node, wanted.card, state, layout_, wanted.for_job, detail))
    world.settle()


def described(world: World, name: str) -> Node:
    return next(each.node for each in world.core.node_views() if each.node.name == name)


def carry_out(world: World, wanted: LayoutStep) -> None:
    """The node divides the card, and says what there is of it."""
    tell(world, CHANGING, wanted)
    world.tell(NodeJoined(world.now, in_layout(described(world, wanted.node), (wanted.card,), wanted.layout)))
    tell(world, DONE, wanted)


def test_a_job_that_no_layout_takes_has_an_idle_card_divided_and_starts() -> None:
    world = World(divisible("a", WHOLE, None))
    assert world.core.check(wants("small", "1g.10gb")) is None  # it is possible, though no card is divided so
    world.submit(wants("large", "7g.80gb"))
    world.submit(wants("small", "1g.10gb"))
    assert world.core.layout_step(world.now) is None  # it has come just now
    divided = "; a card is divided into 7 x 1g.10gb for it once one is idle"
    assert world.why("small").summary.endswith(f"{divided} and it has waited for 10s")
    wanted = step(world)
    assert world.why("small").summary.endswith(divided)
    assert wanted == LayoutStep("a", "a-1", SEVENTHS, "small")  # not the card that has work
    tell(world, CHANGING, wanted)
    reason = world.core.explain("small", world.now)
    assert (reason.cause, reason.blocked_by) == (Cause.CARD_BEING_DIVIDED, "a")
    assert reason.summary == "it waits for card 1 of a to be divided into 7 x 1g.10gb"
    (view,) = world.core.node_views()
    assert view.devices[1].closure is not None
    assert view.devices[1].closure.reason == "it is being divided into 7 x 1g.10gb"
    world.tell(NodeJoined(world.now, in_layout(described(world, "a"), ("a-1",), SEVENTHS)))
    world.settle()
    assert world.running() == {"large"}  # until its node has said that this is all
    tell(world, DONE, wanted)
    assert world.running() == {"large", "small"}
    check_everything(world.core)


def test_a_card_is_joined_again_for_a_job_that_wants_all_of_it_once_it_is_empty() -> None:
    world = World(divisible("a", SEVENTHS))
    world.submit(wants("small", "1g.10gb"))
    world.submit(wants("large", "7g.80gb"))
    assert step(world) is None
    world.end("small")
    wanted = step(world)
    assert wanted is not None
    assert wanted.layout == WHOLE
    carry_out(world, wanted)
    assert world.running() == {"large"}


def test_a_gang_has_as_many_cards_divided_as_it_needs_one_after_another() -> None:
    world = World(divisible("a", None, None, None))
    world.submit(wants("gang", "3g.40gb", tasks=4))
    for card in ("a-0", "a-1"):
        wanted = step(world)
        assert wanted is not None
        assert (wanted.card, wanted.layout) == (card, HALVES)
        carry_out(world, wanted)
    assert world.running() == {"gang"}
    assert step(world) is None


def test_what_has_been_divided_stays_so_for_a_while_and_what_failed_is_not_tried_again_at_once() -> None:
    world = World(divisible("a", WHOLE))
    world.submit(wants("small", "1g.10gb"))
    wanted = step(world)
    assert wanted is not None
    tell(world, CHANGING, wanted)
    tell(world, FAILED, wanted, "the driver refuses")
    reason = world.core.explain("small", world.now)
    assert reason.cause is Cause.NO_ROOM
    assert reason.summary.endswith("for it once one is idle and has been as it is for 10m")
    world.submit(wants("large", "7g.80gb"))
    assert "large" in world.running()  # it is as it was
    world.end("large")
    assert step(world) is None
    world.go_to(world.now + STAY_S)
    again = world.core.layout_step(world.now)
    assert again == wanted
    carry_out(world, again)
    world.submit(wants("large again", "7g.80gb"))
    world.end("small")
    assert step(world) is None
    world.go_to(world.now + STAY_S)
    assert world.core.layout_step(world.now) is not None


def test_a_card_that_a_job_ahead_could_use_as_it_is_stays_so() -> None:
    world = World(divisible("a", WHOLE, WHOLE))
    world.submit(wants("runs", "7g.80gb"))
    world.submit(wants("both", "7g.80gb", tasks=2, priority=Priority.HIGH))
    world.submit(wants("small", "1g.10gb"))
    assert step(world) is None
    world.tell(NodeJoined(world.now, divisible("b", WHOLE)))
    world.settle()
    assert "both" in world.running()
    world.end("both")
    assert step(world) is not None


def test_a_card_of_a_node_that_is_reserved_stays_as_it_was_agreed_upon_until_the_span_is_over() -> None:
    world = World(divisible("a", WHOLE), queues=[queue("one"), queue("two")])
    models = ("A100-MIG-7g.80gb",)
    agreed = AdvanceReservation("show", "two", 1, 2_000.0, 3_000.0, models=models, beyond_guarantee=True)
    world.tell(ReservationMade(world.now, agreed))
    world.settle()
    world.submit(wants("small", "1g.10gb", queue="one", time_limit_s=60.0))  # it would be over in time
    assert step(world) is None
    world.go_to(3_000.0 + STAY_S)
    assert step(world) is not None


@pytest.mark.parametrize("pool", ["default", "other"])
def test_a_job_behind_very_many_that_want_other_cards_has_a_card_divided(pool: str) -> None:
    world = World(divisible("a", WHOLE), replace(machine("b", 1, model="H100"), pool=pool))
    others = asks(1, models=("H100",))
    world.submit(*(gang(f"other {number}", 1, others, pool=pool) for number in range(MOST_JOBS + 2)))
    world.submit(wants("small", "1g.10gb"))
    wanted = step(world)
    assert wanted is not None
    assert wanted.for_job == "small"


def test_a_limit_or_a_lack_of_cpus_has_nothing_divided() -> None:
    world = World(divisible("a", WHOLE), queues=[queue("one", limit=0)])
    world.submit(wants("limited", "1g.10gb", queue="one"))
    world.submit(gang("hungry", 1, asks(1, cpus=64, models=("A100-MIG-1g.10gb",))), gang("cpu", 1, asks(0, cpus=1)))
    assert step(world) is None


@pytest.mark.parametrize("why", ["card closed", "node closed", "node to be closed", "faulty", "others"])
def test_a_card_that_is_closed_or_ill_or_used_by_others_is_not_touched(why: str) -> None:
    world = World(divisible("a", HALVES))
    card, instance = "a-0", described(world, "a").devices[0].uuid
    world.tell(
        {
            "card closed": CardClosed(0.0, "a", card, Cordon(0.0)),
            "node closed": NodeClosed(0.0, "a", Cordon(0.0)),
            "node to be closed": NodeClosed(0.0, "a", Cordon(500.0, 900.0, planned=True)),
            "faulty": DeviceHealthChanged(0.0, "a", instance, DeviceHealth.FAULTY),
            "others": DeviceHealthChanged(0.0, "a", instance, DeviceHealth.BUSY_ELSEWHERE),
        }[why]
    )
    world.submit(wants("small", "1g.10gb"))
    assert step(world) is None


def test_a_person_who_closes_a_card_meanwhile_keeps_it_closed() -> None:
    world = World(divisible("a", None))
    world.submit(wants("small", "1g.10gb"))
    wanted = step(world)
    assert wanted is not None
    tell(world, CHANGING, wanted)
    with pytest.raises(ConflictError, match="is being divided"):
        world.core.handle(CardOpened(world.now, "a", "a-0"))
    world.tell(CardClosed(world.now, "a", "a-0", Cordon(world.now, reason="a fan is loud", by="ada")))
    world.tell(NodeJoined(world.now, in_layout(described(world, "a"), ("a-0",), SEVENTHS)))
    tell(world, DONE, wanted)
    assert world.running() == set()
    world.tell(CardOpened(world.now, "a", "a-0"))
    world.settle()
    assert world.running() == {"small"}


def test_the_core_refuses_what_is_not_allowed_in_use_or_under_way_and_ignores_an_end_of_nothing() -> None:
    world = World(divisible("a", WHOLE, WHOLE, allowed=(WHOLE, SEVENTHS)))
    world.submit(wants("large", "7g.80gb"))
    for card, layout_, cause in (
        ("a-0", SEVENTHS, "has work"),
        ("a-1", HALVES, "may not be divided so"),
        ("a-2", SEVENTHS, "may not be divided so"),
    ):
        with pytest.raises(ConflictError, match=cause):
            tell(world, CHANGING, LayoutStep("a", card, layout_, "large"))
    wanted = LayoutStep("a", "a-1", SEVENTHS, "large")
    tell(world, DONE, wanted)
    assert world.core.layout_changes() == {}
    tell(world, CHANGING, wanted)
    with pytest.raises(ConflictError, match="being divided already"):
        tell(world, CHANGING, wanted)


def test_a_change_under_way_outlives_a_snapshot_and_nothing_starts_there() -> None:
    world = World(divisible("a", WHOLE))
    world.submit(wants("small", "1g.10gb"))
    wanted = step(world)
    assert wanted is not None
    tell(world, CHANGING, wanted)
    world.core = restarted(world.core)
    assert world.core.layout_changes()["a-0"].state is CHANGING
    world.submit(wants("large", "7g.80gb"))
    assert world.running() == set()
    carry_on = in_layout(described(world, "a"), ("a-0",), SEVENTHS)
    world.tell(NodeJoined(world.now, carry_on))
    tell(world, DONE, wanted)
    assert world.running() == {"small"}


PROFILES = ("", "7g.80gb", "3g.40gb", "1g.10gb")
HAPPENS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(PROFILES), st.integers(1, 3)),
    st.tuples(st.just("end"), st.just(""), st.integers(0, 20)),
    st.tuples(st.just("divide"), st.sampled_from(("done", "failed", "died")), st.sampled_from((0, 1, 700))),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(HAPPENS, max_size=12))
def test_no_card_is_divided_while_in_use_and_amounts_are_conserved(happens: list[tuple[str, str, int]]) -> None:
    world = World(divisible("a", WHOLE, None, HALVES))
    for number, (what, how, count) in enumerate(happens):
        running = sorted(world.running())
        if what == "submit":
            world.submit(wants(f"j{number}", how, tasks=count))
        elif what == "end" and running:
            world.end(running[count % len(running)])
        elif what == "divide":
            world.go_to(world.now + count)
            _divide(world, how)
        check_everything(world.core)
        for card, change in world.core.layout_changes().items():
            uses = [use for use in world.core.node_views()[0].devices if use.device.card == card]
            assert change.state is not CHANGING or not any(use.holders for use in uses)
    again = Scheduler()
    for event in world.log:
        again.decide(event.at) if type(event).__name__ == "Tick" else again.handle(event)
    assert again.snapshot() == world.core.snapshot()


def _divide(world: World, how: str) -> None:
    """A change is begun and ends so; what an earlier one left under way is finished first."""
    left = [(card, each) for card, each in world.core.layout_changes().items() if each.state is CHANGING]
    for card, each in left:
        tell(world, FAILED, LayoutStep("a", card, layout(*each.layout), each.for_job), "interrupted")
    wanted = world.core.layout_step(world.now)
    if wanted is None:
        return
    uses = [use for use in world.core.node_views()[0].devices if use.device.card == wanted.card]
    assert not any(use.holders for use in uses)
    running = {job: world.core.jobs[job].attempt for job in world.running()}
    if how == "done":
        carry_out(world, wanted)
        assert wanted.for_job in world.running() or len(world.core.jobs[wanted.for_job].tasks) > 1
    else:
        tell(world, CHANGING, wanted)
        if how == "failed":
            tell(world, FAILED, wanted, "the driver refuses")
    assert running.items() <= {job: world.core.jobs[job].attempt for job in world.running()}.items()


@pytest.mark.parametrize("is_away", [False, True])
def test_instances_that_have_the_uuids_of_those_before_are_taken_for_what_they_are(is_away: bool) -> None:
    def numbered(node: Node) -> Node:
        devices = (replace(device, uuid=f"MIG-{number}") for number, device in enumerate(node.devices))
        return replace(node, devices=tuple(devices))

    unlike = layout("4g.40gb", "3g.40gb")
    world = World(numbered(divisible("a", HALVES, allowed=(HALVES, unlike))))
    world.submit(wants("four", "4g.40gb"))
    wanted = step(world)
    assert wanted is not None
    tell(world, CHANGING, wanted)
    before = described(world, "a")
    after = numbered(in_layout(before, (wanted.card,), wanted.layout))
    assert [each.uuid for each in before.devices] == [each.uuid for each in after.devices]
    if is_away:
        world.tell(NodeJoined(world.now, replace(after, devices=())))
    world.tell(NodeJoined(world.now, after))
    tell(world, DONE, wanted)
    assert world.running() == {"four"}
    check_everything(world.core)
