"""Queues that come and go while jobs run: what is used stays, and nothing is left of what is removed."""

from __future__ import annotations

import pytest
from worlds import World, machine, queue, restarted, single

from millpond.model.errors import MillpondError
from millpond.model.events import LimitChanged, QueueChanged, QueueRemoved
from millpond.model.tenancy.tenants import Limit

HALVES = (queue("vision", guarantee=6), queue("speech", guarantee=10))
GROUP = (
    queue("org", guarantee=12),
    queue("vision", guarantee=4, parent="org"),
    queue("speech", guarantee=4, parent="org"),
)


def test_a_queue_that_nothing_uses_is_removed_with_its_limit() -> None:
    world = World(machine("n", 4), queues=HALVES)
    world.tell(LimitChanged(0.0, Limit("", "vision", 1)))
    world.tell(QueueRemoved(0.0, "vision"))
    assert not world.core.has_queue("vision")
    assert world.core.limit_of("", "vision").jobs is None
    with pytest.raises(MillpondError, match="takes no jobs"):
        world.submit(single("a", queue="vision"))
    world.tell(QueueChanged(0.0, HALVES[0]))
    assert world.submit(single("a", queue="vision"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "no queue 'nowhere'"),
        ("root", "always there"),
        ("default", "always there"),
        ("org", "queues below it .vision, speech."),
        ("vision", "has a job that has not ended"),
        ("speech", "has 2 jobs that have not ended"),
    ],
)
def test_a_queue_that_is_used_stays_and_nothing_changes(name: str, why: str) -> None:
    world = World(machine("n", 4), queues=GROUP)
    world.submit(single("a", 4, queue="vision"), single("b", 4, queue="speech"), single("c", queue="speech"))
    before = world.core.snapshot()
    with pytest.raises(MillpondError, match=why):
        world.tell(QueueRemoved(0.0, name))
    assert world.core.snapshot() == before


def test_a_queue_whose_jobs_have_ended_can_be_removed() -> None:
    world = World(machine("n", 4), queues=GROUP)
    world.submit(single("a", queue="vision"), lasting=10.0)
    world.go_to(20.0)
    world.tell(QueueRemoved(world.now, "vision"))
    world.tell(QueueRemoved(world.now, "speech"))
    assert world.core.takes_jobs("org")
    assert world.core.explain("a", world.now).summary == "it has ended: succeeded"
    assert world.core.fork().snapshot() == world.core.snapshot()


def test_a_queue_with_jobs_gets_no_queue_below_it() -> None:
    world = World(machine("n", 4), queues=HALVES)
    world.submit(single("a", queue="vision"))
    with pytest.raises(MillpondError, match="takes none"):
        world.tell(QueueChanged(0.0, queue("max", parent="vision")))
    world.end("a")
    world.tell(QueueChanged(0.0, queue("max", parent="vision")))
    assert world.submit(single("b", queue="max"))


def test_a_copy_goes_on_without_the_removed_queue() -> None:
    world = World(machine("n", 4), queues=GROUP)
    world.tell(QueueRemoved(0.0, "vision"))
    for twin in (world.core.fork(), restarted(world.core)):
        assert not twin.has_queue("vision")
        assert twin.snapshot() == world.core.snapshot()


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("lab", "queue 'lab' takes no jobs: the queues below it do", "use one of: lab-a, lab-b"),
        ("nowhere", "no queue 'nowhere'", "use one of: default, lab-a, lab-b, other"),
    ],
)
def test_a_job_is_told_which_queues_take_it(name: str, what: str, remedy: str) -> None:
    below = [queue(f"lab-{each}", parent="lab") for each in "ab"]
    refusal = World(machine("n", 1), queues=[queue("lab"), *below, queue("other")]).core.check(single("j", queue=name))
    assert refusal is not None
    assert refusal.remedy is not None
    assert (refusal.summary, refusal.remedy.change) == (what, remedy)
