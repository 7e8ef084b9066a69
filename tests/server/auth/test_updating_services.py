"""Whose word counts when a service gets another job file: what it runs, runs as its owner."""

from __future__ import annotations

from auth_world import API, AuthWorld, error_of

NOTHING_RUNS = 503
"""Whoever is let in is told so: no program answers in these tests."""
FILE = {"kind": "service", "name": "web", "command": "new"}


def test_only_the_owner_gives_a_service_another_file_and_others_may_still_withdraw_it(shared: AuthWorld) -> None:
    job = shared.submit("max", kind="service", name="web")
    by_lead = shared.client("lea").post(f"{API}/jobs/{job}/revisions", json={"document": FILE})
    assert by_lead.status_code == 403
    assert "runs as max" in error_of(by_lead).cause
    assert shared.client("max").post(f"{API}/jobs/{job}/revisions", json={"document": FILE}).status_code == 201
    undone = shared.client("lea").post(f"{API}/jobs/{job}/rollout", json={"act": "undo"})
    assert undone.json()["revisions"][1]["phase"] == "undoing"
    assert shared.client("sam").get(f"{API}/jobs/{job}/service").status_code == 404
    shared.client("olga").post(f"{API}/jobs/{job}/stop")


def test_nobody_learns_of_others_jobs_by_having_a_revision_wait_for_them(shared: AuthWorld) -> None:
    job = shared.submit("sam", kind="service", name="web")
    theirs = shared.submit("max")
    asked = {"document": FILE | {"after": {"ok": [theirs]}}}
    answer = shared.client("sam").post(f"{API}/jobs/{job}/revisions", json=asked)
    assert error_of(answer).cause == f"there is no job {theirs!r} to wait for"
    for each in (job, theirs):
        shared.client("olga").post(f"{API}/jobs/{each}/stop")


def test_a_link_to_one_revision_opens_that_one_alone(shared: AuthWorld) -> None:
    job, mine = shared.submit("max", kind="service", name="web"), shared.client("max")
    assert mine.post(f"{API}/jobs/{job}/revisions", json={"document": FILE}).status_code == 201
    shared.service.rollouts.look()
    revision = f"{job}.r2"
    assert mine.post(f"{API}/jobs/{revision}/link").json()["path"] == f"/proxy/{job}/"
    link = mine.post(f"{API}/jobs/{revision}/link", params={"alone": True}).json()
    assert link["path"] == f"/proxy/{revision}/"
    browser = shared.client()
    assert browser.get(link["open_path"]).status_code == 200
    let_in, elsewhere = (browser.get(f"/proxy/{each}/").status_code for each in (revision, job))
    assert (let_in, elsewhere) == (NOTHING_RUNS, 401)
    shared.client("olga").post(f"{API}/jobs/{job}/stop")
