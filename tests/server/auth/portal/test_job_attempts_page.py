"""The attempts of a job on its page: what is shown of them, to whom, in which language, and where they lead."""

from __future__ import annotations

import re

import pytest
from auth_world import API, AuthWorld
from portal_browser import browser_of

from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

CHINESE = {"accept-language": "zh-CN"}


def rows_of(page: str) -> dict[str, str]:
    """The text of each row of the table, by the number of its attempt."""
    found = re.findall(r'<tr id="attempt-(\d+)">(.*?)</tr>', page, re.DOTALL)
    return {number: " ".join(re.sub(r"<[^>]+>", " ", row).split()) for number, row in found}


def test_a_job_that_was_tried_again_shows_each_attempt_and_one_that_was_not_shows_nothing(world: AuthWorld) -> None:
    job = world.submit("max", gpus=1, retries=1)
    world.settled()
    browser = browser_of(world, "max")
    assert "Attempts" not in browser.get(f"/portal/jobs/{job}").text
    world.engine.finish(TaskId(job, 1, 0), Outcome.USER_ERROR, 3)
    world.settled()
    page = browser.get(f"/portal/jobs/{job}").text
    rows = rows_of(page)
    assert list(rows) == ["2", "1"]
    assert " n1 3 task 0 ended (user-error, exit code 3)" in rows["1"]
    assert rows["2"].partition(" n1 ")[2].endswith("running of attempt 2")
    assert 'href="?attempt=1#log"' in page
    assert '<option id="log-attempt-1" selected>1</option>' in browser.get(f"/portal/jobs/{job}?attempt=1").text
    chinese = browser_of(world, "max", **CHINESE).get(f"/portal/jobs/{job}").text
    assert "退出码 3" in rows_of(chinese)["1"]
    assert "exit code" not in rows_of(chinese)["1"]


def test_how_a_job_failed_leads_to_what_it_wrote(world: AuthWorld) -> None:
    job = world.submit("max", gpus=1)
    world.settled()
    browser, leads = browser_of(world, "max"), '· <a href="#log">Output</a></p>'
    assert leads not in browser.get(f"/portal/jobs/{job}").text
    world.engine.finish(TaskId(job, 1, 0), Outcome.USER_ERROR, 3)
    world.settled()
    assert f"it failed with exit code 3 {leads}" in browser.get(f"/portal/jobs/{job}").text


def test_a_preempted_attempt_leads_to_the_job_that_got_the_room_those_alone_who_may_see_it(world: AuthWorld) -> None:
    job = world.submit("max", gpus=4, priority="low")
    world.settled()
    other = world.submit("sam", gpus=4, priority="high")
    world.settled()
    assert world.client("sam").post(f"{API}/jobs/{other}/stop").status_code == 202
    world.settled()
    page = browser_of(world, "max").get(f"/portal/jobs/{job}").text
    assert "preempted" in rows_of(page)["1"]
    assert other not in page
    page = browser_of(world, "olga", **CHINESE).get(f"/portal/jobs/{job}").text
    assert "被抢占" in rows_of(page)["1"]
    assert f"让位于 {other}" in rows_of(page)["1"]
    assert f'href="/portal/jobs/{other}"' in page


@pytest.mark.long
def test_of_very_many_attempts_the_latest_are_shown_and_offered(world: AuthWorld) -> None:
    job = world.submit("max", gpus=1, retries=110)
    for attempt in range(1, 105):
        world.settled()
        world.engine.finish(TaskId(job, attempt, 0), Outcome.USER_ERROR, 3)
    world.settled()
    browser = browser_of(world, "max")
    page = browser.get(f"/portal/jobs/{job}").text
    assert list(rows_of(page)) == [str(number) for number in range(105, 5, -1)]
    assert "5 earlier ones are not shown" in page
    offered = re.findall(r"<option[^>]*>(\d+)</option>", page.partition('id="log-attempt"')[2])
    assert offered[:2] + offered[-1:] == ["6", "7", "105"]
    page = browser.get(f"/portal/jobs/{job}?attempt=2").text
    assert '<option id="log-attempt-2" selected>2</option>' in page
