"""One request that does the same to several jobs: each by the rights and the rules of its own route."""

from __future__ import annotations

import pytest
from auth_world import API, AuthWorld, error_of
from portal_browser import browser_of
from test_audit import audit


def act(world: AuthWorld, user: str, what: str, *jobs: str) -> dict[str, str]:
    """What came of it for each job: its state, or why it was refused."""
    answer = world.client(user).post(f"{API}/jobs/act", json={"act": what, "jobs": jobs})
    assert answer.status_code == 200, answer.text
    return {each["job"]: each["state"] or each["error"]["code"] for each in answer.json()["jobs"]}


def test_each_job_is_stopped_that_may_be_and_of_the_others_it_is_said_why_not(world: AuthWorld) -> None:
    mine, waits, theirs = world.submit("max", gpus=2), world.submit("max", gpus=4), world.submit("mia")
    hidden = world.submit("sam")
    world.settled()
    acted = act(world, "max", "stop", waits, theirs, mine, hidden, "nobody-knows", waits)
    assert list(acted) == [waits, theirs, mine, hidden, "nobody-knows"], "each once, in their order"
    assert acted[mine] in ("stopping", "cancelled")
    assert acted[waits] == "cancelled"
    assert (acted[theirs], acted[hidden], acted["nobody-knows"]) == ("forbidden", "not-found", "not-found")
    world.settled()
    assert act(world, "lea", "stop", mine, theirs)[mine] == "conflict", "it has ended"
    for job, state in ((theirs, ("stopping", "cancelled")), (hidden, ("queued", "starting", "running"))):
        assert world.client("olga").get(f"{API}/jobs/{job}").json()["state"] in state


def test_all_that_match_a_list_are_named_by_id_as_far_as_its_reader_may_act_on_them(world: AuthWorld) -> None:
    first, second = (world.submit("max", name="many", gpus=4) for _ in range(2))
    theirs, other = world.submit("mia", name="many"), world.submit("max", name="other")
    world.settled()

    def found(user: str, query: str = "name=many") -> set[str]:
        answer = world.client(user).get(f"/portal/job-ids?{query}")
        assert answer.status_code == 200, answer.text
        return set(answer.json())

    assert found("max") == {first, second}
    assert found("lea") == {first, second, theirs}
    assert found("vic") == set()
    assert found("max", "") == {first, second, other}
    assert act(world, "max", "stop", second)[second] == "cancelled"
    assert found("max", "name=many&all=true") == {first, second}
    assert found("max", "state=cancelled") == {second}
    assert found("max") == {first}
    page = browser_of(world, "max").get("/portal/jobs?name=many&order=line").text
    assert 'data-matching="/portal/job-ids?name=many"' in page
    refused = world.client().get("/portal/job-ids")
    assert (refused.status_code, error_of(refused).code) == (401, "unauthorized"), "a script is not led to the login"


@pytest.mark.long
def test_hundreds_of_jobs_are_stopped_by_one_request(world: AuthWorld) -> None:
    jobs = [world.submit("max", gpus=4) for _ in range(130)]
    assert set(act(world, "max", "stop", *jobs).values()) <= {"stopping", "cancelled"}


def test_jobs_that_do_not_run_are_not_suspended(world: AuthWorld) -> None:
    runs = world.submit("max", gpus=4)
    world.settled()
    waits = world.submit("max", gpus=4)
    acted = act(world, "max", "suspend", runs, waits)
    assert acted[waits] == "conflict"
    assert acted[runs] in ("suspended", "running")
    assert act(world, "max", "resume", waits)[waits] == "conflict"


def test_what_was_done_to_which_is_in_the_audit_log_once(world: AuthWorld) -> None:
    jobs = [world.submit("max", gpus=4) for _ in range(12)]
    act(world, "max", "stop", *jobs)
    (entry, *_) = audit(world)
    assert entry["after"] == f"stop: 12 of 12 jobs: {', '.join(jobs[:10])}, ..."


def test_a_viewer_and_wrong_bodies_are_refused(shared: AuthWorld) -> None:
    body = {"act": "stop", "jobs": ["a"]}
    assert shared.client("vic").post(f"{API}/jobs/act", json=body).status_code == 403
    for wrong in ({"act": "delete"}, {"jobs": []}, {"jobs": ["x"] * 1001}, {"jobs": ["x" * 1000]}):
        assert shared.client("max").post(f"{API}/jobs/act", json=body | wrong).status_code == 422, wrong


def test_an_ended_job_is_run_again_by_its_owner_alone_and_others_are_told_to_clone_it(world: AuthWorld) -> None:
    job = world.submit("max")
    world.client("max").post(f"{API}/jobs/{job}/stop")
    world.settled()
    refused = world.client("lea").post(f"{API}/jobs/{job}/requeue")
    assert (refused.status_code, f"pond clone {job}" in refused.json()["error"]["remedy"]) == (403, True)
    assert act(world, "olga", "requeue", job) == {job: "forbidden"}
    again = world.client("max").post(f"{API}/jobs/{job}/requeue")
    assert (again.status_code, again.json()["user"], again.json()["id"] == job) == (202, "max", False)
    token = world.client("max").post(f"{API}/tokens", json={"name": "t", "verbs": ["change-jobs", "read-jobs"]}).json()
    confined = world.client(authorization=f"Bearer {token['secret']}")
    assert confined.post(f"{API}/jobs/{job}/requeue").status_code == 403


def test_a_lead_requeues_and_raises_what_runs_in_their_group_and_the_log_says_so(world: AuthWorld) -> None:
    job = world.submit("max")
    world.settled()
    lead = world.client("lea")
    assert lead.post(f"{API}/jobs/{job}/priority", json={"priority": "high"}).status_code == 202
    assert audit(world)[0]["after"] == "priority high"
    assert lead.post(f"{API}/jobs/{job}/requeue").json()["user"] == "max"
