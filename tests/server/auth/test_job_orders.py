"""Lists of the jobs that have not ended in another order than that of their submission, page by page."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of
from portal_browser import browser_of
from server_world import Clock

from job_infos import job_info
from millpond.server.jobs.listing import ActiveOrders
from millpond.specs.api.jobs.jobs import JobInfo

SEES = re.compile(r'<tr id="job-([^"]+)"')


def listed(world: AuthWorld, query: str, user: str = "max") -> list[str]:
    """The names of jobs in their order."""
    found = world.client(user).get(f"{API}/jobs?{query}").json()["jobs"]
    return [job["name"] for job in found]


def fill(world: AuthWorld) -> dict[str, str]:
    """One job that runs on all cards, and others that wait; their ids by name."""
    ids = {"runs": world.submit("max", name="runs", gpus=4, priority="critical")}
    world.settled()
    for name, gpus, priority in (("low", 3, "low"), ("first", 1, "normal"), ("next", 4, "normal"), ("high", 2, "high")):
        world.clock.now += 1
        ids[name] = world.submit("max", name=name, gpus=gpus, priority=priority)
    ids["after"] = world.submit("max", name="after", gpus=1, after=[ids["runs"]])
    world.settled()
    return ids


def test_those_that_wait_are_listed_as_they_come_next_and_those_outside_the_line_behind(world: AuthWorld) -> None:
    ids = fill(world)
    line = listed(world, "order=line")
    assert line == ["high", "first", "next", "low", "after"]
    assert listed(world, "order=line&state=running") == []
    assert listed(world, "order=line&limit=2") == line[:2]
    assert listed(world, f"order=line&limit=2&behind={ids['first']}") == line[2:4]
    assert listed(world, f"order=line&behind={ids['runs']}") == line, "it has left the line, and stood before all"
    assert listed(world, "order=line", user="sam") == []


def test_jobs_are_listed_by_cards_and_by_priority(world: AuthWorld) -> None:
    ids = fill(world)
    cards = listed(world, "order=cards")
    assert cards == ["next", "runs", "low", "high", "after", "first"]
    assert listed(world, f"order=cards&behind={ids['low']}") == cards[3:]
    assert listed(world, "order=priority") == ["runs", "high", "first", "next", "after", "low"]


def test_a_queue_shows_who_holds_most_and_who_comes_next_and_other_pages_lead_to_the_line(world: AuthWorld) -> None:
    ids = fill(world)
    browser = browser_of(world, "max")
    queue = browser.get("/portal/queues/vision").text
    assert re.findall(r'<tr id="held-([^"]+)"', queue) == [ids["runs"]]
    waits = [ids[name] for name in ("high", "first", "next", "low", "after")]
    assert re.findall(r'<tr id="waits-([^"]+)"', queue) == waits
    assert '<a href="/portal/jobs?order=line">number 2 in line</a>' in browser.get(f"/portal/jobs/{ids['first']}").text
    assert '<a href="/portal/jobs?order=line">Starts next</a>' in browser.get("/portal/").text
    assert SEES.findall(browser.get("/portal/jobs?order=line").text) == waits


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("ended", ["", "&all=true"])
def test_jobs_of_one_instant_are_listed_each_once_page_by_page(world: AuthWorld, order: str, ended: str) -> None:
    ids = [world.submit("max", name="many", gpus=4) for _ in range(12)]
    world.settled()
    for job in ids[::5]:
        world.client("max").post(f"{API}/jobs/{job}/stop")
    world.settled()
    ask, shown = world.client("max"), list[str]()
    for _ in ids:
        behind = f"&behind={shown[-1]}" if shown else ""
        page = ask.get(f"{API}/jobs?order={order}&limit=2{ended}{behind}").json()
        shown += [job["id"] for job in page["jobs"]]
        if not page["truncated"]:
            break
    living = [job for job in ids if job not in ids[::5]]
    assert shown == sorted(ids if ended else living, reverse=order == "oldest")


@pytest.mark.long
def test_a_page_goes_on_behind_its_last_job_in_the_order_that_it_has(world: AuthWorld) -> None:
    for number in range(102):
        world.submit("max", name="many", gpus=1 + number % 3)
    world.settled()
    browser = browser_of(world, "max")
    first = browser.get("/portal/jobs?order=cards").text
    onwards = re.search(r'href="([^"]+)" rel="next">Next jobs', first)
    assert onwards is not None
    second = browser.get(onwards[1].replace("&amp;", "&")).text
    everything = world.client("max").get(f"{API}/jobs?order=cards").json()["jobs"]
    assert SEES.findall(first) + SEES.findall(second) == [job["id"] for job in everything]
    assert "To the first" in second


def test_those_that_have_ended_have_no_such_order(world: AuthWorld) -> None:
    fill(world)
    for query in ("all=true", "state=failed"):
        refused = world.client("max").get(f"{API}/jobs?order=cards&{query}")
        assert (refused.status_code, error_of(refused).cause) == (422, "jobs that have ended have no order by cards")
    page = browser_of(world, "max").get("/portal/jobs?order=cards&all=true").text
    assert "in the order of their submission alone" in page
    newest = world.client("max").get(f"{API}/jobs?all=true").json()["jobs"]
    assert SEES.findall(page) == [job["id"] for job in newest]
    matching = re.search(r'data-matching="([^"]+)"', page)
    assert matching is not None
    assert world.client("max").get(matching[1].replace("&amp;", "&")).status_code == 200


def test_a_line_that_took_long_to_find_is_used_for_a_while() -> None:
    clock, looks = Clock(0.0), list[float]()

    async def ask(question: Any, *, is_long: bool) -> Any:
        looks.append(clock.now)
        clock.now += 0.5
        return question(SimpleNamespace(now=0.0, scheduler=SimpleNamespace(first_in_line=lambda most, now: ["b", "a"])))

    async def both() -> None:
        orders = ActiveOrders(SimpleNamespace(ask=ask), clock)  # type: ignore[arg-type]
        await asyncio.gather(orders.place_by("line"), orders.place_by("line"))
        assert looks == [0.0], "who asks meanwhile waits for the same look"
        clock.now = 9.0
        place = await orders.place_by("line")
        infos = [_waiting(name) for name in ("c", "a", "b")]
        assert [info.id for info in sorted(infos, key=place)] == ["b", "a", "c"]
        clock.now = 11.0
        await orders.place_by("line")

    asyncio.run(both())
    assert looks == [0.0, 11.0]


def _waiting(name: str) -> JobInfo:
    return job_info(id=name, name=name, state="queued", attempt=0)
