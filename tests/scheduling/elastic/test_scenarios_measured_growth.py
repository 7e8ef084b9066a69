"""Where a pool measures growth, gangs grow by what it is worth and give what adds least to jobs that wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from worlds import World, asks, elastic, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.events import ProgressMeasured
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.workloads import Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

MEASURED = Pool(measured_growth=True)
PERFECT = {size: float(size) for size in range(1, 9)}
POOR = {1: 1.0, 2: 1.3, 3: 1.4, 4: 1.45, 8: 1.5}
"""Steps a second by cards."""


def world(cards: int = 8, pool: Pool = MEASURED, **fields: Any) -> World:
    return World(machine("n", cards), pools=(pool,), settings=Settings("fifo", reserve=False), **fields)


def gang(id_: str, most: int = 8, least: int = 1, **fields: Any) -> Any:
    return elastic(id_, (least, most, most), asks(1), **fields)


def size(here: World, job: str) -> int:
    return len(here.nodes_of(job))


def measure(here: World, job: str, speeds: Mapping[int, float]) -> None:
    """It is measured at the size that it has, again and again until that stays."""
    for _ in range(8):
        cards = size(here, job)
        here.now += 60.0
        here.tell(ProgressMeasured(here.now, job, here.core.jobs[job].attempt, speeds[cards], 1_000 * cards))
        here.settle()
        if size(here, job) == cards:
            return
    raise AssertionError("its size changes without an end")


def crowded(here: World, speeds: Mapping[int, float], **fields: Any) -> None:
    """Of eight cards a gang has two, and then could have all."""
    here.submit(single("x", 6), lasting=50)
    here.submit(gang("e", **fields))
    assert size(here, "e") == 2
    here.tell(ProgressMeasured(here.now, "e", 1, speeds[2], 2_000))
    here.go_to(50)


def test_a_gang_doubles_and_waits_until_it_is_measured_before_it_grows_on() -> None:
    here = world()
    crowded(here, PERFECT)
    assert size(here, "e") == 4
    here.go_to(1_000)
    assert size(here, "e") == 4
    assert here.why("e").summary.endswith(
        "; 4 tasks are left out until it is measured how fast it is with those that it has"
    )
    measure(here, "e", PERFECT)
    assert size(here, "e") == 8


def test_a_single_task_that_is_left_out_is_told_as_one() -> None:
    here = world()
    crowded(here, PERFECT, most=5)
    assert here.why("e").summary.endswith(
        "; 1 task is left out until it is measured how fast it is with those that it has"
    )


def test_a_gang_that_hardly_gets_faster_leaves_the_cards_to_others() -> None:
    here = world()
    crowded(here, POOR)
    measure(here, "e", POOR)
    assert size(here, "e") == 4
    assert here.core.jobs["e"].speeds == ((2_000, 1.3), (4_000, 1.45))
    assert here.why("e").summary.endswith(
        "; 4 tasks are left out, as another would add less than 50% of what each of its first cards does"
    )


def test_a_gang_whose_program_reports_nothing_grows_as_ever() -> None:
    here = world()
    here.submit(single("x", 6), lasting=50)
    here.submit(gang("e"))
    here.go_to(50)
    assert size(here, "e") == 8


@pytest.mark.parametrize("pool", [Pool(), MEASURED])
def test_until_something_is_measured_nothing_is_decided_otherwise(pool: Pool) -> None:
    here = world(pool=pool)
    here.submit(gang("e"))
    here.submit(single("waits"))
    here.go_to(500)
    assert (size(here, "e"), here.running()) == (8, {"e"})


def test_a_waiting_job_gets_what_a_measured_gang_can_do_without() -> None:
    here = world()
    here.submit(gang("e"))
    measure(here, "e", PERFECT)
    here.submit(single("waits", 2))
    assert here.running() == {"e", "waits"}
    assert size(here, "e") == 6
    (stop,) = here.of_kind(Stop)
    assert (stop.cause, stop.for_job, len(stop.tasks)) == (Cause.SHRUNK, "waits", 2)
    check_everything(here.core)


def test_the_gang_gives_that_gets_least_from_its_cards() -> None:
    here = world()
    here.submit(gang("poor", 4))
    here.submit(gang("perfect", 4))
    for cards in (2, 4):
        for job, speeds in (("poor", POOR), ("perfect", PERFECT)):
            here.tell(ProgressMeasured(here.now, job, 1, speeds[cards], 1_000 * cards))
    here.submit(single("waits", 2))
    assert (size(here, "poor"), size(here, "perfect")) == (2, 4)


def test_a_gang_that_has_given_cards_is_asked_again_only_once_it_was_measured_anew() -> None:
    here = world()
    here.submit(gang("e"))
    measure(here, "e", PERFECT)
    here.submit(single("first"), single("second"))
    assert here.running() == {"e", "first"}
    measure(here, "e", PERFECT)
    assert here.running() == {"e", "first", "second"}
    assert size(here, "e") == 6


def test_a_gang_keeps_what_it_cannot_do_without_and_what_is_protected() -> None:
    here = world()
    here.submit(gang("least", 4, least=4), gang("protected", 4, minimum_run_s=10_000.0))
    for job in ("least", "protected"):
        measure(here, job, PERFECT)
    here.submit(single("waits"))
    assert here.running() == {"least", "protected"}


@pytest.mark.parametrize(("to", "is_given"), [("owner", True), ("other", False)])
def test_growth_within_a_guarantee_is_given_within_the_queue_alone(to: str, is_given: bool) -> None:
    here = world(queues=[queue("owner", guarantee=8), queue("other")])
    here.submit(gang("e", queue="owner"))
    measure(here, "e", PERFECT)
    here.submit(single("waits", queue=to))
    assert (here.running() == {"e", "waits"}) is is_given


def test_a_job_of_a_lower_class_gets_no_growth_of_a_higher_one() -> None:
    here = world()
    here.submit(gang("e"))
    measure(here, "e", PERFECT)
    here.submit(single("low", priority=Priority.LOW))
    assert here.running() == {"e"}


def test_cards_that_come_free_go_back_to_the_gang() -> None:
    here = world()
    here.submit(gang("e"))
    measure(here, "e", PERFECT)
    here.submit(single("waits", 2), lasting=500)
    measure(here, "e", PERFECT)
    assert size(here, "e") == 6
    here.go_to(here.now + 500)
    assert size(here, "e") == 8


def test_the_next_job_of_a_name_starts_as_large_as_was_worth_it_to_the_last() -> None:
    here = world()
    crowded(here, POOR, name="bert", user="ada")
    measure(here, "e", POOR)
    here.end("e")
    here.submit(gang("again", name="bert", user="ada"), gang("of-another", 1, name="bert", user="bob"))
    assert size(here, "again") == 1
    assert "until it is measured" in here.why("again").summary
    measure(here, "again", POOR)
    assert size(here, "again") == 2


def test_a_restored_scheduler_knows_what_was_measured() -> None:
    here = world()
    crowded(here, POOR, name="bert")
    measure(here, "e", POOR)
    for twin in (Scheduler.restore(here.core.snapshot()), here.core.fork()):
        assert twin.jobs["e"].speeds == here.core.jobs["e"].speeds
        assert twin.snapshot() == here.core.snapshot()


@pytest.mark.parametrize("per_s", [None, 0.0, 5e-324])
def test_a_gang_that_makes_no_steps_is_as_one_that_was_not_measured(per_s: float | None) -> None:
    here = world()
    here.submit(gang("e"))
    here.tell(ProgressMeasured(here.now, "e", 1, per_s, 8_000))
    here.submit(single("waits"))
    assert here.running() == {"e"}


@pytest.mark.parametrize("speeds", [{8: 1e9}, {8: 1e-9}, {4: 1e9, 8: 1e-9}, {4: 1e-9, 8: 1e9}])
def test_speeds_of_any_size_do_no_harm(speeds: Mapping[int, float]) -> None:
    here = world()
    here.submit(gang("e"))
    for cards, per_s in speeds.items():
        here.tell(ProgressMeasured(here.now, "e", 1, per_s, 1_000 * cards))
    here.submit(single("waits", 2))
    assert here.running() == {"e", "waits"}
    here.end("waits")
    check_everything(here.core)


def test_a_second_run_of_the_same_job_counts_anew() -> None:
    here = world()
    here.submit(gang("e"))
    measure(here, "e", PERFECT)
    here.tell(ProgressMeasured(here.now, "e", 0, 99.0, 1_000))
    assert here.core.jobs["e"].speeds == ((8_000, 8.0),)
