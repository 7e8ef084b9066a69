"""The page of notebooks and editors: what it starts, for whom, and what it offers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from auth_world import API, AuthWorld
from fastapi.testclient import TestClient
from httpx2 import Response
from portal_browser import HOSTILE, browser_of, csrf_in
from server_world import node

from millpond.model.events import NodeJoined


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server's machine has ``jupyter-lab`` and no other program of a template."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jupyter-lab").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "jupyter-lab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")


def started(browser: TestClient, **wanted: str) -> Response:
    csrf = csrf_in(browser.get("/portal/sessions").text)
    return browser.post("/portal/sessions", json=wanted, headers={"X-CSRF-Token": csrf, "sec-fetch-mode": "cors"})


def test_a_notebook_on_a_quarter_card_is_one_request(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    answer = started(browser, template="jupyterlab", gpus="0.25", time_limit="8h")
    assert answer.status_code == 201
    job = answer.json()["id"]
    world.settled()
    info = world.client("max").get(f"{API}/jobs/{job}").json()
    assert (info["kind"], info["gpus"], info["state"]) == ("dev", "0.25", "running")
    document = world.client("max").get(f"{API}/jobs/{job}/document").json()
    assert document["workdir"] == str(Path.home())
    assert document["serve"] == {"path": "whole", "ready": "/api"}
    page = browser.get("/portal/sessions").text
    for part in (f'data-open="/api/v1/jobs/{job}/link"', f"/api/v1/jobs/{job}/suspend?swap=true", "/extend", "ends"):
        assert part in page
    assert f'data-open="/api/v1/jobs/{job}/link"' in browser.get(f"/portal/jobs/{job}").text


def test_where_there_are_several_pools_a_session_is_started_in_one_of_them(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    assert 'name="pool"' not in browser.get("/portal/sessions").text, "there is one, and every job is in it"
    world.loop.notify([NodeJoined(world.clock.now, replace(node("big-1"), pool="big"))])
    world.settled()
    page = browser.get("/portal/sessions").text
    offered = re.findall(r'<option value="(\w+)">', page.partition('name="pool"')[2].partition("</select>")[0])
    assert offered == ["default", "big"]
    job = started(browser, template="jupyterlab", gpus="1", pool="big").json()["id"]
    world.settled()
    info = world.client("max").get(f"{API}/jobs/{job}").json()
    assert (info["pool"], [task["node"] for task in info["tasks"]]) == ("big", ["big-1"])


def test_what_a_template_needs_is_made_first_where_it_is_missing(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    browser = browser_of(world, "max")
    assert "Its first start installs what it needs" in browser.get("/portal/sessions").text
    session = started(browser, template="jupyterlab", time_limit="9h").json()
    world.settled()
    jobs = {each["name"]: each for each in world.client("max").get(f"{API}/jobs").json()["jobs"]}
    assert jobs["jupyterlab-environment"]["state"] == "running"
    assert jobs["jupyterlab"]["id"] == session["id"]
    assert jobs["jupyterlab"]["state"] == "queued"
    page = browser.get("/portal/sessions").text
    assert jobs["jupyterlab-environment"]["id"] in page, "it says for what it waits"
    assert "9.0 h" in page


def test_what_cannot_be_started_says_why_and_what_to_do(shared: AuthWorld) -> None:
    browser = browser_of(shared, "max")
    page = browser.get("/portal/sessions").text
    assert "see https://coder.com/docs/code-server/install" in page
    assert 'data-start="code-server"' not in page
    assert 'More settings<span class="unseen"> code-server</span>' in page, "by which those know it who hear it"
    error = started(browser, template="code-server").json()["error"]
    assert error["cause"] == "code-server needs code-server, which is not on the server's machine"
    assert "coder.com" in error["remedy"]
    assert started(browser, template=HOSTILE).status_code == 404
    assert started(browser, template="../../etc/passwd").status_code == 404
    for wrong in ({"gpus": "1.5"}, {"time_limit": HOSTILE}, {"folder": "relative/\x00"}):
        assert started(browser, template="jupyterlab", **wrong).status_code == 422, wrong


def test_everybody_sees_their_own_sessions_and_starts_what_they_may(world: AuthWorld) -> None:
    job = started(browser_of(world, "max"), template="jupyterlab").json()["id"]
    world.settled()
    for user in ("mia", "lea", "olga", "vic"):
        assert job not in browser_of(world, user).get("/portal/sessions").text, user
    assert "data-open" not in browser_of(world, "mia").get(f"/portal/jobs/{job}").text
    watcher = browser_of(world, "vic")
    assert "data-start" not in watcher.get("/portal/sessions").text
    assert started(watcher, template="jupyterlab").status_code == 403


def test_a_limit_that_was_extended_and_a_session_that_rests_say_so(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    job = started(browser, template="jupyterlab", time_limit="1h").json()["id"]
    world.settled()
    world.clock.now += 600
    assert world.client("max").post(f"{API}/jobs/{job}/extend", json={"by_s": 3600}).status_code == 202
    assert world.client("max").post(f"{API}/jobs/{job}/suspend").status_code == 202
    world.settled()
    page = browser.get("/portal/sessions").text
    assert "1.8 h" in page
    on_its_own = browser.get(f"/portal/jobs/{job}").text
    assert ("1.8 h" in on_its_own, f"{job}/extend" in on_its_own) == (True, True)
    seen_by_others = browser_of(world, "vic").get(f"/portal/jobs/{job}").text
    assert ("1.8 h" in seen_by_others, "/extend" in seen_by_others) == (True, False)
    assert "/resume" in page
    assert "data-open" not in page, "there is nothing that answers"


def test_what_one_serves_nothing_with_is_entered_with_pond(world: AuthWorld) -> None:
    job = world.submit("max", kind="dev")
    page = browser_of(world, "max").get("/portal/sessions").text
    assert f"pond attach {job}" in page
    assert "data-open" not in page
