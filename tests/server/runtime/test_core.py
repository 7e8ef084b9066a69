"""Which jobs an event may have changed, so that their views are made anew: those on the node that it is about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from server_world import node

from millpond.model import events
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import CLUSTER_LABEL, Node
from millpond.model.resources import TaskRequest
from millpond.model.states import JobState
from millpond.model.workloads import Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.server.runtime.core import Core

ONE, OTHER = node("n1"), node("n2")


@pytest.fixture
def core() -> Core:
    """A job on each of two nodes."""
    core = Core(Scheduler())
    core.handle(events.NodeJoined(0.0, ONE))
    for name, joins in (("a", OTHER), ("b", None)):
        core.handle(events.JobSubmitted(1.0, Job(name, (Role.rigid(TaskRequest(1000, 1000, 4), 1),))))
        (decision,) = core.decide(events.Tick(1.0))
        core.handle(events.Confirmed(2.0, decision.id))
        if joins is not None:
            core.handle(events.NodeJoined(3.0, joins))
    assert [core.scheduler.jobs[name].state for name in "ab"] == [JobState.RUNNING] * 2
    return core


def failing(machine: Node) -> Node:
    first, *rest = machine.devices
    return replace(machine, devices=(replace(first, health=DeviceHealth.FAULTY), *rest))


def test_a_node_whose_cards_are_as_they_were_changes_no_job(core: Core) -> None:
    changed = replace(OTHER, cpu_milli=OTHER.cpu_milli - 1000, labels=(("zone", "z"),))
    assert core.handle(events.NodeJoined(4.0, changed)) == set()


def test_a_node_whose_cards_are_others_or_that_is_lost_changes_the_jobs_that_lie_there(core: Core) -> None:
    assert core.handle(events.NodeJoined(4.0, failing(OTHER))) == {"b"}
    assert core.handle(events.NodeJoined(5.0, node("n3"))) == set()
    assert core.handle(events.NodeLost(6.0, "n1")) == {"a"}


def test_a_node_is_of_the_cluster_that_it_says_last(core: Core) -> None:
    core.handle(events.NodeJoined(4.0, replace(OTHER, labels=((CLUSTER_LABEL, "east"),))))
    assert core.clusters == {"n1": "", "n2": "east"}
    core.handle(events.NodeJoined(5.0, OTHER))
    assert core.clusters == {"n1": "", "n2": ""}
