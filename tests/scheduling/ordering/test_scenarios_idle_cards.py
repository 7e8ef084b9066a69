"""Jobs that wait beside idle cards: they go first once what stood idle could have done enough of their work."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from worlds import World, machine, queue, single

from millpond.model.events import LimitChanged, SchedulingPaused, SchedulingResumed
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.tenancy.tenants import Limit
from millpond.scheduling.cycle.overdue import IDLE_LENGTH, IDLE_PART
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.ordering.queueing import FIRST_LOOK_S
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

LENGTH_S, CARDS, IDLE_CARDS = 2_000, 4, 1
ENOUGH_S = IDLE_PART * LENGTH_S * CARDS / IDLE_CARDS
"""For how long one card has to be idle beside a job of four."""
STEP_S = 50
LATEST_S = FIRST_LOOK_S + STEP_S
"""... and how much later that is seen."""


def beside_an_idle_card(*, preempt: bool = False, user: str = "") -> World:
    """Three of four cards are held for long, and a job waits for all four."""
    world = World(machine("n", CARDS), settings=Settings(preempt=preempt))
    world.submit(single("running", CARDS - IDLE_CARDS, preemptible=False), lasting=100_000, known=True)
    world.submit(single("wide", CARDS, user=user), lasting=LENGTH_S, known=True)
    return world


def overdue_after_s(world: World, most_s: float = 10_000) -> float:
    """How long from now it takes until the job goes first; infinite for longer than that."""
    begin = world.now
    while world.now < begin + most_s:
        world.go_to(world.now + STEP_S)
        if world.core.jobs["wide"].overdue:
            return world.now - begin
    return float("inf")


@pytest.mark.parametrize("preempt", [False, True])
def test_a_job_goes_first_once_enough_has_stood_idle(preempt: bool) -> None:
    assert ENOUGH_S <= overdue_after_s(beside_an_idle_card(preempt=preempt)) <= ENOUGH_S + LATEST_S


def test_it_waits_for_a_part_of_its_length_however_much_stands_idle() -> None:
    world = World(*(machine(f"n-{number}", 1) for number in range(20)), machine("n", CARDS))
    world.submit(single("running", CARDS), lasting=100_000, known=True)
    world.submit(single("wide", CARDS), lasting=LENGTH_S, known=True)
    assert IDLE_LENGTH * LENGTH_S <= overdue_after_s(world) <= IDLE_LENGTH * LENGTH_S + LATEST_S


def test_what_stood_idle_before_it_came_does_not_count() -> None:
    world = World(machine("n", CARDS))
    world.submit(single("running", CARDS - IDLE_CARDS), lasting=200_000, known=True)
    world.go_to(50_000)
    world.submit(single("wide", CARDS), lasting=LENGTH_S, known=True)
    assert overdue_after_s(world) >= ENOUGH_S


def test_what_waits_beside_it_has_to_be_covered_too() -> None:
    world = beside_an_idle_card()
    world.submit(single("other", CARDS), lasting=LENGTH_S, known=True)
    assert overdue_after_s(world) > 2 * ENOUGH_S


def test_nothing_stands_idle_while_nothing_may_start() -> None:
    world = beside_an_idle_card()
    world.tell(SchedulingPaused(world.now, Cause.DISK_FULL, "full"))
    world.go_to(1_500)
    world.tell(SchedulingResumed(world.now, Cause.DISK_FULL))
    assert ENOUGH_S <= overdue_after_s(world) <= ENOUGH_S + LATEST_S


def test_what_its_limits_kept_from_it_does_not_count() -> None:
    world = World(machine("n", CARDS), queues=(queue("q"),))
    world.tell(LimitChanged(0.0, Limit("ada", gpu_milli=1_000)))
    world.submit(single("running", CARDS - IDLE_CARDS, queue="q"), lasting=100_000, known=True)
    world.submit(single("wide", CARDS, queue="q", user="ada"), lasting=LENGTH_S, known=True)
    assert overdue_after_s(world, 3 * ENOUGH_S) == float("inf")
    world.tell(LimitChanged(world.now, Limit("ada")))
    assert ENOUGH_S - LATEST_S <= overdue_after_s(world) <= ENOUGH_S + LATEST_S


def restored(core: Scheduler) -> Scheduler:
    return Scheduler.restore(json.loads(json.dumps(core.snapshot())))


@pytest.mark.parametrize("twin_of", [restored, Scheduler.fork])
def test_it_is_remembered(twin_of: Callable[[Scheduler], Scheduler]) -> None:
    world = beside_an_idle_card()
    world.go_to(ENOUGH_S / 2)
    world.core = twin_of(world.core)
    assert ENOUGH_S / 2 <= overdue_after_s(world) <= ENOUGH_S / 2 + LATEST_S


def test_cards_count_as_idle_only_where_they_may_be_handed_out() -> None:
    journal = Journal()
    cluster = Cluster(journal)
    cluster.set_pool(Pool("other"))
    first, *others = machine("faulty").devices
    faulty = machine("faulty", devices=(replace(first, health=DeviceHealth.FAULTY), *others))
    for node in (machine("a"), faulty, machine("closed"), machine("gone"), machine("b", 2, pool="other")):
        cluster.add_node(node)
    with journal:
        cluster.set_closed("closed", True)
    cluster.remove_node("gone")
    assert cluster.idle_milli() == {"default": 7_000, "other": 2_000}
    with journal:
        cluster.set_closed("closed", False)
    assert cluster.idle_milli() == {"default": 11_000, "other": 2_000}
    cluster.update_node(machine("b", 2))
    assert cluster.idle_milli() == {"default": 13_000, "other": 0}
