"""Queues reserve cards for a span of time: what is agreed, what is kept for them, and who leaves for them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from worlds import CARD_MIB, World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.model.events import (
    DeviceHealthChanged,
    DurationPredicted,
    JobSubmitted,
    NodeClosed,
    NodeLost,
    NodeOpened,
    PolicyChanged,
    QueueChanged,
    ReservationCancelled,
    ReservationMade,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.windows import Window
from millpond.model.workloads import Checkpoint, Job, Priority
from millpond.scheduling.ordering import waiting_lines
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

BEGIN, UNTIL = 1_000.0, 2_000.0


def two_teams(*, nodes: int = 4, cards: int = 4, settings: Settings | None = None) -> World:
    """Machines of four cards; two queues that are guaranteed half of them each, and one that is guaranteed nothing."""
    half = nodes * cards / 2
    queues = (queue("vision", guarantee=half), queue("speech", guarantee=half), queue("guest"))
    return World(*(machine(f"n{number}", cards) for number in range(nodes)), queues=queues, settings=settings)


def reserve(world: World, cards: int, *, name: str = "demo", of: str = "vision", **fields: Any) -> None:
    fields = {"begin": BEGIN, "until": UNTIL, **fields}
    world.tell(ReservationMade(world.now, AdvanceReservation(name, of, cards, **fields)))
    world.settle()


def fill(world: World, count: int, of: str = "guest", **fields: Any) -> list[str]:
    """Single cards of borrowed work that runs until it is ended."""
    names = [f"{of}{number}" for number in range(count)]
    world.submit(*(single(name, queue=of, **fields) for name in names))
    return names


# ---- work within it starts in time ------------------------------------------------------------------------------


def test_work_of_its_queue_starts_when_it_begins_though_borrowed_work_filled_everything() -> None:
    world = two_teams()
    fill(world, 16)
    reserve(world, 8)
    world.submit(gang("job", 2, asks(4), queue="vision", reservation="demo"))
    world.go_to(BEGIN - 1)
    assert world.state("job") is JobState.QUEUED
    world.go_to(BEGIN)
    assert world.state("job") is JobState.RUNNING
    stops = world.of_kind(Stop)
    assert len(stops) == 8
    assert {stop.cause for stop in stops} == {Cause.RESERVATION}


def test_borrowed_work_is_asked_before_the_begin_by_its_grace() -> None:
    world = two_teams(nodes=1)
    fill(world, 4, checkpoint=Checkpoint(grace_s=100.0))
    reserve(world, 2)
    world.go_to(BEGIN - 131)
    assert world.of_kind(Stop) == []
    world.go_to(BEGIN - 130)
    assert len(world.of_kind(Stop)) == 2


@pytest.mark.parametrize("of", ["vision", "speech"])
def test_a_gang_gives_up_what_it_has_beyond_a_minimum_that_stays_and_no_more_than_is_reserved(of: str) -> None:
    world = two_teams(nodes=2)
    world.submit(elastic("gang", (2, 8, 8), asks(1), queue=of, preemptible=False, rest_preemptible=True))
    assert len(world.core.jobs["gang"].holding_tasks()) == 8
    reserve(world, 2)
    world.submit(single("job", 2, queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.running() == {"gang", "job"}
    assert len(world.core.jobs["gang"].holding_tasks()) == 6
    assert {stop.cause for stop in world.of_kind(Stop)} == {Cause.RESERVATION}


def test_the_minimum_of_a_gang_that_stays_counts_against_what_its_queue_is_guaranteed() -> None:
    world = two_teams(nodes=2)
    world.submit(elastic("gang", (3, 8, 8), asks(1), queue="vision", preemptible=False, rest_preemptible=True))
    with pytest.raises(ConflictError, match="of the 4 cards that queue vision is guaranteed, 1 are neither"):
        reserve(world, 2)
    reserve(world, 1)
    world.go_to(BEGIN)
    assert len(world.core.jobs["gang"].holding_tasks()) == 7


def test_what_is_known_to_run_into_it_does_not_start_on_its_nodes_and_what_ends_before_does() -> None:
    world = two_teams(nodes=2)
    reserve(world, 4)
    world.submit(*(single(f"long{number}", queue="guest") for number in range(8)), lasting=1_500.0, known=True)
    assert len(world.running()) == 4
    waits = next(job for job, record in world.core.jobs.items() if record.state is JobState.QUEUED)
    reason = world.why(waits)
    assert reason.cause is Cause.RESERVATION
    assert "4 cards are kept for reservation demo of queue vision, which begins before" in reason.summary
    assert reason.opens_at == UNTIL
    world.submit(*(single(f"short{number}", queue="guest") for number in range(4)), lasting=900.0, known=True)
    assert len(world.running()) == 8


def test_while_it_lasts_others_keep_off_its_cards_and_use_the_rest_of_its_nodes() -> None:
    world = two_teams(nodes=2)
    reserve(world, 2, until=2_000.0)
    world.go_to(BEGIN)
    started = fill(world, 8)
    assert len(world.running()) == 6
    waits = next(name for name in started if world.state(name) is JobState.QUEUED)
    assert world.why(waits).cause is Cause.RESERVATION
    world.submit(single("own", 2, queue="vision"))
    assert "own" in world.running()
    assert world.of_kind(Stop) == []
    world.go_to(UNTIL)
    assert len(world.running()) == 7


def test_what_it_and_a_job_ahead_keep_from_another_job_is_said_of_both() -> None:
    def without(*lifted: str) -> World:
        world = two_teams(nodes=1, settings=Settings(ordering="fair"))
        world.tell(QueueChanged(0.0, queue("speech")))
        world.tell(QueueChanged(0.0, queue("vision", guarantee=4)))
        world.submit(single("runs", queue="guest"), lasting=500.0, known=True)
        reserve(world, 4)
        world.submit(single("ahead", 4, queue="guest"), lasting=400.0, known=True)
        world.submit(single("long", queue="guest"), lasting=9_000.0, known=True)
        if "demo" in lifted:
            world.tell(ReservationCancelled(0.0, "demo"))
        if "ahead" in lifted:
            world.tell(StopRequested(0.0, "ahead"))
        world.settle()
        return world

    reason = without().why("long")
    assert (reason.cause, reason.blocked_by) == (Cause.RESERVATION, "ahead")
    assert reason.summary == (
        "there is room, but 4 cards are kept for reservation demo of queue vision, which begins before the job would "
        "have ended; room is reserved for ahead: it is ahead, and would else wait ever longer"
    )
    assert without("demo").why("long").cause is Cause.RESERVED
    assert without("ahead").why("long").cause is Cause.RESERVATION
    assert without("demo", "ahead").running() == {"runs", "long"}


def test_a_job_that_would_start_beside_the_room_of_one_ahead_waits_for_the_reservation_alone() -> None:
    world = two_teams(nodes=1, settings=Settings(ordering="fair"))
    world.tell(QueueChanged(0.0, queue("speech")))
    world.tell(QueueChanged(0.0, queue("vision", guarantee=4)))
    world.submit(single("runs", queue="guest"), lasting=500.0, known=True)
    reserve(world, 3)
    world.submit(*(single(name, queue="guest") for name in ("ahead", "next")), lasting=9_000.0, known=True)
    reason = world.why("next")
    assert (reason.cause, reason.blocked_by) == (Cause.RESERVATION, "")
    assert reason.summary == (
        "there is room, but 3 cards are kept for reservation demo of queue vision, which begins before the job would "
        "have ended"
    )
    world.tell(ReservationCancelled(0.0, "demo"))
    world.settle()
    assert world.running() == {"runs", "ahead", "next"}


def test_a_job_that_starts_on_reserved_cards_alone_waits_for_these_and_behind_nobody() -> None:
    world = two_teams(nodes=1, settings=Settings(ordering="fifo"))
    reserve(world, 2, begin=0.0)
    fill(world, 2, minimum_run_s=9_000.0)
    world.submit(single("tied", 2, queue="vision", reservation="demo"))
    world.submit(single("first", 2, queue="speech"), single("next", queue="vision", reservation="demo"))
    assert world.why("next").summary == "it starts on the cards of its reservation demo alone: 0 of 2 are left"
    world.end("tied")
    assert world.state("next") is JobState.RUNNING
    assert world.state("first") is JobState.QUEUED


@pytest.mark.sources
@pytest.mark.parametrize("few", [0, waiting_lines.FEW])
def test_reserved_cards_are_for_others_of_a_queue_too_whose_own_order_lets_nobody_pass_its_first(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", few)
    world = two_teams(nodes=1)
    world.tell(QueueChanged(0.0, queue("vision", guarantee=2, ordering="fifo")))
    reserve(world, 2, begin=0.0)
    fill(world, 2, minimum_run_s=9_000.0)
    world.submit(single("first", 4, queue="vision"))
    world.submit(single("tied", queue="vision", reservation="demo"), single("free", queue="vision"))
    world.submit(single("behind", queue="vision"))
    assert world.running() == {"guest0", "guest1", "tied", "free"}
    world.end("guest0")
    assert world.running() == {"guest1", "tied", "free"}
    assert world.why("behind").blocked_by == "first"


def test_all_jobs_of_its_queue_may_use_it_and_those_that_require_it_start_nowhere_else() -> None:
    world = two_teams(nodes=2)
    reserve(world, 2)
    world.submit(single("tied", queue="vision", reservation="demo"))
    reason = world.why("tied")
    assert (reason.cause, reason.opens_at, reason.start and reason.start.likely_at) == (Cause.RESERVATION, BEGIN, BEGIN)
    world.submit(single("free", queue="vision"))
    assert world.running() == {"free"}
    world.go_to(BEGIN)
    world.submit(single("more", queue="vision"), single("next", queue="vision", reservation="demo"))
    assert world.running() == {"free", "tied", "more", "next"}
    world.submit(single("last", queue="vision", reservation="demo"))
    assert world.why("last").summary == "it starts on the cards of its reservation demo alone: 0 of 2 are left"
    world.go_to(UNTIL)
    assert world.running() == {"free", "tied", "more", "next", "last"}


def test_its_end_makes_work_on_it_ordinary_work_that_others_take_back() -> None:
    world = two_teams(nodes=2)
    reserve(world, 4)
    world.go_to(BEGIN)
    world.submit(*(single(f"v{number}", queue="vision") for number in range(8)))
    assert len(world.running()) == 8
    world.go_to(UNTIL)
    world.submit(*(single(f"s{number}", queue="speech") for number in range(4)))
    world.go_to(UNTIL + 60)
    assert {f"s{number}" for number in range(4)} <= world.running()
    assert len(world.running()) == 8


def test_the_guarantee_of_another_queue_holds_while_it_lasts() -> None:
    world = two_teams()
    reserve(world, 8)
    world.submit(*(single(f"v{number}", queue="vision") for number in range(16)))
    world.go_to(BEGIN + 10)
    world.submit(*(single(f"s{number}", queue="speech") for number in range(8)))
    world.go_to(BEGIN + 100)
    assert {f"s{number}" for number in range(8)} <= world.running()


@pytest.mark.parametrize(("at", "guests"), [(0.0, 4), (BEGIN, 3)])
def test_another_guarantee_takes_back_what_is_borrowed_of_the_cards_beside_those_that_are_reserved(
    at: float, guests: int
) -> None:
    world = two_teams(nodes=1)
    reserve(world, 1)
    fill(world, guests)
    world.go_to(at)
    world.submit(*(single(f"own{number}", queue="speech") for number in range(3)))
    world.settle()
    assert [world.state(f"own{number}") for number in range(3)] == [JobState.RUNNING] * 2 + [JobState.QUEUED]
    world.go_to(BEGIN + 1.0)
    world.submit(single("job", queue="vision", reservation="demo"))
    world.settle()
    assert [world.state(job) for job in ("job", "own0", "own1")] == [JobState.RUNNING] * 3
    assert len(world.of_kind(Stop)) == guests - 1


def test_memory_of_suspended_work_is_taken_back_for_a_guarantee_beside_a_card_that_is_reserved() -> None:
    world = two_teams(nodes=1)
    world.submit(single("frozen", 0.5, queue="guest"))
    world.tell(SuspendRequested(world.now, "frozen"))
    world.settle()
    reserve(world, 1)
    world.submit(single("own", queue="vision"))
    world.submit(single("wide", 2, queue="speech", preemptible=False))
    assert world.running() == {"own", "wide"}


@pytest.mark.parametrize("ordering", ["default", "fifo", "sjf", "ssf", "edf", "fair"])
def test_it_holds_under_every_ordering_that_keeps_room(ordering: str) -> None:
    world = two_teams(settings=Settings(ordering=ordering))
    fill(world, 20)
    reserve(world, 8)
    world.submit(gang("job", 2, asks(4), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.state("job") is JobState.RUNNING


# ---- its nodes --------------------------------------------------------------------------------------------------


def test_nodes_that_fail_are_replaced() -> None:
    world = two_teams()
    fill(world, 16)
    reserve(world, 8)
    world.go_to(BEGIN - 10)
    lost = next(iter(world.core.reservations()[0].cards_on))
    world.tell(NodeLost(world.now, lost))
    world.submit(gang("job", 2, asks(4), queue="vision", reservation="demo"))
    world.go_to(BEGIN + 60)
    assert world.state("job") is JobState.RUNNING
    assert lost not in world.nodes_of("job")


def test_cards_that_fail_and_nodes_that_are_to_be_closed_are_no_choice() -> None:
    world = two_teams()
    world.tell(DeviceHealthChanged(world.now, "n0", "n0-0", DeviceHealth.FAULTY))
    world.tell(NodeClosed(world.now, "n1", Cordon(1_500.0, 1_600.0, planned=True, drain=True)))
    reserve(world, 8, whole_nodes=True)
    assert world.core.reservations()[0].cards_on == {"n2": 4, "n3": 4}


def test_work_that_would_start_on_reserved_cards_but_for_a_closure_of_their_node_is_told_that() -> None:
    world = two_teams(nodes=1)
    reserve(world, 2, begin=world.now)
    world.tell(NodeClosed(world.now, "n0", Cordon(UNTIL + 1.0, UNTIL + 300.0, "works", planned=True, drain=True)))
    world.submit(single("stays", queue="vision", preemptible=False))
    why = world.why("stays")
    assert (why.cause, why.blocked_by) == (Cause.NODES_CLOSED, "n0")
    assert "n0, which closes too soon for it (works); its queue has reserved cards there" in why.summary
    world.tell(NodeOpened(world.now, "n0", planned=True))
    world.settle()
    assert world.running() == {"stays"}


def test_nodes_are_chosen_a_day_before_it_begins() -> None:
    world = two_teams()
    day = 86_400.0
    reserve(world, 4, begin=3 * day, until=4 * day)
    assert world.core.reservations()[0].cards_on == {}
    world.go_to(2 * day)
    assert sum(world.core.reservations()[0].cards_on.values()) == 4


def test_the_last_choice_takes_the_nodes_with_the_least_to_end() -> None:
    world = two_teams(nodes=2)
    reserve(world, 4)
    first = next(iter(world.core.reservations()[0].cards_on))
    world.submit(*(single(f"g{number}", queue="guest") for number in range(8)))
    for number in range(8):
        if world.nodes_of(f"g{number}") != [first]:
            world.tell(StopRequested(world.now, f"g{number}"))
    world.settle()
    world.go_to(BEGIN)
    assert world.of_kind(Stop, "") == [stop for stop in world.of_kind(Stop) if stop.cause is Cause.STOP_REQUESTED]
    assert first not in world.core.reservations()[0].cards_on


# ---- what is agreed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "kind", "cause"),
    [
        ({"until": 900.0}, InvalidInputError, "ends before it begins"),
        ({"begin": 50.0}, InvalidInputError, "is to begin 50s in the past by the scheduler"),
        ({"cards": 17}, InvalidInputError, "17 cards of 16 in pool 'default'"),
        ({"cards": 0}, InvalidInputError, "a reservation of 0 cards"),
        ({"cards": 9}, ConflictError, "of the 8 cards that queue vision is guaranteed, 8 are neither"),
        ({"of": "guest"}, ConflictError, "queue guest is guaranteed no cards"),
        ({"of": "nobody"}, NotFoundError, "no queue 'nobody'"),
        ({"of": "root"}, InvalidInputError, "takes no jobs"),
        ({"pool": "dev"}, NotFoundError, "no pool 'dev'"),
        ({"models": ("V100",)}, InvalidInputError, "no card of model 'V100'"),
        ({"cards": 6, "whole_nodes": True}, InvalidInputError, "6 cards cannot be had as whole nodes: each has 4"),
        ({"cards": 1, "whole_nodes": True}, InvalidInputError, "1 card cannot be had as whole nodes: each has 4"),
        ({"cards": 9, "beyond_guarantee": True}, ConflictError, "1 of its cards are guaranteed to other queues"),
    ],
)
def test_what_cannot_be_reserved_is_named_and_changes_nothing(
    fields: dict[str, Any], kind: type[MillpondError], cause: str
) -> None:
    world = two_teams()
    world.go_to(100.0)
    before = json.dumps(world.core.snapshot())
    with pytest.raises(kind) as caught:
        reserve(world, **{"cards": 4, **fields})
    assert cause in caught.value.cause
    assert caught.value.remedy
    assert json.dumps(world.core.snapshot()) == before


def test_a_reservation_in_a_pool_without_nodes_is_told_which_pools_have_some() -> None:
    world = World(machine("n0", 4), queues=(queue("vision", guarantee=4),), pools=[Pool("gold")])
    with pytest.raises(InvalidInputError, match="pool 'gold' has no nodes") as caught:
        reserve(world, 1, pool="gold")
    assert caught.value.remedy == "set `pool` to one of: default"


def test_a_job_is_told_that_the_cards_its_queue_has_reserved_are_on_too_many_nodes_for_it() -> None:
    queues = queue("vision", guarantee=2), queue("guest", guarantee=6)
    world = World(machine("n0", 4), machine("n1", 4), queues=queues)
    world.submit(*(single(f"stays{number}", 3, queue="guest", preemptible=False) for number in range(2)))
    reserve(world, 2, begin=1.0)
    world.go_to(1.0)
    world.submit(single("wide", 2, queue="vision"))
    why = world.why("wide")
    assert "of the 2 cards that reservation demo of its queue has left, no node has more than 1" in why.summary


def test_what_a_group_promises_to_its_other_queues_is_not_said_to_be_left_for_a_reservation() -> None:
    queues = queue("lab", guarantee=8), queue("vision", parent="lab", guarantee=2), queue("speech", parent="lab")
    world = World(machine("n0", 8), queues=(*queues, queue("sound", parent="lab", guarantee=3)))
    with pytest.raises(ConflictError, match="of the 8 cards that queue lab is guaranteed, 5 are left beside what"):
        reserve(world, 7)
    reserve(world, 5)


def test_who_reserves_for_a_queue_without_a_guarantee_is_not_told_to_ask_for_less() -> None:
    with pytest.raises(ConflictError) as caught:
        reserve(two_teams(), 4, of="guest")
    assert "ask an admin for a guarantee, or to reserve beyond it" in caught.value.remedy
    assert "fewer" not in caught.value.remedy


def test_reservations_that_overlap_share_the_guarantee_and_the_nearest_later_time_is_named() -> None:
    world = two_teams()
    reserve(world, 6, name="first")
    wanted = AdvanceReservation("second", "vision", 4, 1_500.0, 2_500.0)
    found = world.core.misfit(wanted, world.now)
    assert found is not None
    assert found.fits_from == UNTIL
    with pytest.raises(ConflictError) as caught:
        world.tell(ReservationMade(world.now, wanted))
    assert caught.value.remedy == "it fits 500 s later"
    reserve(world, 2, name="third")
    reserve(world, 4, name="second", begin=UNTIL, until=3_000.0)


def test_other_work_of_its_queue_leaves_before_work_that_another_queue_is_guaranteed() -> None:
    world = two_teams(nodes=2)
    speech, vision = fill(world, 4, of="speech"), fill(world, 4, of="vision")
    reserve(world, 4)
    world.submit(single("job", 4, queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.running() == {"job", *speech}
    assert {stop.job for stop in world.of_kind(Stop)} == set(vision)


def test_cards_reserved_after_one_another_are_counted_once_for_who_is_beside_both() -> None:
    world = two_teams(nodes=1)
    reserve(world, 2, name="first")
    reserve(world, 2, name="second", begin=UNTIL, until=3_000.0)
    reserve(world, 2, name="beside", of="speech", until=3_000.0)
    assert world.core.reservations()[-1].cards_on == {"n0": 2}


def test_work_that_stays_beside_two_reservations_after_one_another_starts_at_once() -> None:
    world = two_teams(nodes=1)
    reserve(world, 2, name="first")
    reserve(world, 2, name="second", begin=UNTIL, until=3_000.0)
    world.submit(single("stays", 2, queue="speech", preemptible=False, time_limit_s=5_000.0))
    assert "stays" in world.running()


def test_work_that_leaves_its_limit_to_a_reservation_does_not_start_again_before_it() -> None:
    world = World(*(machine(f"n{number}", 4) for number in range(4)), queues=[queue("vision", guarantee=4, limit=8)])
    fill(world, 8, of="vision")
    reserve(world, 4)
    world.submit(gang("job", 1, asks(4), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.state("job") is JobState.RUNNING
    assert len(world.of_kind(Stop)) == 4


def lent_by_night(*, night_s: float) -> World:
    """One machine whose pool lends until then: five cards of the day's work of a queue that is guaranteed four."""
    hours = (Window(0, int(night_s / 60)),)
    queues = [queue("vision", guarantee=4), queue("guest")]
    world = World(machine("n", 8), queues=queues, pools=[Pool(lending=hours, turn_s=0.0)])
    fill(world, 5, of="vision")
    return world


