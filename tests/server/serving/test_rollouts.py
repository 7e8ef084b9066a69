"""Revisions of a service through the API: what is refused, what is stored, and that a new server goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api

from millpond.engines.task_access import TaskAccess
from millpond.model.errors import UnavailableError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId
from millpond.server.serving import rollouts
from millpond.server.serving.probes import Probe
from millpond.server.serving.proxy.endpoints import TaskEndpoint
from millpond.server.serving.revisions import Phase, RolloutStep
from millpond.server.sessions.task_routes import TaskRoute
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.errors import Problem, SpecError
from millpond.specs.job.job_spec import JobSpec, stored_job
from millpond.specs.job.serving import Serve

FILE: dict[str, Any] = {"kind": "service", "name": "web", "command": "old", "tasks": 2}


def begun(api: Api, **fields: Any) -> tuple[str, Any]:
    """A service, and another revision of it on its way."""
    job = api.submit(**FILE).id
    answer = api.client.post(f"{JOBS}/{job}/revisions", json={"document": FILE | {"command": "new"}, **fields})
    assert answer.status_code == 201, answer.text
    return job, answer.json()


def phases(api: Api, job: str) -> list[str]:
    return [each["phase"] for each in api.client.get(f"{JOBS}/{job}/service").json()["revisions"]]


def look(api: Api, times: int = 1) -> None:
    """The thread of the rollouts does its work here."""
    for _ in range(times):
        api.service.rollouts.look()
        for _ in range(4):
            api.loop.query(lambda core: None).result(60)


def test_the_plan_of_an_update_names_the_fields_that_change(api: Api) -> None:
    job = api.submit(**FILE).id
    document = FILE | {"command": "new", "gpus": 1, "env": {"A": "b"}}
    plan = api.client.post(f"{JOBS}/{job}/revisions/plan", json={"document": document}).json()
    assert plan["changes"] == [
        {"field": "command", "before": "old", "after": "new"},
        {"field": "gpus", "before": None, "after": 1},
        {"field": "env", "before": None, "after": {"A": "b"}},
    ]
    assert phases(api, job) == []


def test_the_plan_of_an_update_counts_the_replicas_that_there_are(api: Api) -> None:
    scaled = FILE | {"tasks": {"desired": 2, "min": 1, "max": 4}, "serve": {"scale": {"requests_per_s": 20}}}
    job = api.submit(**scaled).id
    assert api.client.post(f"{JOBS}/{job}/resize", json={"tasks": 3}).is_success
    plan = api.client.post(f"{JOBS}/{job}/revisions/plan", json={"document": scaled | {"command": "new"}}).json()
    assert plan["replicas"] == 3


def test_a_revision_is_a_job_of_its_own_under_the_same_address(api: Api) -> None:
    job, told = begun(api)
    assert (told["path"], [each["job"] for each in told["revisions"]]) == (f"/proxy/{job}/", [job, f"{job}.r2"])
    look(api)
    assert api.client.get(f"{JOBS}/{job}.r2").json()["name"] == "web"
    assert phases(api, f"{job}.r2") == ["current", "rolling"]
    assert TaskId(f"{job}.r2", 1, 0) in api.world.running


def test_only_one_revision_is_on_its_way_at_a_time(api: Api) -> None:
    job, _ = begun(api)
    again = api.client.post(f"{JOBS}/{job}/revisions", json={"document": FILE})
    assert again.status_code == 409
    assert again.json()["error"]["cause"] == f"revision 2 of {job} is on its way (rolling)"


def test_a_size_that_a_rollout_would_change_again_is_refused_unless_that_is_paused(api: Api) -> None:
    scaled = FILE | {"tasks": {"desired": 2, "min": 1, "max": 4}}
    job = api.submit(**scaled).id
    assert api.client.post(f"{JOBS}/{job}/revisions", json={"document": scaled | {"command": "new"}}).is_success
    look(api)
    for revision in (job, f"{job}.r2"):
        answer = api.client.post(f"{JOBS}/{revision}/resize", json={"tasks": 3})
        assert answer.status_code == 409
        assert answer.json()["error"]["cause"] == f"revision 2 of {job} is on its way (rolling)"
    assert api.client.post(f"{JOBS}/{job}/rollout", json={"act": "pause"}).is_success
    assert api.client.post(f"{JOBS}/{job}/resize", json={"tasks": 3}).is_success
    assert api.client.post(f"{JOBS}/{job}/rollout", json={"act": "undo"}).is_success
    assert "(undoing)" in api.client.post(f"{JOBS}/{job}/resize", json={"tasks": 4}).text


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        ({"command": "x"}, "only a service without roles"),
        (FILE | {"gpus": 64}, "64"),
        (FILE | {"tasks": 0}, "not a number of tasks"),
    ],
)
def test_what_could_never_run_is_refused_before_anything_changes(api: Api, document: Any, cause: str) -> None:
    job = api.submit(**FILE).id
    answer = api.client.post(f"{JOBS}/{job}/revisions", json={"document": document})
    assert answer.status_code in (400, 422)
    assert cause in answer.text
    assert phases(api, job) == []


def test_nothing_can_be_done_to_a_revision_that_is_not_there(api: Api) -> None:
    job = api.submit(**FILE).id
    for act in ("pause", "resume", "promote"):
        answer = api.client.post(f"{JOBS}/{job}/rollout", json={"act": act})
        assert (answer.status_code, answer.json()["error"]["cause"]) == (409, f"no revision of {job} is on its way")
    answer = api.client.post(f"{JOBS}/{job}/rollout", json={"act": "undo"})
    assert answer.json()["error"]["cause"] == f"{job} has no revision to go back to"
    trained = api.submit().id
    assert api.client.get(f"{JOBS}/{trained}/service").status_code == 409


def test_one_that_fails_is_withdrawn_and_says_why(api: Api) -> None:
    job, _ = begun(api)
    look(api)
    api.engine.finish(TaskId(f"{job}.r2", 1, 0), Outcome.USER_ERROR, 1)
    look(api, 3)
    assert phases(api, job) == ["current", "undone"]
    shown = api.client.get(f"{JOBS}/{job}/service").json()["revisions"][1]
    assert shown["told"] == "its job has ended"
    assert sum(task.job == job for task in api.world.running) == 2


def test_one_that_the_server_cannot_store_for_now_is_submitted_when_it_can(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job, _ = begun(api)
    full: Future[JobInfo] = Future()
    full.set_exception(UnavailableError("the store cannot be written (the disk is full)"))
    with monkeypatch.context() as patched:
        patched.setattr(api.loop, "submit", lambda _submission: full)
        look(api, 2)
    assert phases(api, job) == ["current", "rolling"]
    assert f"the rollout of {job} waits: the store cannot be written (the disk is full)" in caplog.text
    look(api)
    assert TaskId(f"{job}.r2", 1, 0) in api.world.running


def test_one_that_is_paused_stays_until_somebody_goes_on_with_it(api: Api) -> None:
    job, _ = begun(api)
    assert api.client.post(f"{JOBS}/{job}/rollout", json={"act": "pause"}).json()["revisions"][1]["paused"]
    look(api, 2)
    assert not any(task.job == f"{job}.r2" for task in api.world.running)
    api.client.post(f"{JOBS}/{job}/rollout", json={"act": "resume"})
    look(api)
    assert any(task.job == f"{job}.r2" for task in api.world.running)


def test_a_revision_that_cannot_be_read_any_more_keeps_no_other_service_waiting(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, _ = begun(api)
    other, _ = begun(api)
    broken_document = api.service.rollouts._revisions.coming(broken).document

    def read(document: Any) -> JobSpec:
        if document is broken_document:
            raise SpecError([Problem("unknown field 'gone'")])
        return stored_job(document)

    monkeypatch.setattr(rollouts, "stored_job", read)
    look(api, 2)
    assert TaskId(f"{other}.r2", 1, 0) in api.world.running
    assert TaskId(f"{broken}.r2", 1, 0) not in api.world.running
    told = [record.getMessage() for record in caplog.records if "rollout of" in record.getMessage()]
    assert told == [f"the rollout of {broken} waits: unknown field 'gone'"], "once, not at every look"


def test_the_replicas_of_all_services_that_change_are_asked_together(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def places_of(info: JobInfo, access: TaskAccess) -> list[TaskEndpoint]:
        runs = [TaskId(info.id, 1, each.task) for each in info.tasks]
        return [TaskEndpoint(run, TaskRoute(run, 1, access), "") for run in runs]

    asked: list[set[str]] = []

    def ready_ones(_probe: Probe, replicas: Sequence[tuple[TaskEndpoint, Serve]]) -> list[TaskEndpoint]:
        asked.append({place.task.job for place, _ in replicas})
        return [place for place, _ in replicas if not place.task.job.startswith(silent)]

    monkeypatch.setattr(rollouts, "places_of", places_of)
    monkeypatch.setattr(Probe, "ready_ones", ready_ones)
    (silent, _), (other, _) = begun(api), begun(api)
    look(api, 6)
    assert {silent, f"{silent}.r2", other, f"{other}.r2"} in asked
    assert len(asked) == 6
    assert phases(api, silent) == ["current", "rolling"]
    assert phases(api, other) == ["retired", "current"]


def test_one_that_is_withdrawn_while_its_next_step_is_chosen_does_not_take_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = begun(api)

    def withdrawn_meanwhile(*_: object) -> RolloutStep:
        assert api.client.post(f"{JOBS}/{job}/rollout", json={"act": "undo"}).is_success
        return RolloutStep(Phase.CURRENT, "all its replicas are ready")

    with monkeypatch.context() as patched:
        patched.setattr(rollouts, "next_step", withdrawn_meanwhile)
        look(api)
    assert phases(api, job) == ["current", "undoing"]
    look(api, 3)
    assert phases(api, job) == ["current", "undone"]


def test_one_that_begins_as_the_last_one_is_done_with_comes_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = begun(api)
    assert api.client.post(f"{JOBS}/{job}/rollout", json={"act": "undo"}).is_success
    look(api, 2)
    assert phases(api, job) == ["current", "undone"]
    moved, moments = api.service.rollouts, iter((False, True))
    leftovers = moved._leftovers

    def begun_meanwhile(service: str) -> list[JobInfo]:
        if next(moments):
            answer = api.client.post(f"{JOBS}/{job}/revisions", json={"document": FILE | {"command": "newer"}})
            assert answer.status_code == 201, answer.text
        return leftovers(service)

    with monkeypatch.context() as patched:
        patched.setattr(moved, "_leftovers", begun_meanwhile)
        moved.changed(job)
        look(api)
    look(api, 2)
    assert phases(api, job) == ["current", "undone", "rolling"]
    assert TaskId(f"{job}.r3", 1, 0) in api.world.running


def test_to_stop_a_service_ends_all_its_revisions(api: Api) -> None:
    job, _ = begun(api, canary=10)
    look(api)
    api.client.post(f"{JOBS}/{job}/stop")
    look(api, 3)
    assert api.world.running == []
    assert phases(api, job) == ["current", "undone"]


def test_a_server_that_was_killed_before_it_submitted_a_revision_does_so_when_it_is_back(tmp_path: Path) -> None:
    with closing(Api(tmp_path / "state")) as first:
        job, _ = begun(first, canary=10)
        assert not any(task.job == f"{job}.r2" for task in first.world.running)
    with closing(Api(tmp_path / "state")) as second:
        look(second, 2)
        assert [each["phase"] for each in second.client.get(f"{JOBS}/{job}/service").json()["revisions"]] == [
            "current",
            "canary",
        ]
        assert set(second.service.front.routes.ways(job)) == {(job,), (f"{job}.r2",)}
        assert second.client.get(f"{JOBS}/{job}.r2").status_code == 200
