"""Descriptions of machines that are kept from look to look are those that would be made anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from api_world import Api

from millpond.model.events import DeviceHealthChanged, NodeJoined
from millpond.model.hardware.devices import DeviceHealth
from millpond.node.task.records import TaskId
from millpond.scheduling.nodes.views import NodeView
from millpond.server.views.hardware.machines import NodeInfos
from millpond.specs.api.jobs.jobs import JobInfo

MARKS = ("", "")


def look(api: Api) -> tuple[Sequence[NodeView], Sequence[JobInfo]]:
    """All machines and jobs, when everything that is under way has been handled."""
    for _ in range(3):
        views = api.loop.query(lambda core: core.scheduler.node_views()).result(60)
    return views, api.loop.job_cache.newest_first()


def join(api: Api, name: str) -> None:
    """A second machine like the first."""
    (first,) = (view.node for view in look(api)[0])
    devices = tuple(replace(device, uuid=f"{name}-{device.index}") for device in first.devices)
    api.loop.notify([NodeJoined(0.0, replace(first, name=name, devices=devices))])


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_from_look_to_look_is_what_would_be_made_anew(api: Api, seed: int) -> None:
    draws, kept = random.Random(seed), NodeInfos()
    join(api, "n2")
    for _ in range(25):
        match draws.randrange(5):
            case 0 | 1:
                api.submit(gpus=draws.choice((0.25, 1, 2)))
            case 2:
                running = [job for job in look(api)[1] if job.state == "running"]
                if running:
                    api.engine.finish(TaskId(draws.choice(running).id, 1, 0))
            case 3:
                act = draws.choice(("close", "open"))
                api.client.post(f"/api/v1/nodes/{draws.choice(('n1', 'n2'))}/{act}", json={})
            case _:
                health = draws.choice((DeviceHealth.OK, DeviceHealth.FAULTY))
                api.loop.notify([DeviceHealthChanged(0.0, "n1", f"n1-{draws.randrange(4)}", health, "")])
        views, jobs = look(api)
        assert kept.of(views, jobs, MARKS) == NodeInfos().of(views, jobs, MARKS)
        for told in api.client.get("/api/v1/nodes").json()["nodes"]:
            alone = api.client.get(f"/api/v1/nodes/{told['name']}").json()
            held = [[(part["job"], part["task"]) for part in device["slices"]] for device in told["devices"]]
            assert alone["node"] == told
            assert [[(part["job"], part["task"]) for part in each["slices"]] for each in alone["devices"]] == held


def test_only_the_machines_that_changed_are_described_anew(api: Api) -> None:
    kept = NodeInfos()
    join(api, "n2")
    before = {info.name: info for info in kept.of(*look(api), MARKS)}
    job = api.job(api.submit(gpus=1).id)
    after = {info.name: info for info in kept.of(*look(api), MARKS)}
    place = job.tasks[0].node
    assert [name for name in after if after[name] is not before[name]] == [place]
    assert [info.unlimited for info in kept.of(*look(api), ("", "it is told"))] == ["it is told"] * 2