@pytest.mark.parametrize("night_s", [600.0, 1_500.0])
def test_reserved_work_starts_and_stays_while_its_pool_lends_nothing_and_other_work_of_its_queue_leaves(
    night_s: float,
) -> None:
    world = lent_by_night(night_s=night_s)
    reserve(world, 3)
    world.submit(gang("job", 1, asks(3), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.state("job") is JobState.RUNNING
    world.go_to(UNTIL - 1)
    assert world.core.jobs["job"].attempt == 1
    assert len(world.running()) == 2
    assert world.core.queue_view("vision").used_milli == 4_000


def test_beyond_the_guarantee_there_is_what_no_queue_is_guaranteed() -> None:
    world = World(machine("n0"), machine("n1"), queues=[queue("vision", guarantee=4), queue("guest")])
    reserve(world, 4, of="guest", beyond_guarantee=True)
    with pytest.raises(ConflictError):
        reserve(world, 1, name="more", of="guest", beyond_guarantee=True)


def test_a_queue_is_not_defined_so_that_what_is_reserved_would_be_beyond_its_guarantee() -> None:
    world = two_teams()
    reserve(world, 6)
    before = json.dumps(world.core.snapshot())
    with pytest.raises(
        ConflictError, match=r"reservation 'demo' of 6 cards would no longer fit: of the 5 cards"
    ) as caught:
        world.core.queue_statuses([queue("vision", guarantee=5)])
    assert "pond reservations cancel demo" in caught.value.remedy
    world.core.queue_statuses([queue("vision", guarantee=6), queue("speech", guarantee=2)])
    assert json.dumps(world.core.snapshot()) == before


def test_work_that_stays_in_a_reservation_lets_no_guarantee_fall_below_it() -> None:
    world = two_teams()
    reserve(world, 4, begin=0.0)
    world.submit(gang("mine", 4, asks(1), queue="vision", preemptible=False))
    assert world.running() == {"mine"}
    with pytest.raises(ConflictError, match="no longer fit"):
        world.core.queue_statuses([queue("vision", guarantee=3)])


def test_a_guarantee_takes_nothing_of_what_is_reserved_beyond_the_guarantees() -> None:
    world = World(machine("n0"), machine("n1"), queues=[queue("vision", guarantee=4), queue("guest")])
    reserve(world, 4, of="guest", beyond_guarantee=True)
    with pytest.raises(ConflictError, match="1 of its cards are guaranteed to other queues"):
        world.core.queue_statuses([queue("vision", guarantee=5)])


def test_a_limit_bounds_what_is_reserved() -> None:
    world = World(machine("n0"), queues=[queue("vision", guarantee=2, limit=2)])
    with pytest.raises(ConflictError, match="queue vision may have 2 cards"):
        reserve(world, 3, beyond_guarantee=True)


def test_work_that_cannot_leave_is_counted_and_its_end_is_the_nearest_time() -> None:
    world = two_teams(nodes=2)
    world.submit(gang("fixed", 1, asks(3), queue="vision", preemptible=False, time_limit_s=1_200.0))
    found = world.core.misfit(AdvanceReservation("demo", "vision", 2, BEGIN, UNTIL), world.now)
    assert found is not None
    assert found.fits_from == 1_230.0


def test_work_that_cannot_leave_starts_only_beside_what_is_reserved_of_its_own_guarantee() -> None:
    world = two_teams(nodes=2)
    reserve(world, 3)
    world.submit(single("fixed", 2, queue="vision", preemptible=False))
    assert world.running() == set()
    world.submit(single("small", 1, queue="vision", preemptible=False))
    assert world.running() == {"small"}
    world.submit(single("short", 2, queue="vision", preemptible=False, time_limit_s=500.0))
    assert world.running() == {"small", "short"}


def test_work_that_has_outlived_its_forecast_is_asked_in_time_like_any_other() -> None:
    world = two_teams(nodes=1)
    world.submit(gang("late", 4, asks(1), queue="guest", checkpoint=Checkpoint(grace_s=100.0)))
    world.tell(DurationPredicted(world.now, "late", 500.0, 500.0))
    reserve(world, 2)
    world.submit(single("own", 2, queue="vision", reservation="demo"))
    world.lingering.add("late")
    world.go_to(BEGIN - 100)
    world.leave("late")
    world.go_to(BEGIN)
    assert world.state("own") is JobState.RUNNING


# ---- beside cells -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "cards"),
    [
        ([single("one", queue="vision"), single("other", queue="speech")], 4),
        ([single("a", queue="guest"), single("b", queue="guest"), single("own", queue="vision")], 3),
    ],
)
def test_a_queue_with_cells_reserves_in_its_own_and_leaves_others_theirs(before: list[Job], cards: int) -> None:
    node = (CellCount("node", 1),)
    teams = (queue(name, guarantee=4, cells=node) for name in ("vision", "speech"))
    world = World(machine("n0", 4), machine("n1", 4), queues=(*teams, queue("guest")))
    world.submit(*before)
    reserve(world, cards)
    world.submit(*(single(f"tied{number}", queue="vision", reservation="demo") for number in range(cards)))
    world.go_to(BEGIN)
    world.submit(single("whole", 4 - len(world.running() & {"other"}), queue="speech"))
    world.go_to(BEGIN + 100)
    assert world.running() >= {"whole", *(f"tied{number}" for number in range(cards))}


def test_the_published_orderings_that_replan_keep_no_room() -> None:
    world = two_teams(settings=Settings(ordering="srtf", preempt=True))
    with pytest.raises(ConflictError, match="keeps no room"):
        reserve(world, 4)


def test_nobody_changes_to_them_while_a_reservation_is_agreed_upon() -> None:
    world = two_teams()
    reserve(world, 4)
    to_replan = PolicyChanged(world.now, "srtf", "default", preempt=True, reserve=True)
    with pytest.raises(ConflictError, match="'demo' is agreed upon, and the ordering 'srtf' keeps no room"):
        world.core.require_policies(to_replan)
    with pytest.raises(ConflictError, match="keeps no room"):
        world.tell(to_replan)
    assert world.core.settings.ordering == "default"
    world.tell(ReservationCancelled(world.now, "demo"))
    world.tell(to_replan)
    assert world.core.settings.ordering == "srtf"


# ---- changes ----------------------------------------------------------------------------------------------------


def test_a_cancelled_reservation_keeps_nothing_and_lets_its_jobs_start_anywhere() -> None:
    world = two_teams(nodes=1)
    reserve(world, 2)
    world.submit(single("tied", queue="vision", reservation="demo"))
    world.tell(ReservationCancelled(world.now, "demo"))
    world.settle()
    assert world.running() == {"tied"}
    assert world.core.reservations() == []
    with pytest.raises(NotFoundError):
        world.tell(ReservationCancelled(world.now, "demo"))


def test_a_changed_reservation_is_checked_anew_and_those_on_it_stay() -> None:
    world = two_teams()
    reserve(world, 4)
    world.go_to(BEGIN)
    world.submit(single("own", 4, queue="vision", reservation="demo"))
    with pytest.raises(ConflictError):
        reserve(world, 9)
    reserve(world, 8, until=3_000.0)
    fill(world, 16)
    world.go_to(2_500.0)
    assert "own" in world.running()
    assert len(world.running()) == 9
    with pytest.raises(ConflictError, match="is one of queue 'vision'"):
        reserve(world, 4, of="speech", until=3_000.0)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"reservation": "other", "queue": "vision"}, "no reservation 'other' for queue 'vision' in pool 'default'"),
        ({"reservation": "demo", "queue": "guest"}, "no reservation 'demo' for queue 'guest' in pool 'default'"),
    ],
)
def test_a_job_that_could_not_use_the_reservation_that_it_requires_is_refused(
    fields: dict[str, Any], cause: str
) -> None:
    world = two_teams()
    reserve(world, 4)
    with pytest.raises(MillpondError, match=cause):
        world.core.check_reservation(single("job", **fields))
    with pytest.raises(InvalidInputError, match="needs 5 cards"):
        world.core.check_reservation(gang("job", 5, asks(1), reservation="demo", queue="vision"))


