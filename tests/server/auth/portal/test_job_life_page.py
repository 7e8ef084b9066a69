"""The life of a job on its page: since when it could start, and what it came after."""

from __future__ import annotations

import re

import pytest
from auth_world import API, AuthWorld
from portal_browser import browser_of

from millpond.model.states import Outcome
from millpond.node.task.records import TaskId


def test_the_life_of_a_job_that_comes_after_another_says_when_it_could_first_start_and_behind_what(
    world: AuthWorld,
) -> None:
    first = world.submit("max", gpus=1)
    job = world.submit("max", gpus=1, after={"any": [first]})
    world.settled()
    browser = browser_of(world, "max")

    def told(page: str) -> str:
        return " ".join(re.sub(r"<[^>]+>", " ", page[page.index("Its life") :].partition("First started")[0]).split())

    page = browser.get(f"/portal/jobs/{job}").text
    assert "could not start yet" in told(page)
    assert f"it waits for job {first} to end, which is running now it comes after {first}" in told(page)
    assert "Eligible \N{EN DASH}" in told(page)
    assert world.client("max").get(f"{API}/jobs/{job}").json()["eligible_at"] is None
    world.clock.now += 90
    world.settled()
    world.engine.finish(TaskId(first, 1, 0), Outcome.USER_ERROR, 3)
    world.settled()
    page = browser.get(f"/portal/jobs/{job}").text
    assert f'href="/portal/jobs/{first}"' in page[page.index("Its life") :]
    assert "Eligible \N{EN DASH}" not in told(page)
    assert re.search("could not start yet (90 s|1 min|2 min)", told(page)), told(page)
    told_of = world.client("max").get(f"{API}/jobs/{job}").json()
    assert told_of["eligible_at"] - told_of["submitted_at"] == pytest.approx(90, abs=1)
    assert told_of["first_started_at"] >= told_of["eligible_at"]
    chinese = browser_of(world, "max", **{"accept-language": "zh-CN"}).get(f"/portal/jobs/{job}").text
    assert "尚不能启动" in chinese


def test_what_is_in_the_way_of_a_job_is_led_to(world: AuthWorld) -> None:
    root, browser = world.client("olga"), browser_of(world, "max")
    first = world.submit("max", gpus=1, priority="critical")
    after = world.submit("max", gpus=1, after={"any": [first]})
    assert root.patch(f"{API}/queues/vision", json={"fields": {"limit": {"gpus": 1}}}).status_code == 200
    world.settled()
    beyond = world.submit("max", gpus=1)
    world.settled()
    assert root.post(f"{API}/nodes/n1/close", json={"reason": "moving"}).status_code == 200
    without_node = world.submit("sam", gpus=1)
    world.settled()

    def way(job: str, user: str = "max") -> str:
        page = (browser if user == "max" else browser_of(world, user)).get(f"/portal/jobs/{job}").text
        return "".join(re.findall(r'In the way: <a href="([^"]+)"', page))

    assert way(after) == f"/portal/jobs/{first}"
    assert way(beyond) == "/portal/queues/vision"
    assert way(without_node, "sam") == "/portal/nodes/n1"
