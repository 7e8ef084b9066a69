"""Guarantees of cards of single models: what they cover, what is taken back for them, and what is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from worlds import World, asks, elastic, gang, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError, InvalidInputError
from millpond.model.events import QueueChanged, ReservationMade
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause, DeadlineVerdict
from millpond.model.resources import Amount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job
from millpond.scheduling.tenancy.bounds import OTHER_MODELS
from millpond.scheduling.tenancy.queue_rank import QueueRank

NEW, OLD = machine("new", 8, model="A100"), machine("old", 8, model="V100")


def guaranteed(name: str, gpus: float | None = None, /, *, parent: str = "root", **models: float) -> Queue:
    """A queue that is guaranteed cards of some models, among so many in all."""
    named = tuple(sorted((each, round(n * 1000)) for each, n in models.items()))
    milli = sum(milli for _, milli in named) if gpus is None else round(gpus * 1000)
    return Queue(name, parent, Amount(milli, models=named))


def world_of(*queues: Queue, nodes: tuple[Node, ...] = (NEW, OLD)) -> World:
    return World(*nodes, queues=queues)


def job_on(name: str, model: str, cards: int = 1, tasks: int = 1, **fields: object) -> Job:
    return gang(name, tasks, asks(cards, models=[model]), **fields)


def shares(world: World, name: str, model: str) -> tuple[float, ...]:
    """Cards of a model that a queue holds, within guarantees, borrowed, lent and free."""
    share = next(each for each in world.core.queue_statuses() if each.queue.name == name).shares[model]
    return tuple(milli / 1000 for milli in (share.used, share.within, share.borrowed, share.lent, share.free))


def test_cards_borrowed_of_one_model_cost_a_queue_nothing_of_its_guarantee_of_another() -> None:
    world = world_of(guaranteed("lab", A100=8), queue("guest"))
    world.submit(job_on("lent", "A100", 8, queue="guest"), job_on("extra", "V100", 8, queue="lab"))
    world.go_to(60.0)
    world.submit(job_on("own", "A100", 8, queue="lab"))
    assert world.running() == {"extra", "own"}
    assert [stop.job for stop in world.of_kind(Stop)] == ["lent"]
    assert shares(world, "lab", "A100") == (8, 8, 0, 0, 0)
    assert shares(world, "lab", OTHER_MODELS)[:3] == (8, 0, 8)
    check_everything(world.core)


def test_what_is_left_of_a_guarantee_is_told_by_the_models_that_are_asked_about() -> None:
    world = world_of(guaranteed("lab", A100=8), queue("guest"))
    world.submit(job_on("extra", "V100", 8, queue="lab"))
    left = [world.core.queue_view("lab", models).unpromised_milli for models in ((), ("A100",), ("V100",))]
    assert left == [-8_000, -8_000, 8_000]


def test_a_guarantee_of_one_model_takes_back_nothing_of_others() -> None:
    world = world_of(guaranteed("lab", A100=8), guaranteed("guest", 8))
    world.submit(job_on("lent", "V100", 8, queue="guest"), job_on("busy", "A100", 8, queue="lab"))
    world.submit(job_on("more", "V100", 4, queue="lab"))
    assert world.running() == {"lent", "busy"}
    assert world.of_kind(Stop) == []


def test_a_guarantee_of_any_cards_covers_none_of_a_model_that_another_names() -> None:
    world = world_of(guaranteed("lab", A100=8), guaranteed("guest", 8))
    world.submit(single("any", 8, queue="guest"))
    assert world.tasks_by_node() == {"old": 1}, "it is placed where its guarantee covers it"
    world.submit(job_on("lent", "A100", 8, queue="guest"))
    assert shares(world, "guest", "A100")[:3] == (8, 0, 8)
    world.submit(job_on("own", "A100", 4, queue="lab"))
    assert world.running() == {"any", "own"}


def test_a_job_that_takes_any_model_is_guaranteed_on_each_that_is_and_starts_on_others_while_these_are_free() -> None:
    world = world_of(guaranteed("lab", A100=1, V100=1), queue("guest"))
    world.submit(*(job_on(f"g{number}", "A100", 2, queue="guest") for number in range(4)))
    world.submit(single("first", queue="lab"), single("second", queue="lab"))
    assert world.tasks_by_node()["old"] == 2
    assert shares(world, "lab", "V100")[:3] == (2, 1, 1)
    world.submit(single("full", 6, queue="guest"))
    world.go_to(60.0)
    world.submit(single("third", queue="lab"))
    assert "third" in world.running()
    assert shares(world, "lab", "A100")[:3] == (1, 1, 0)
    check_everything(world.core)


def test_work_that_is_not_preemptible_stays_off_the_models_of_which_nothing_is_guaranteed() -> None:
    world = world_of(guaranteed("lab", A100=2), queue("guest"))
    world.submit(job_on("lent", "A100", 8, queue="guest", minimum_run_s=1_000.0))
    world.submit(single("kept", queue="lab", preemptible=False))
    assert world.running() == {"lent"}, "V100 cards are free, and it would keep them for good"
    world.go_to(1_001.0)
    assert "kept" in world.running()
    assert world.nodes_of("kept") == ["new"]
    refusal = world.core.check(job_on("never", "V100", queue="lab", preemptible=False))
    assert refusal is not None
    assert "not preemptible" in refusal.summary


def test_what_is_not_preemptible_leaves_the_queues_beside_it_each_model_that_they_are_guaranteed() -> None:
    tree = (
        guaranteed("house", A100=4, V100=4),
        guaranteed("lab", parent="house", A100=3),
        queue("den", parent="house"),
    )
    world = world_of(*tree)
    world.submit(*(job_on(f"a{number}", "A100", queue="den", preemptible=False) for number in range(2)))
    world.submit(*(job_on(f"v{number}", "V100", queue="den", preemptible=False) for number in range(5)))
    assert world.running() == {"a0", "v0", "v1", "v2", "v3"}
    assert "what the guarantee of queue house leaves" in world.why("a1").summary


def test_a_group_and_the_queues_in_it_are_judged_by_model_at_every_level() -> None:
    tree = (
        guaranteed("house", A100=6),
        guaranteed("lab", parent="house", A100=2),
        queue("den", parent="house"),
        queue("guest"),
    )
    world = world_of(*tree)
    world.submit(*(job_on(f"g{number}", "A100", 2, queue="guest") for number in range(4)))
    world.go_to(60.0)
    world.submit(*(job_on(f"d{number}", "A100", 2, queue="den") for number in range(3)))
    assert {"d0", "d1", "d2"} <= world.running(), "the group takes back from others"
    assert shares(world, "den", "A100")[:3] == (6, 4, 2)
    world.submit(job_on("own", "A100", 2, queue="lab"))
    assert "own" in world.running(), "and the queue inside the group"
    assert shares(world, "lab", "A100")[:3] == (2, 2, 0)
    check_everything(world.core)


def test_an_elastic_gang_starts_with_what_is_guaranteed_of_one_model() -> None:
    world = world_of(guaranteed("lab", A100=3), queue("guest"))
    world.submit(*(job_on(f"g{number}", "A100", 1, queue="guest") for number in range(8)))
    world.submit(single("v", 8, queue="guest"))
    world.go_to(60.0)
    world.submit(elastic("e", (2, 8, 8), asks(1), queue="lab"))
    assert "e" in world.running()
    assert set(world.nodes_of("e")) == {"new"}
    assert shares(world, "lab", "A100")[2] == 0


def test_a_guarantee_that_begins_to_name_models_ends_nothing_and_counts_what_runs() -> None:
    world = world_of(guaranteed("lab", 8), guaranteed("guest", 8))
    world.submit(job_on("a", "A100", 8, queue="lab"), job_on("v", "V100", 8, queue="guest"))
    assert world.core.queue_statuses([guaranteed("lab", V100=8)])[0].share.borrowed == 16_000
    world.tell(QueueChanged(world.now, guaranteed("lab", V100=8)))
    world.settle()
    assert world.running() == {"a", "v"}
    assert shares(world, "lab", OTHER_MODELS)[:3] == (8, 0, 8)
    assert shares(world, "lab", "V100") == (0, 0, 0, 8, 0)
    assert shares(world, "guest", "V100")[:3] == (8, 0, 8)
    world.submit(job_on("own", "V100", 8, queue="lab"))
    assert world.running() == {"a", "own"}
    world.tell(QueueChanged(world.now, guaranteed("lab", 8)))
    world.settle()
    check_everything(world.core)


def test_whom_a_guarantee_of_a_model_covers_goes_first_among_many_lines() -> None:
    world = world_of(guaranteed("lab", A100=2), queue("guest"))
    world.submit(*(single(f"g{number}", 8, queue="guest", minimum_run_s=100.0) for number in range(2)))
    for number in range(80):
        world.submit(gang(f"w{number}", 1, asks(1, memory_mib=1_000 + number), queue="guest"))
    world.submit(job_on("v", "V100", queue="lab"), job_on("a", "A100", queue="lab"))
    world.go_to(100.0)
    assert "a" in world.running()
    two = gang("two", 1, asks(1, models=["A100"]), queue="lab")
    world.submit(replace(two, roles=(*two.roles, replace(two.roles[0], request=asks(1, models=["V100"]), name="b"))))
    state = world.core._state
    table, ranks = state.waiting.table, QueueRank(state)
    covered = ranks.covered(table).tolist()
    for row, key in enumerate(table.keys):
        first = state.waiting.lines[key][0][2]
        assert covered[row] is (not state.entitlements.borrows(first, first.demand.least_amount)), first.id


def test_counts_and_shares_are_the_same_in_a_restored_scheduler_and_in_a_fork() -> None:
    world = world_of(guaranteed("lab", 5, A100=4), queue("guest"))
    world.submit(*(single(f"j{number}", 3, queue="lab") for number in range(6)))
    world.submit(single("g", 2, queue="guest"))
    restored = restarted(world.core)
    for core in (restored, world.core.fork()):
        check_everything(core)
        assert [each.shares for each in core.queue_statuses()] == [each.shares for each in world.core.queue_statuses()]


def test_a_job_that_may_not_borrow_hears_of_the_model_that_is_missing() -> None:
    world = world_of(replace(guaranteed("lab", A100=2, V100=1), borrows=False))
    world.submit(job_on("a", "V100", queue="lab"), job_on("b", "V100", queue="lab"))
    reason = world.why("b")
    assert reason.cause is Cause.GUARANTEE_OF_OTHERS
    assert "1 GPU of model V100 more would exceed its guarantee" in reason.summary
    refusal = world.core.check(job_on("wide", "V100", 2, queue="lab"))
    assert refusal is not None
    assert "2 GPUs of model V100; queue 'lab' may not borrow, and is guaranteed 1 GPU of these" in refusal.summary


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (guaranteed("lab", 4, A100=5), "more cards of single models than cards"),
        (guaranteed("lab", A100=-1), "less than nothing"),
        (
            replace(guaranteed("lab", A100=2), limit=Amount(2**50, 2**50, 2**50, (("A100", 1_000),))),
            "may hold at most",
        ),
    ],
)
def test_a_guarantee_that_cannot_hold_is_refused(wrong: Queue, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        world_of(wrong)


# ---- estimates, deadlines, reservations -----------------------------------------------------------------------------


def limited(name: str, **models: float) -> Queue:
    """A queue with a limit of cards of some models."""
    most = tuple(sorted((each, round(n * 1000)) for each, n in models.items()))
    return Queue(name, limit=Amount(2**50, 2**50, 2**50, most))


def likely_start(world: World, job: str) -> float | None:
    start = world.why(job).start
    assert start is not None
    return start.likely_at


def test_an_estimate_knows_how_much_of_a_model_a_limit_leaves() -> None:
    world = world_of(limited("lab", A100=1))
    world.submit(job_on("first", "A100", queue="lab"), lasting=100.0, known=True)
    world.submit(job_on("second", "A100", queue="lab"), lasting=50.0, known=True)
    world.submit(job_on("third", "A100", queue="lab"), lasting=50.0, known=True)
    assert [likely_start(world, job) for job in ("second", "third")] == [100.0, 150.0]


def test_an_estimate_lets_a_job_of_several_models_start_on_the_first_that_a_limit_leaves_it() -> None:
    world = world_of(limited("lab", A100=1, V100=1))
    world.submit(job_on("a", "A100", queue="lab"), lasting=300.0, known=True)
    world.submit(job_on("v", "V100", queue="lab"), lasting=100.0, known=True)
    world.submit(single("any", queue="lab"), lasting=500.0, known=True)
    world.submit(job_on("later", "V100", queue="lab"), lasting=50.0, known=True)
    assert likely_start(world, "later") == 100.0
    assert likely_start(world, "any") == 150.0, "behind the shorter one, on the only V100 card that they may have"


def test_an_estimate_knows_the_guarantee_of_a_model_where_nothing_may_be_borrowed() -> None:
    world = world_of(replace(guaranteed("lab", A100=2), borrows=False))
    world.submit(job_on("first", "A100", 2, queue="lab"), lasting=100.0, known=True)
    world.submit(single("any", queue="lab"), lasting=50.0, known=True)
    assert likely_start(world, "any") == 100.0


def test_a_deadline_that_a_limit_of_a_model_makes_impossible_is_refused() -> None:
    world = world_of(limited("lab", A100=1))
    world.submit(job_on("first", "A100", queue="lab"), lasting=1_000.0, known=True)
    world.submit(replace(job_on("due", "A100", queue="lab"), deadline_s=200.0), lasting=50.0, known=True)
    found = world.core.deadline_outlook("due", world.now)
    assert found is not None
    assert found.verdict is not DeadlineVerdict.ACCEPT
    assert found.likely_end_at == 1_050.0


def reserve(world: World, cards: int, of: str = "lab", name: str = "demo", **fields: Any) -> None:
    wanted = AdvanceReservation(name, of, cards, 1_000.0, 2_000.0, **fields)
    world.tell(ReservationMade(world.now, wanted))
    world.settle()


def test_what_is_reserved_is_of_a_model_that_the_guarantee_covers_and_its_work_gets_it_in_time() -> None:
    world = world_of(guaranteed("lab", A100=4), queue("guest"))
    world.submit(*(single(f"g{number}", 8, queue="guest") for number in range(2)))
    reserve(world, 4)
    [view] = world.core.reservations()
    assert view.reservation.models == ("A100",)
    world.submit(single("own", 4, queue="lab", reservation="demo"))
    world.go_to(1_000.0)
    assert "own" in world.running()
    assert world.nodes_of("own") == ["new"]
    check_everything(world.core)


@pytest.mark.parametrize(
    ("cards", "fields", "why"),
    [
        (5, {}, "of the 4 cards of model A100 that queue lab is guaranteed, 4 are neither"),
        (1, {"models": ("V100",)}, "is guaranteed no cards of other models"),
        (5, {"beyond_guarantee": True, "models": ("A100",)}, "1 of its cards are guaranteed to other queues"),
    ],
)
def test_a_reservation_beyond_what_is_guaranteed_of_a_model_is_refused(cards: int, fields: Any, why: str) -> None:
    world = world_of(guaranteed("lab", A100=4), guaranteed("other", A100=4))
    with pytest.raises(ConflictError, match=why):
        reserve(world, cards, **fields)
    assert world.core.reservations() == []


def test_a_limit_of_a_model_bounds_what_is_reserved_of_it() -> None:
    world = world_of(replace(limited("lab", A100=2), guarantee=Amount(8_000)))
    reserve(world, 2, models=("A100",))
    with pytest.raises(ConflictError, match="queue lab may have 2 cards of model A100, of which 2 are reserved then"):
        reserve(world, 1, name="more", models=("A100",))
    reserve(world, 4, name="others")
    assert world.core.reservations()[1].reservation.models == ("V100",)


@pytest.mark.parametrize(
    ("models", "largest"),
    [(["A100"], "2 GPUs of model A100"), (["V100"], "0 GPUs of other models"), ([], "2 GPUs of model A100")],
)
def test_what_stays_and_no_guarantee_covers_is_told_the_largest_of_its_own_models(
    models: list[str], largest: str
) -> None:
    world = world_of(guaranteed("group", A100=2, H100=16), guaranteed("lab", parent="group", A100=1))
    refusal = world.core.check(gang("stays", 1, asks(4, models=models), queue="lab", preemptible=False))
    assert refusal is not None
    assert f"(the largest is of {largest})" in refusal.summary
    assert dict(refusal.numbers)["limit"] == int(largest[0])
