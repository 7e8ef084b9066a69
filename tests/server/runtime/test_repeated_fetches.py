"""A server that begins anew asks its engine again for what is fetched ahead of a start, as long as that is wanted."""

from __future__ import annotations

from millpond.model.contents import Content
from millpond.model.decisions import Decision, Prefetch
from millpond.model.events import (
    Confirmed,
    DurationPredicted,
    JobSubmitted,
    NodeContents,
    NodeJoined,
    StopRequested,
    Tick,
)
from millpond.model.hardware.nodes import Node
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.server.runtime.core import Core
from millpond.server.runtime.recovery import to_repeat

NODE = Node("n1", 4_000, 4_096)
WHOLE_NODE = (Role.rigid(TaskRequest(4_000, 1), 1),)


def fetching_core() -> tuple[Core, Decision]:
    core = Core(Scheduler())
    for event in (
        NodeJoined(0.0, NODE),
        NodeContents(0.0, "n1", (), 10),
        JobSubmitted(0.0, Job("first", WHOLE_NODE)),
        DurationPredicted(0.0, "first", 600.0, 600.0),
    ):
        core.handle(event)
    (start,) = core.decide(Tick(0.0))
    core.handle(Confirmed(0.0, start.id))
    core.handle(JobSubmitted(1.0, Job("second", WHOLE_NODE, contents=(Content("image:x", 4_000),))))
    (fetch,) = core.decide(Tick(1.0))
    assert isinstance(fetch, Prefetch)
    return core, fetch


def test_a_fetch_that_is_not_answered_is_asked_for_again() -> None:
    core, fetch = fetching_core()
    assert to_repeat(core, [NODE]) == [fetch]
    core.handle(Confirmed(2.0, fetch.id))
    assert to_repeat(core, [NODE]) == []


def test_of_a_fetch_that_was_given_up_its_end_alone_is_asked_for_again() -> None:
    core, _ = fetching_core()
    core.handle(StopRequested(2.0, "second"))
    decided = core.decide(Tick(2.0))
    assert to_repeat(core, [NODE]) == [each for each in decided if isinstance(each, Prefetch)]
    assert len(to_repeat(core, [NODE])) == 1
