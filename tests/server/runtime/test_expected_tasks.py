"""Which tasks an engine is told to keep as a server begins anew; all others that it finds are ended."""

from __future__ import annotations

from dataclasses import replace

from millpond.model.events import JobSubmitted, NodeJoined, Tick
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.node.task.records import TaskId
from millpond.scheduling.scheduler import Scheduler
from millpond.server.runtime.core import Core
from millpond.server.runtime.recovery import expected_tasks

CARDS = tuple(Device(f"card-{index}", index, "nvidia", "V100", 32_768) for index in range(3))
NODE = Node("n1", 4_000, 4_096, CARDS)


def test_tasks_are_expected_where_their_node_and_all_their_cards_are_still_there() -> None:
    core = Core(Scheduler())
    core.handle(NodeJoined(0.0, NODE))
    for name, cards in (("one", 1), ("two", 2)):
        core.handle(JobSubmitted(0.0, Job(name, (Role.rigid(TaskRequest(1_000, 1, cards), 1),))))
    core.decide(Tick(0.0))
    one, two = TaskId("one", 1, 0), TaskId("two", 1, 0)
    assert expected_tasks(core, [NODE]) == {one: "n1", two: "n1"}
    (placed,) = (task.placement for task in core.scheduler.jobs["one"].tasks)
    assert placed is not None
    held = {grant.device for grant in placed.grants}
    left = tuple(card for card in CARDS if card.uuid in held)
    assert expected_tasks(core, [replace(NODE, devices=left)]) == {one: "n1"}
    assert expected_tasks(core, [replace(NODE, name="n2")]) == {}