def test_a_job_whose_reservation_is_over_is_not_bound_to_one_of_another_queue_that_bears_its_name() -> None:
    world = two_teams()
    reserve(world, 4, of="speech", begin=5_000.0, until=6_000.0)
    world.submit(single("job", queue="speech", reservation="demo"))
    world.settle()
    assert world.state("job") is JobState.QUEUED
    world.tell(ReservationCancelled(world.now, "demo"))
    reserve(world, 4)
    assert world.state("job") is JobState.RUNNING


def test_a_queue_whose_guarantee_shrinks_keeps_what_was_agreed() -> None:
    world = two_teams()
    reserve(world, 8)
    world.tell(QueueChanged(world.now, queue("vision", guarantee=2)))
    world.submit(gang("job", 2, asks(4), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.state("job") is JobState.RUNNING


def test_elastic_work_starts_on_it_as_large_as_it_takes() -> None:
    world = two_teams()
    fill(world, 16)
    reserve(world, 6)
    world.submit(elastic("job", (1, 8, 8), asks(1), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert len(world.nodes_of("job")) == 6


def test_elastic_work_starts_on_it_no_larger_than_leaves_enough_to_those_who_require_it() -> None:
    world = World(machine("n", 2), queues=(queue("vision", guarantee=2),))
    reserve(world, 2)
    world.go_to(BEGIN)
    tied = single("tied", queue="vision", reservation="demo", priority=Priority.LOW)
    parts = elastic("parts", (2, 3, 3), asks(0.5), queue="vision", priority=Priority.HIGH)
    for job in (tied, parts):
        world.tell(JobSubmitted(world.now, job))
    world.settle()
    assert len(world.nodes_of("parts")) == 2
    assert world.running() == {"tied", "parts"}
    assert world.of_kind(Stop) == []


# ---- copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0.0, BEGIN - 45, BEGIN, BEGIN + 50])
def test_a_restored_and_a_forked_scheduler_keep_it_alike(at: float) -> None:
    world = two_teams()
    fill(world, 16)
    reserve(world, 8)
    world.submit(single("own", 2, queue="vision"), gang("tied", 2, asks(2), queue="vision", reservation="demo"))
    world.go_to(at)
    plain = json.loads(json.dumps(world.core.snapshot()))
    for twin in (Scheduler.restore(plain), world.core.fork()):
        assert json.loads(json.dumps(twin.snapshot())) == plain
        assert twin.next_wakeup(at) == world.core.next_wakeup(at)
        later = at
        for _ in range(6):
            later = world.core.next_wakeup(later) or later + 100.0
            mine = world.core.fork()
            assert twin.fork().decide(later) == mine.decide(later)


def test_work_on_reserved_cards_does_not_leave_for_a_guarantee_that_could_not_have_them() -> None:
    world = World(machine("n", 4), queues=(queue("a"), queue("b", guarantee=2), queue("others")))
    wanted = AdvanceReservation("r", "a", 2, world.now, world.now + 600.0, beyond_guarantee=True)
    world.tell(ReservationMade(world.now, wanted))
    world.submit(single("reserved", 2, queue="a"), single("stays", 2, queue="b", preemptible=False))
    assert world.running() == {"reserved", "stays"}
    world.tell(QueueChanged(world.now, queue("others", guarantee=2)))
    world.submit(single("late", 2, queue="others"))
    assert world.running() == {"reserved", "stays"}


def test_work_takes_no_limit_back_from_others_that_it_would_have_to_leave_to_a_reservation_at_once() -> None:
    queues = (
        queue("lab", guarantee=4, limit=4),
        queue("vision", parent="lab", guarantee=2, limit=2),
        queue("speech", parent="lab", guarantee=2),
    )
    world = World(machine("n0"), machine("n1"), queues=queues)
    borrowing = fill(world, 4, of="speech", checkpoint=Checkpoint(grace_s=0.0))
    reserve(world, 2)
    world.submit(gang("job", 2, asks(1), queue="vision", reservation="demo"))
    world.go_to(BEGIN - 50)
    world.submit(single("late", queue="vision", checkpoint=Checkpoint(grace_s=30.0)))
    assert world.running() == set(borrowing)
    world.go_to(BEGIN)
    assert "job" in world.running()
    assert len(world.of_kind(Stop)) == 2


@pytest.mark.parametrize("is_beside_work", [False, True])
def test_several_reservations_together_leave_others_the_machine_that_they_are_owed(is_beside_work: bool) -> None:
    node = (CellCount("node", 1),)
    teams = queue("vision", guarantee=4), queue("speech", guarantee=4, cells=node), queue("guest")
    world = World(machine("n0", 4), machine("n1", 4), queues=teams)
    reserve(world, 2, name="first")
    if is_beside_work:
        world.submit(single("guest", 2, queue="guest"))
    reserve(world, 2, name="second")
    used = [
        single(f"{name}{number}", queue="vision", reservation=name) for name in ("first", "second") for number in "12"
    ]
    world.submit(*used)
    world.go_to(BEGIN)
    world.submit(single("owed", 4, queue="speech"))
    assert world.running() >= {"owed", *(job.id for job in used)}


def test_background_work_does_not_leave_for_a_gang_that_a_reservation_keeps_from_growing() -> None:
    there = asks(1, extras=[("licence", 1)])
    machines = machine("n", 4, model="V100"), machine("m", 4, extras=(("licence", 4),))
    world = World(*machines, queues=(queue("vision", guarantee=4), queue("guest")))
    world.submit(gang("guest", 2, there, queue="guest"))
    world.submit(elastic("gang", (2, 3, 3), there, queue="vision", preemptible=False))
    reserve(world, 2, models=("V100",))
    world.end("guest")
    world.submit(gang("beneath", 2, there, priority=Priority.BACKGROUND))
    assert world.running() == {"gang", "beneath"}
    assert not world.of_kind(Stop)


@pytest.mark.parametrize("members", [1, 2])
def test_who_left_for_a_reservation_that_lacks_cards_is_not_asked_again_and_again(members: int) -> None:
    switch = (CellCount("switch", 1),)
    teams = (queue(name, guarantee=4, cells=switch) for name in ("vision", "speech"))
    world = World(machine("n0", 4), machine("n1", 4), queues=teams)
    world.submit(single("stays", 0.5, queue="vision", preemptible=False))
    reserve(world, 4, of="speech")
    world.tell(NodeClosed(world.now, "n1", Cordon(world.now, UNTIL, "repair", drain=True)))
    world.submit(gang("own", members, asks(1), queue="speech"), single("others", 2, queue="vision"))
    world.go_to(BEGIN + 40.0)
    stops = Counter(stop.job for stop in world.of_kind(Stop) if stop.cause is Cause.RESERVATION)
    assert stops
    assert set(stops.values()) == {1}


def test_a_place_on_reserved_cards_that_breaks_into_cells_leaves_no_trace_in_what_a_queue_is_said_to_hold() -> None:
    """Of six pairs of cards five are owed, so that no job of four that stays fits anywhere."""
    queues = [
        queue(name, guarantee=2 * pairs, cells=(CellCount("switch", pairs),)) for name, pairs in (("a", 2), ("b", 3))
    ]
    world = World(*(machine(f"n{number}") for number in range(3)), queues=queues)
    reserve(world, 4, of="b", begin=0.0)
    world.submit(single("wide", 4, queue="b", preemptible=False, time_limit_s=500.0))
    world.go_to(UNTIL)
    assert world.core.queue_view("b").used_milli == 0
    world.submit(*(single(f"pair{number}", 2, queue="b") for number in range(3)))
    assert world.running() == {"pair0", "pair1", "pair2"}


# ---- parts of cards ---------------------------------------------------------------------------------------------


def test_parts_of_one_card_are_beside_reserved_cards_as_one() -> None:
    world = two_teams(nodes=1, cards=2)
    world.submit(single("half", 0.5, queue="guest"), gang("pair", 2, asks(0.25), queue="guest"))
    reserve(world, 1)
    world.submit(single("job", queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.running() == {"half", "pair", "job"}
    assert world.of_kind(Stop) == []


def test_parts_of_one_card_start_beside_reserved_cards_and_stay() -> None:
    world = two_teams(nodes=1, cards=2)
    reserve(world, 1)
    world.submit(single("job", queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    world.submit(single("lent", 0.75, queue="guest"))
    world.submit(gang("pair", 2, asks(0.5), queue="speech"))
    assert world.running() == {"job", "pair"}
    world.end("job")
    world.submit(single("late", queue="guest"))
    assert world.running() == {"pair"}, "the other card is kept"


def test_work_beside_parts_of_cards_that_make_up_what_is_reserved_is_not_asked_to_leave() -> None:
    world = World(machine("n0", 3), queues=(queue("vision", guarantee=1), queue("speech", guarantee=2), queue("guest")))
    world.tell(ReservationMade(0.0, AdvanceReservation("demo", "vision", 1, 0.0, 1_000.0)))
    world.settle()
    world.submit(gang("aside", 1, asks(0.5, card_mib=CARD_MIB // 2), queue="guest"))
    world.submit(gang("reserved", 2, asks(0.5, card_mib=CARD_MIB * 3 // 5), queue="vision"))
    assert world.core.reservations()[0].unused_milli == 0
    world.submit(gang("background", 1, asks(0.5, card_mib=CARD_MIB // 4), queue="guest", priority=Priority.BACKGROUND))
    world.submit(gang("wide", 3, asks(0.5, card_mib=CARD_MIB // 4), queue="speech"))
    assert world.running() == {"reserved", "aside", "wide"}
    world.end("reserved")
    tasks = [task for job in world.running() for task in world.core.jobs[job].tasks]
    cards = {grant.device for task in tasks if task.placement is not None for grant in task.placement.grants}
    assert (world.running(), len(cards)) == ({"aside", "wide"}, 2), "a card is kept again"


def test_background_work_on_parts_of_a_card_leaves_for_a_guarantee_beside_a_card_that_is_reserved() -> None:
    world = two_teams(nodes=1, cards=2)
    world.submit(single("background", 0.5, queue="guest", priority=Priority.BACKGROUND))
    world.go_to(1.0)
    world.submit(single("lent", queue="guest"))
    reserve(world, 1)
    world.submit(gang("pair", 2, asks(0.5), queue="speech", preemptible=False))
    assert world.running() == {"lent", "pair"}
    world.submit(single("job", queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.running() == {"job", "pair"}


def test_parts_of_one_card_that_cannot_be_asked_to_leave_keep_one_card_alone_from_reservations() -> None:
    world = two_teams(nodes=1, cards=2)
    fixed = {"queue": "speech", "preemptible": False}
    world.submit(single("half", 0.5, **fixed), gang("pair", 2, asks(0.25), **fixed))
    reserve(world, 1)
    world.submit(single("job", queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.running() == {"half", "pair", "job"}
