"""A server has idle cards divided for jobs that wait: what users see of it, and what a later server finishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from api_world import Api

from millpond.model.events import CardLayoutChanged, NodeJoined
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutChange, LayoutChangeState
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.scheduling.nodes.layout_planner import in_layout
from millpond.server.operations.card_layouts import CardLayoutWorker, is_under_way

HALVES = CardLayout(("3g.40gb",) * 2, (Device("", 0, "nvidia", "A100-MIG-3g.40gb", 40_000),) * 2)


class Divided:
    """A worker, and an engine that divides the only card as the test says."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.trouble = ""
        self.is_killed = False
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.worker = CardLayoutWorker(api.loop, self.divide, api.clock)
        node = self.node
        cards = (replace(node.devices[0], health=DeviceHealth.BUSY_ELSEWHERE),)
        may = (DivisibleCard(cards[0].uuid, (HALVES,)),)
        api.loop.notify([NodeJoined(api.clock.now, replace(node, devices=cards, divisible=may))])

    @property
    def node(self) -> Node:
        (view,) = self.api.loop.query(lambda core: core.scheduler.node_views()).result(60)
        found: Node = view.node
        return found

    def divide(self, card: str, change: LayoutChange) -> None:
        self.asked.append((card, change.layout))
        if self.is_killed:
            return
        now, state = self.api.clock.now, LayoutChangeState.FAILED if self.trouble else LayoutChangeState.DONE
        if not self.trouble:
            self.api.loop.notify([NodeJoined(now, in_layout(self.node, (card,), HALVES))])
        self.api.loop.notify(
            [CardLayoutChanged(now, change.node, card, state, change.layout, change.for_job, self.trouble)]
        )

    def look(self, after_s: float) -> None:
        self.api.clock.now += after_s
        self.worker.look()

    def told(self) -> list[str]:
        events = self.api.client.get("/api/v1/nodes/n1/events").json()["events"]
        return [event["text"] for event in events if event["what"] == "CardLayoutChanged"]


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[Divided]:
    api = Api(tmp_path / "state")
    made = Divided(api)
    yield made
    made.worker.close()
    api.close()


def test_a_job_that_waits_has_a_card_divided_and_the_history_of_its_node_says_for_whom(divided: Divided) -> None:
    job = divided.api.submit(gpus=1)
    divided.look(1.0)
    assert divided.asked == []
    divided.look(10.0)
    assert divided.asked == [(divided.node.devices[0].card, HALVES.instances)]
    assert divided.api.job(job.id).state == "running"
    card = divided.node.devices[0].card
    assert divided.told() == [
        f"card {card} is being divided into 2 x 3g.40gb, which {job.id} waits for",
        f"card {card} has been divided into 2 x 3g.40gb",
    ]
    divided.look(5.0)
    assert len(divided.asked) == 1


def test_a_card_that_could_not_be_divided_is_let_be_for_a_while(divided: Divided) -> None:
    divided.trouble = "the driver refuses (Insufficient Permissions); run the server as root"
    job = divided.api.submit(gpus=1)
    divided.look(20.0)
    divided.look(20.0)
    assert len(divided.asked) == 1
    assert divided.told()[-1].endswith(f"could not be divided into 2 x 3g.40gb: {divided.trouble}")
    assert divided.api.job(job.id).state == "queued"
    divided.trouble = ""
    divided.look(600.0)
    assert divided.api.job(job.id).state == "running"


def test_what_a_server_that_was_killed_has_begun_is_finished_by_the_next(divided: Divided) -> None:
    divided.is_killed = True
    job = divided.api.submit(gpus=1)
    assert not is_under_way(divided.api.loop)
    divided.look(20.0)
    assert is_under_way(divided.api.loop)  # which a server looks after, whatever its configuration says by then
    why = divided.api.client.get(f"/api/v1/jobs/{job.id}/why").json()
    assert (why["cause"], why["summary"]) == (
        "card-being-divided",
        "it waits for card 0 of n1 to be divided into 2 x 3g.40gb",
    )
    divided.is_killed = False
    divided.look(1.0)
    assert divided.asked == divided.asked[:1] * 2
    assert not is_under_way(divided.api.loop)
    assert divided.api.job(job.id).state == "running"
