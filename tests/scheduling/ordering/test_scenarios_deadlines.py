"""Jobs with deadlines: whether they should end in time, as it is foreseen while they wait and run."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, machine, single

from millpond.model.events import SuspendRequested
from millpond.model.reasons import DeadlineOutlook, DeadlineVerdict
from millpond.scheduling.settings import Settings


def due(id_: str, deadline: float, **fields: float) -> tuple[World, DeadlineOutlook]:
    """A machine of one card that is taken for 100 s, and a job with a deadline behind that; what is foreseen of it."""
    world = World(machine("a", 1))
    world.submit(single("first"), lasting=100.0, known=True)
    job = replace(single(id_), deadline_s=deadline)
    world.submit(
        replace(job, time_limit_s=fields.get("limit")), lasting=fields.get("lasting"), known="lasting" in fields
    )
    return world, outlook(world, id_)


def outlook(world: World, job: str) -> DeadlineOutlook:
    found = world.core.deadline_outlook(job, world.now)
    assert found is not None
    return found


def test_a_job_that_ends_in_time_although_it_waits_first_is_accepted() -> None:
    _, found = due("job", 200.0, lasting=80.0)
    assert (found.verdict, found.likely_end_at, found.latest_end_at) == (DeadlineVerdict.ACCEPT, 180.0, 180.0)


def test_a_job_that_waits_for_too_long_to_end_in_time_is_at_risk() -> None:
    _, found = due("job", 170.0, lasting=80.0)
    assert (found.verdict, found.likely_end_at) == (DeadlineVerdict.AT_RISK, 180.0)


def test_a_job_of_unknown_length_is_at_risk_unless_its_time_limit_ends_it_before() -> None:
    _, found = due("job", 1_000.0)
    assert (found.verdict, found.unknown) == (DeadlineVerdict.AT_RISK, "how long it runs")
    _, bounded = due("job", 1_000.0, limit=300.0)
    assert (bounded.verdict, bounded.latest_end_at) == (DeadlineVerdict.ACCEPT, 400.0)


def test_what_is_foreseen_follows_what_happens() -> None:
    world, _ = due("job", 200.0, lasting=80.0)
    world.go_to(100.0)
    assert outlook(world, "job").likely_end_at == 180.0
    world.tell(SuspendRequested(world.now, "job"))
    world.settle()
    assert outlook(world, "job").verdict is DeadlineVerdict.AT_RISK
    later, _ = due("job", 150.0)
    later.go_to(151.0)
    assert outlook(later, "job").verdict is DeadlineVerdict.MISSED


def test_a_job_without_a_deadline_or_that_has_ended_has_no_outlook() -> None:
    world, _ = due("job", 200.0, lasting=80.0)
    assert world.core.deadline_outlook("first", world.now) is None
    world.go_to(190.0)
    assert world.core.deadline_outlook("job", world.now) is None


def test_with_the_ordering_edf_the_earliest_deadline_goes_first_and_none_last() -> None:
    world = World(machine("a", 1), settings=Settings(ordering="edf"))
    world.submit(single("first"), lasting=10.0)
    world.submit(single("none"), lasting=10.0)
    world.submit(single("late", deadline_s=900.0), lasting=10.0)
    world.submit(single("soon", deadline_s=500.0), lasting=10.0)
    order = []
    for at in (11.0, 21.0, 31.0):
        world.go_to(at)
        order += sorted(world.running())
    assert order == ["soon", "late", "none"]
