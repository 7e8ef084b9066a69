"""Answers about many jobs of one state: found together, and the same as if each were asked about alone."""

from __future__ import annotations

import pytest
from worlds import World, asks, gang, machine, queue, single

from millpond.model.events import ReservationMade, StopRequested
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.reasons import StartEstimate
from millpond.model.states import JobState
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.estimating import kept_estimates, pool_model
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queue_rank import QueueRank
from seeds import few_then_many


def crowded(ordering: str, own: str = "", jobs: int = 60) -> World:
    """Two machines, full, for which jobs of several sizes, queues and lengths wait in more than 32 lines.

    Args:
        own: the ordering of one of the queues.
    """
    queues = [queue("left", guarantee=4), queue("right", ordering=own), queue("small", limit=2)]
    world = World(machine("a", 4), machine("b", 4), queues=queues, settings=Settings(ordering=ordering))
    for number in range(jobs):
        world.go_to(30.0 * number)
        job = single(
            f"j{number}", 1 + number % 4, queue=("left", "right", "small")[number % 3] if number % 4 < 2 else "right",
            user=f"u{number % 17}",
        )  # fmt: skip
        world.submit(job, lasting=300.0 + 70.0 * (number % 11), known=number % 2 == 0)
    return world


def waiting(world: World) -> list[str]:
    return [record.id for record in world.core.jobs.values() if record.line]


@pytest.mark.parametrize("ordering", few_then_many(["default"], ["fifo", "fair"]))
@pytest.mark.parametrize(("own", "most_nodes"), few_then_many([("edf", 96)], [("", 1), ("", 96)]))
def test_whoever_was_asked_about_before_the_answer_is_the_same(
    ordering: str, own: str, most_nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_model, "MOST_NODES", most_nodes)
    monkeypatch.setattr(pool_model, "NODES_PER_TASK", 1)
    world = crowded(ordering, own)
    jobs = waiting(world)
    assert len(jobs) > 32
    forwards = {job: world.core.explain(job, world.now) for job in jobs}
    twin = Scheduler.restore(world.core.snapshot())
    backwards = {job: twin.explain(job, world.now) for job in reversed(jobs)}
    assert {job: backwards[job] for job in jobs} == forwards
    assert sorted(reason.position or 0 for reason in forwards.values()) == list(range(1, len(jobs) + 1))


@pytest.mark.parametrize("jobs", [12, 60])
@pytest.mark.parametrize("own", ["", "edf"])
@pytest.mark.parametrize("ordering", ["default", "fifo", "fair"])
def test_those_who_wait_are_ranked_all_at_once_as_one_by_one(ordering: str, own: str, jobs: int) -> None:
    state = crowded(ordering, own, jobs).core._state
    assert state.waiting.are_few is (jobs < 60)
    standing, order = QueueRank(state), LineOrder(state)
    one_by_one = state.waiting.ranked(standing.place_of)
    assert order.records == one_by_one
    of_pool = order.of_pool(DEFAULT_POOL)
    ranked = of_pool.ranked(range(len(of_pool)))
    assert ranked == [(*standing.place_of(record), record) for record in one_by_one]


def test_where_nobody_waits_the_order_is_empty() -> None:
    assert LineOrder(World(machine("a", 4)).core._state).records == []


@pytest.mark.sources
def test_an_estimate_that_may_be_old_says_how_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_estimates, "FEW_WAITING", 1)
    world = crowded("default")
    job = waiting(world)[-1]
    first = world.core.explain(job, world.now).start
    assert isinstance(first, StartEstimate)
    world.go_to(world.now + 3.0)
    kept = world.core.explain(job, world.now, within_s=5.0).start
    assert isinstance(kept, StartEstimate)
    assert kept.basis == f"{first.basis}; as things stood 3 s ago"
    assert (kept.earliest_at, kept.likely_at, kept.latest_at) == (first.earliest_at, first.likely_at, first.latest_at)
    anew = world.core.explain(job, world.now).start
    assert isinstance(anew, StartEstimate)
    assert "ago" not in anew.basis


@pytest.mark.sources
def test_what_a_person_has_changed_shows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_estimates, "FEW_WAITING", 1)
    world = crowded("fifo")
    jobs = waiting(world)
    before = world.core.explain(jobs[-1], world.now, within_s=5.0)
    world.tell(StopRequested(world.now, jobs[0]))
    after = world.core.explain(jobs[-1], world.now, within_s=5.0)
    assert (before.position, after.position) == (len(jobs), len(jobs) - 1)


@pytest.mark.sources
def test_a_job_that_came_after_the_kept_estimates_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_estimates, "FEW_WAITING", 1)
    world = crowded("fifo")
    world.core.explain(waiting(world)[0], world.now, within_s=5.0)
    world.submit(single("new", 2, queue="right"))
    reason = world.core.explain("new", world.now, within_s=5.0)
    assert reason.position == len(waiting(world))
    assert reason.start is not None


# ---- reserved cards -------------------------------------------------------------------------------------------------


def reserving(cards: int) -> World:
    """A machine of eight cards, of which some are reserved from 100 s to 5,000 s, with half of it in use."""
    world = World(machine("n", 8), queues=[queue("owner", guarantee=8), queue("other")])
    world.submit(single("runs", 4, queue="other"), lasting=400.0, known=True)
    world.tell(ReservationMade(world.now, AdvanceReservation("show", "owner", cards, begin=100.0, until=5_000.0)))
    world.go_to(101.0)
    return world


def test_the_rest_of_a_node_of_which_some_cards_are_reserved_is_counted() -> None:
    world = reserving(4)
    world.submit(single("next", 4, queue="other"), lasting=50.0, known=True)
    start = world.core.explain("next", world.now).start
    assert start is not None
    assert start.likely_at == pytest.approx(400.0, abs=1.0)


def test_reserved_cards_are_open_to_others_when_the_reservation_is_over() -> None:
    world = reserving(4)
    world.submit(gang("wide", 1, asks(8), queue="other"), lasting=50.0, known=True)
    start = world.core.explain("wide", world.now).start
    assert start is not None
    assert start.likely_at == pytest.approx(5_000.0, abs=1.0)


def beside_reserved(ordering: str) -> World:
    """Two of a queue's four guaranteed cards are reserved until 1,000 s; three more are too many meanwhile."""
    settings = Settings(ordering=ordering)
    world = World(machine("n", 8), queues=[queue("owner", guarantee=4), queue("other")], settings=settings)
    world.tell(ReservationMade(world.now, AdvanceReservation("show", "owner", 2, begin=0.0, until=1_000.0)))
    world.submit(single("stays", 3, queue="owner", preemptible=False), lasting=100.0, known=True)
    return world


@pytest.mark.parametrize("ordering", ["fifo", "default"])
def test_work_that_borrows_nothing_waits_for_what_is_reserved_of_its_guarantee(ordering: str) -> None:
    world = beside_reserved(ordering)
    reason = world.core.explain("stays", world.now)
    assert reason.summary.endswith("3 GPUs more would exceed the guarantee of queue owner with what is reserved")
    assert reason.start is not None
    assert reason.start.likely_at == pytest.approx(1_000.0, abs=1.0)
    world.go_to(999.0)
    assert world.state("stays") is JobState.QUEUED
    world.go_to(1_002.0)
    assert world.state("stays") is JobState.RUNNING
