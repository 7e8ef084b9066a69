"""Jobs that may start later than they could, and wait for cheaper or cleaner hours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from worlds import World, machine, single

from ledgers import check_everything
from millpond.model.decisions import Start
from millpond.model.energy import RateMeasure
from millpond.model.events import EnergyRatePredicted, JobSubmitted, ResumeRequested, StopRequested, TimeLimitChanged
from millpond.model.reasons import Cause, DeadlineVerdict
from millpond.model.states import JobState, Outcome
from millpond.model.windows import Window
from millpond.scheduling.scheduler import Scheduler

HOUR_S = 3_600.0
DAY = (300.0,) * 4 + (100.0, 90.0) + (200.0,) * 18
"""Hour 5 is the best one, and hour 4 nearly as good."""


def predicted(world: World, values: Sequence[float | None] = DAY, missing: str = "", **fields: Any) -> None:
    measure = fields.pop("measure", RateMeasure.CARBON)
    world.tell(EnergyRatePredicted(world.now, measure, world.now // HOUR_S * HOUR_S, tuple(values), missing))


def pool(cards: int = 4, values: Sequence[float | None] = DAY, **fields: Any) -> World:
    world = World(machine("n", cards), **fields)
    predicted(world, values)
    return world


def flexible(id_: str, gpus: float = 1, hours: float = 24.0, limit_h: float | None = 1.0, **fields: Any) -> Any:
    limit_s = None if limit_h is None else limit_h * HOUR_S
    return single(id_, gpus, flexible_s=hours * HOUR_S, time_limit_s=limit_s, **fields)


def starts(world: World) -> dict[str, float]:
    """When each job started first, in hours."""
    records = world.core.jobs.values()
    return {each.id: each.first_started_at / HOUR_S for each in records if each.first_started_at is not None}


def test_a_flexible_job_waits_for_the_hours_of_least_mean_over_its_length() -> None:
    world = pool()
    world.submit(flexible("short"), flexible("long", limit_h=2.0), single("now"))
    assert world.running() == {"now"}
    world.go_to(24 * HOUR_S)
    assert starts(world) == {"now": 0.0, "short": 5.0, "long": 4.0}


def test_it_starts_at_once_where_all_hours_are_equal_or_waiting_saves_less_than_a_hundredth() -> None:
    world = pool(values=(100.0,) * 24)
    world.submit(flexible("a"))
    predicted(world, (100.0, 99.5, 99.1) + (100.0,) * 21)
    world.submit(flexible("b"))
    assert world.running() == {"a", "b"}


def test_hours_of_negative_prices_are_the_cheapest() -> None:
    world = pool(values=(-1.0, -1.0, -20.0, 5.0))
    world.submit(flexible("j"))
    world.go_to(4 * HOUR_S)
    assert starts(world) == {"j": 2.0}


def test_it_never_lines_up_later_than_it_may() -> None:
    world = pool()
    world.submit(flexible("j", hours=4.4))
    world.go_to(3.2 * HOUR_S)
    predicted(world, (500.0, 1.0, 1.0))
    world.go_to(3.6 * HOUR_S)
    assert starts(world) == {"j": pytest.approx(3.3)}


def test_its_latest_start_may_lie_within_an_hour() -> None:
    world = pool(values=(300.0, 300.0, 300.0, 300.0, 100.0))
    world.submit(flexible("j", hours=4.8))
    world.go_to(3.59 * HOUR_S)
    assert world.running() == set()
    world.go_to(3.6 * HOUR_S)
    assert world.running() == {"j"}


def test_its_deadline_goes_first_counting_all_that_it_may_run() -> None:
    world = pool()
    world.submit(flexible("j", limit_h=2.0, deadline_s=4 * HOUR_S), flexible("unknown", limit_h=None, deadline_s=1e9))
    assert world.running() == {"j", "unknown"}  # until 2 o'clock all hours are equal; the other may run for ever
    world.submit(flexible("k", limit_h=1.0, deadline_s=7.0 * HOUR_S))
    world.go_to(24 * HOUR_S)
    assert starts(world)["k"] == 4.5


def test_its_deadline_is_not_at_risk_while_it_is_held() -> None:
    world = pool()
    world.submit(flexible("j", deadline_s=8 * HOUR_S))
    outlook = world.core.deadline_outlook("j", world.now)
    assert outlook is not None
    assert outlook.verdict is DeadlineVerdict.ACCEPT
    assert outlook.latest_end_at == 6.25 * HOUR_S


def test_a_longer_time_limit_brings_its_latest_start_forward() -> None:
    world = pool()
    world.submit(flexible("j", limit_h=1.0, deadline_s=8 * HOUR_S))
    world.go_to(HOUR_S)
    assert world.core.jobs["j"].held_until == 5 * HOUR_S
    world.tell(TimeLimitChanged(world.now, "j", 7.0 * HOUR_S))
    world.settle()
    assert world.running() == {"j"}


def test_those_who_find_no_room_in_the_best_hour_take_the_next_best() -> None:
    world = pool(cards=2)
    world.submit(*(flexible(f"j{number}") for number in range(5)))
    world.go_to(24 * HOUR_S)
    assert sorted(starts(world).values()) == [4.0, 4.0, 5.0, 5.0, 6.0]
    check_everything(world.core)


def test_it_lines_up_at_once_where_no_later_hour_has_room() -> None:
    world = pool(cards=2)
    world.submit(single("busy", 2), lasting=30 * HOUR_S, known=True)
    world.submit(flexible("j"))
    assert world.core.jobs["j"].line
    assert world.why("j").cause is Cause.NO_ROOM


def test_work_that_waits_in_line_takes_the_hours_first() -> None:
    world = pool(cards=2)
    world.submit(single("busy", 2, time_limit_s=4 * HOUR_S), lasting=4 * HOUR_S)
    world.submit(single("next", 2, time_limit_s=2 * HOUR_S), lasting=2 * HOUR_S)
    world.submit(flexible("j", 2), lasting=HOUR_S)
    world.go_to(24 * HOUR_S)
    assert starts(world)["j"] == 6.0


def test_a_new_prediction_chooses_anew() -> None:
    world = pool()
    world.submit(flexible("j"))
    world.go_to(2 * HOUR_S)
    predicted(world, (300.0, 50.0, *DAY[4:]))
    world.settle()
    world.go_to(3 * HOUR_S)
    assert starts(world) == {"j": 3.0}


def test_a_present_hour_that_is_not_known_any_more_lets_all_start() -> None:
    world = pool()
    world.submit(flexible("j"))
    world.go_to(HOUR_S)
    predicted(world, (), "the series has ended")
    world.settle()
    assert world.running() == {"j"}


def test_an_unknown_hour_is_not_chosen_and_known_ones_behind_it_are() -> None:
    world = pool(values=(300.0, None, None, 200.0, 100.0))
    world.submit(flexible("j", limit_h=1.0))
    world.go_to(24 * HOUR_S)
    assert starts(world) == {"j": 4.0}


def test_without_a_prediction_it_starts_as_any_other() -> None:
    world = World(machine("n", 4))
    world.submit(flexible("j"))
    assert world.running() == {"j"}


def test_a_prediction_that_lies_behind_holds_nobody() -> None:
    world = pool()
    world.now = 48 * HOUR_S
    world.submit(flexible("j"))
    assert world.running() == {"j"}


def test_it_starts_only_in_its_windows() -> None:
    world = pool()
    world.submit(flexible("j", windows=(Window(60, 5 * 60),)))
    world.go_to(24 * HOUR_S)
    assert starts(world) == {"j": 4.0}


def test_where_the_first_cycle_comes_behind_its_latest_start_its_windows_alone_keep_it() -> None:
    world = pool()
    world.tell(JobSubmitted(world.now, flexible("j", hours=0.5, windows=(Window(60, 2 * 60),))))
    world.now = 3 * HOUR_S
    world.settle()
    reason = world.why("j")
    assert reason.cause is Cause.WINDOW_CLOSED
    world.go_to(26 * HOUR_S)
    assert starts(world) == {"j": 25.0}


def test_a_run_after_the_first_is_not_held() -> None:
    world = pool()
    world.submit(flexible("j", retries=1))
    world.go_to(5 * HOUR_S)
    predicted(world, (300.0, 1.0))
    world.end("j", Outcome.USER_ERROR)
    assert world.core.jobs["j"].attempt == 2


def test_why_names_the_hours_and_resuming_starts_it_now() -> None:
    world = pool()
    world.submit(flexible("j"))
    reason = world.why("j")
    assert (reason.cause, reason.opens_at) == (Cause.CHEAPER_HOURS, 5 * HOUR_S)
    assert reason.summary == "it waits for cleaner hours"
    assert dict(reason.numbers) == {"lines_up_by": 64_800}
    assert reason.start is not None
    assert reason.start.earliest_at == 5 * HOUR_S
    assert reason.remedy is not None
    assert "pond resume j" in reason.remedy.change
    world.tell(ResumeRequested(world.now, "j"))
    world.settle()
    assert world.running() == {"j"}


def test_prices_make_hours_cheaper() -> None:
    world = pool()
    predicted(world, measure=RateMeasure.PRICE)
    world.submit(flexible("j"))
    assert world.why("j").summary == "it waits for cheaper hours"


def test_a_held_job_can_be_stopped() -> None:
    world = pool()
    world.submit(flexible("j"))
    world.tell(StopRequested(world.now, "j"))
    world.go_to(24 * HOUR_S)
    assert world.state("j") is JobState.CANCELLED
    assert [each for each in world.decisions if isinstance(each, Start)] == []


def test_its_wait_counts_from_its_submission_so_it_goes_before_work_that_crowds_its_hour() -> None:
    world = pool(cards=2)
    world.submit(flexible("j", 2, limit_h=4.0), lasting=4 * HOUR_S, known=True)
    assert world.core.jobs["j"].held_until == 4 * HOUR_S
    world.go_to(3.9 * HOUR_S)
    world.submit(single("crowd", 2), lasting=0.2 * HOUR_S, known=True)
    for number in range(6):
        world.submit(single(f"short{number}", 2), lasting=0.5 * HOUR_S, known=True)
    world.go_to(6 * HOUR_S)
    assert 4.0 < starts(world)["j"] < 5.0


def test_a_restored_scheduler_holds_the_same_jobs_until_the_same_hours() -> None:
    world = pool(cards=2)
    world.submit(*(flexible(f"j{number}") for number in range(5)))
    twins = [Scheduler.restore(world.core.snapshot()), world.core.fork()]
    for twin in twins:
        assert twin.next_wakeup(world.now) == world.core.next_wakeup(world.now) == 4 * HOUR_S
        predicted_again = EnergyRatePredicted(HOUR_S, RateMeasure.CARBON, HOUR_S, DAY[1:])
        twin.handle(predicted_again)
    world.now = HOUR_S
    world.tell(predicted_again)
    expected = world.core.decide(4 * HOUR_S)
    assert len(expected) == 2
    for twin in twins:
        assert twin.decide(4 * HOUR_S) == expected
