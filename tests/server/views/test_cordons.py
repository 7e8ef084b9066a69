"""Closing and opening machines through the API, over restarts, and what those who wait are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api, error_of
from server_world import Clock, Server, World
from sqlalchemy.exc import OperationalError

from millpond.model.events import NodeClosed
from millpond.model.hardware.nodes import Cordon
from millpond.server.wording import local_time
from millpond.specs.api.codec import from_json
from millpond.specs.api.pool.nodes import NodeInfo

NODE = "/api/v1/nodes/n1"


def told(api: Api, act: str, **wish: Any) -> NodeInfo:
    answer = api.client.post(f"{NODE}/{act}", json=wish)
    assert answer.status_code == 200, answer.text
    return from_json(NodeInfo, answer.content)


def test_a_closed_machine_takes_no_job_until_it_is_opened(api: Api) -> None:
    closed = told(api, "close", reason="new disks", until=9_000.0)
    assert not closed.schedulable
    assert closed.closure is not None
    assert (closed.closure.reason, closed.closure.until, closed.closure.by) == ("new disks", 9_000.0, "ada")
    job = api.submit(gpus=1)
    assert api.job(job.id).reason == (
        f"it would fit on n1, which is closed (new disks); open again {local_time(9_000.0)}"
    )
    why = api.client.get(f"{JOBS}/{job.id}/why").json()
    assert (why["cause"], why["opens_at"], why["nodes"]) == ("nodes-closed", 9_000.0, {"closed": 1})
    assert told(api, "open").schedulable
    assert api.job(job.id).state == "running"


def test_a_drained_machine_shows_what_it_still_waits_for(api: Api) -> None:
    leaves = api.submit(gpus=1)
    stays = api.submit(gpus=1, preemptible=False)
    assert {api.job(job.id).state for job in (leaves, stays)} == {"running"}
    told(api, "close", drain=True, reason="smoke")
    assert api.job(leaves.id).state == "queued"
    (node,) = api.client.get("/api/v1/nodes").json()["nodes"]
    assert (node["draining"], node["jobs"]) == (True, [stays.id])
    history = [item["text"] for item in api.client.get(f"{JOBS}/{leaves.id}/events").json()["events"]]
    assert "end all tasks within 30s (drained)" in history
    assert api.job(leaves.id).preemptions == 0


def test_a_planned_closing_is_shown_and_can_be_given_up(api: Api) -> None:
    now = api.clock.now
    planned = told(api, "close", begin=now + 100, until=now + 500, reason="new disks")
    assert planned.schedulable
    assert [(each.begin, each.until, each.drain) for each in planned.planned] == [(now + 100, now + 500, True)]
    job = api.submit(gpus=1, preemptible=False, time_limit="1h")
    assert api.job(job.id).reason.startswith("it would fit on n1, which closes too soon for it (new disks); open again")
    assert error_of(api.client.post(f"{NODE}/open", json={})).remedy == (
        "give up what is planned with `pond nodes uncordon --planned`"
    )
    assert told(api, "open", planned=True).planned == []
    assert api.job(job.id).state == "running"


def test_a_closed_card_takes_no_job_until_it_is_opened(api: Api) -> None:
    cards = len(api.client.get("/api/v1/nodes").json()["nodes"][0]["devices"])
    info = told(api, "close", card=0, reason="a fan is loud")
    assert info.schedulable
    closure = info.devices[0].closure
    assert closure is not None
    assert (closure.reason, closure.by) == ("a fan is loud", "ada")
    assert all(device.closure is None for device in info.devices[1:])
    job = api.submit(gpus=cards)
    assert api.job(job.id).reason == (
        "it would fit with card 0 of n1, which is closed by ada (a fan is loud); open again when uncordoned"
    )
    said = api.client.get("/api/v1/nodes/n1/events").json()["events"][-1]
    assert said["text"].endswith("closed by ada: a fan is loud")
    assert told(api, "open", card=0).devices[0].closure is None
    assert api.job(job.id).state == "running"
    (change, _) = [each for each in api.client.get("/api/v1/audit").json()["entries"] if each["object"] == "n1/0"]
    assert change["after"] == "opened"


@pytest.mark.parametrize(
    ("path", "wish", "status"),
    [
        ("nodes/n1/close", {"card": 99}, 404),
        ("nodes/n1/close", {"card": -1}, 422),
        ("nodes/n1/close", {"card": 0, "until": 1e9}, 422),
        ("nodes/n1/close", {"card": 0, "begin": 5_000.0, "until": 6_000.0}, 422),
        ("nodes/n7/close", {"card": 0}, 404),
        ("nodes/n1/open", {"card": 0}, 409),
        ("nodes/n1/close", {"until": 1.0}, 422),
        ("nodes/n1/close", {"begin": 5_000.0, "until": 4_000.0}, 422),
        ("nodes/n1/close", {"until": "tomorrow"}, 422),
        ("nodes/n1/close", {"reason": "two\nlines"}, 422),
        ("nodes/n1/close", {"reason": "x" * 201}, 422),
        ("nodes/n7/close", {}, 404),
        ("nodes/n7/open", {}, 404),
        ("nodes/n1/open", {}, 409),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_cause(api: Api, path: str, wish: dict[str, Any], status: int) -> None:
    answer = api.client.post(f"/api/v1/{path}", json=wish)
    assert answer.status_code == status
    assert error_of(answer).cause
    (node,) = api.client.get("/api/v1/nodes").json()["nodes"]
    assert node["schedulable"]


def test_a_machine_stays_closed_when_the_server_is_killed(tmp_path: Path) -> None:
    clock, world = Clock(), World()
    first = Server(tmp_path, world, clock)
    first.loop.change_setting(_closing(until=5_000.0))
    first.turn()
    second = Server(tmp_path, world, clock)
    second.submit("j", gpus=1)
    second.turn(3)
    assert world.running == []
    clock.now = 5_000.0
    second.turn(2)
    assert [task.job for task in world.running] == ["j"]


def test_who_is_answered_sees_that_something_has_changed(server: Server) -> None:
    before = server.loop.seq
    seen: list[int] = []
    server.loop.change_setting(_closing()).add_done_callback(lambda _: seen.append(server.loop.seq))
    server.turn()
    assert seen
    assert seen[0] > before


def test_who_closes_a_machine_while_the_store_cannot_be_written_is_told(tmp_path: Path) -> None:
    server = Server(tmp_path, World(), Clock())
    server.store.trip = _full
    answer = server.loop.change_setting(_closing())
    server.turn()
    assert "cannot be read or written" in str(answer.exception(0))
    assert server.core.scheduler.node_views()[0].closure is None


def _closing(until: float | None = None) -> Callable[[float], NodeClosed]:
    return lambda now: NodeClosed(now, "n1", Cordon(now, until))


def _full(where: str) -> None:
    if where == "before append":
        raise OperationalError("insert", {}, OSError("disk full"))


def test_what_was_refused_is_told_by_no_history(api: Api) -> None:
    for node, act, status in (("n1", "open", 409), ("never-was", "close", 404)):
        answer = api.client.post(f"/api/v1/nodes/{node}/{act}", json={})
        assert answer.status_code == status, answer.text
    told(api, "close")
    for where in ("/api/v1/events", f"{NODE}/events", "/api/v1/nodes/never-was/events"):
        happened = [item["text"] for item in api.client.get(where).json()["events"]]
        assert not any("opened by" in text for text in happened)
        assert sum("closed by" in text for text in happened) == ("never-was" not in where)
