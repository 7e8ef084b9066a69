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
