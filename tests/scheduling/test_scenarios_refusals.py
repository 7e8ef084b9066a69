"""What cannot be: events that contradict the state raise and change nothing; reports about nothing are ignored."""

from __future__ import annotations

import pytest
from worlds import World, asks, gang, machine, single

from ledgers import check_everything
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.model.events import (
    Confirmed,
    DesiredCountChanged,
    Ended,
    Event,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Refused,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.states import Outcome

NINE = tuple((f"extra-{number}", 1) for number in range(9))
WRONG: list[tuple[str, Event, type[MillpondError]]] = [
    ("a job id that is taken", JobSubmitted(5.0, single("runs")), ConflictError),
    ("a job id that an ended job had", JobSubmitted(5.0, single("over")), ConflictError),
    ("a queue that is not there", JobSubmitted(5.0, single("new", queue="nowhere")), InvalidInputError),
    ("a queue that has queues below it", JobSubmitted(5.0, single("new", queue="root")), InvalidInputError),
    (
        "more extra resources than a cluster has",
        JobSubmitted(5.0, gang("new", 1, asks(1, extras=NINE))),
        InvalidInputError,
    ),
    ("a new node with as many", NodeJoined(5.0, machine("m", 1, extras=NINE)), InvalidInputError),
    ("a known node with as many", NodeJoined(5.0, machine("n", 1, cpu_milli=1, extras=NINE)), InvalidInputError),
    ("other cards with as many", NodeJoined(5.0, machine("n", 2, extras=NINE)), InvalidInputError),
    ("stopping an unknown job", StopRequested(5.0, "nobody"), NotFoundError),
    ("suspending an unknown job", SuspendRequested(5.0, "nobody"), NotFoundError),
    ("suspending a job that waits", SuspendRequested(5.0, "waits"), ConflictError),
    ("resuming an unknown job", ResumeRequested(5.0, "nobody"), NotFoundError),
    ("resuming a job that runs", ResumeRequested(5.0, "runs"), ConflictError),
    ("resizing an unknown job", DesiredCountChanged(5.0, "nobody", "worker", 2), NotFoundError),
    ("resizing a job that has ended", DesiredCountChanged(5.0, "over", "worker", 2), NotFoundError),
]


@pytest.mark.parametrize(("what", "event", "error"), WRONG, ids=[what.replace(" ", "-") for what, _, _ in WRONG])
def test_what_cannot_be_is_refused_and_changes_nothing(what: str, event: Event, error: type[MillpondError]) -> None:
    world = World(machine("n", 1))
    world.submit(single("over"))
    world.end("over")
    world.submit(single("runs"), single("waits"))
    world.go_to(5.0)
    before = world.core.snapshot()
    with pytest.raises(error) as caught:
        world.core.handle(event)
    assert caught.value.cause
    assert world.core.snapshot() == before
    check_everything(world.core)


IGNORED: list[tuple[str, Event]] = [
    ("an unknown job ends", Ended(5.0, "nobody", 1, Outcome.SUCCESS)),
    ("an unknown decision is confirmed", Confirmed(5.0, 999)),
    ("an unknown decision is refused", Refused(5.0, 999, "no")),
    ("an unknown node is lost", NodeLost(5.0, "nowhere")),
    ("a task ends that the job does not have", Ended(5.0, "runs", 1, Outcome.SUCCESS, 7)),
]


@pytest.mark.parametrize(("what", "event"), IGNORED, ids=[what.replace(" ", "-") for what, _ in IGNORED])
def test_reports_about_what_is_not_there_are_ignored(what: str, event: Event) -> None:
    world = World(machine("n", 1))
    world.submit(single("runs"))
    world.go_to(5.0)
    before = world.core.snapshot()
    world.core.handle(event)
    assert world.core.snapshot() == before
