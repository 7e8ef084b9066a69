"""The REST API as a client sees it, with the real scheduler and store behind it and a world without processes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from api_world import JOBS, TOKEN, Api, error_of
from sqlalchemy.exc import OperationalError
from starlette.types import Message

from millpond.model.errors import LeadershipLostError, UnavailableError
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.api import body_limits
from millpond.server.api.description import DescribedApi
from millpond.server.api.routes import jobs as job_routes
from millpond.server.http.long_answers import LongAnswers
from millpond.server.jobs.reasons import last_word
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.jobs import JobInfo, JobList
from millpond.specs.api.jobs.logs import LogChunk


def test_a_submitted_job_is_shown_listed_explained_stopped_and_told(api: Api) -> None:
    job = api.submit(name="train", gpus=2)
    assert re.fullmatch(r"train-[a-z2-7]{5}", job.id)
    shown = api.job(job.id)
    assert (shown.state, shown.user, shown.gpus) == ("running", "ada", "2")
    assert shown.tasks[0].node == "n1"
    assert all(grant.fake for grant in shown.tasks[0].devices)
    assert [item["id"] for item in api.client.get(JOBS).json()["jobs"]] == [job.id]
    assert api.client.get(f"{JOBS}/{job.id}/why").json()["state"] == "running"
    assert api.client.post(f"{JOBS}/{job.id}/stop").status_code == 202
    assert api.job(job.id).state == "cancelled"
    assert api.client.get(JOBS).json()["jobs"] == []
    assert [item["state"] for item in api.client.get(JOBS, params={"all": True}).json()["jobs"]] == ["cancelled"]
    assert [item["id"] for item in api.client.get(JOBS, params={"state": "cancelled"}).json()["jobs"]] == [job.id]
    told = [item["what"] for item in api.client.get(f"{JOBS}/{job.id}/events").json()["events"]]
    assert told[0] == "JobSubmitted"
    assert "StopRequested" in told


def test_a_job_is_suspended_resumed_and_resized_through_the_api(api: Api) -> None:
    job = api.submit(gpus=1, tasks={"min": 1, "max": 2})
    assert api.job(job.id).state == "running"
    assert api.client.post(f"{JOBS}/{job.id}/suspend").status_code == 202
    assert api.job(job.id).state == "suspended"
    assert api.client.post(f"{JOBS}/{job.id}/suspend").status_code == 409
    assert api.job(job.id).suspension == "frozen (suspended by ada)"
    assert api.client.post(f"{JOBS}/{job.id}/resume").status_code == 202
    assert api.job(job.id).state == "running"
    assert "host memory" in error_of(api.client.post(f"{JOBS}/{job.id}/suspend", params={"swap": True})).cause
    assert api.client.post(f"{JOBS}/{job.id}/resize", json={"tasks": 1}).status_code == 202
    assert len([task for task in api.job(job.id).tasks if task.state == "running"]) == 1
    assert api.job(job.id).gpus == "1 x 1 (1-2)"
    for body, status in (({"tasks": 3}, 422), ({"tasks": 0}, 422), ({"tasks": 1, "role": "ps"}, 404), ({}, 422)):
        answer = api.client.post(f"{JOBS}/{job.id}/resize", json=body)
        assert (answer.status_code, bool(error_of(answer).remedy)) == (status, True)
    told = [item["text"] for item in api.client.get(f"{JOBS}/{job.id}/events").json()["events"]]
    assert [text for text in told if text.startswith("role ")] == ["role worker should have 1 task: ada asked for it"]
    several = api.submit(roles=[{"name": "ps"}, {"name": "worker"}])
    assert "say which" in error_of(api.client.post(f"{JOBS}/{several.id}/resize", json={"tasks": 1})).remedy


def test_the_cards_of_an_elastic_job_are_those_that_it_has_with_the_bounds(api: Api) -> None:
    job = api.submit(gpus=1, tasks={"min": 1, "max": 9})
    has = len([task for task in api.job(job.id).tasks if task.node])
    assert 1 < has < 9
    assert api.job(job.id).gpus == f"{has} x 1 (1-9)"
    waiting = api.submit(gpus=1, tasks={"min": 2, "max": 3}, queue=job.queue, preemptible=False)
    assert (waiting.state, waiting.gpus) == ("queued", "3 x 1 (2-3)"), "what it asks for"
    service = api.submit(kind="service", command="serve", gpus=1, tasks=2)
    assert service.gpus == "2 x 1", "its least is one replica, whatever its file says"


def test_a_job_that_would_lose_its_work_migrates_only_if_that_is_said(api: Api) -> None:
    job = api.submit(gpus=1)
    refused = api.client.post(f"{JOBS}/{job.id}/migrate", json={})
    assert (refused.status_code, "--restart" in error_of(refused).remedy) == (409, True)
    for body, status in (({"to": ["n1/99"]}, 404), ({"to": [""]}, 422), ({"to": "n1"}, 422)):
        assert api.client.post(f"{JOBS}/{job.id}/migrate", json=body).status_code == status
    done = api.client.post(f"{JOBS}/{job.id}/migrate", json={"restart": True})
    assert (done.status_code, "restart-migrated from n1/" in done.json()["migration"]) == (202, True)
    assert (api.job(job.id).attempt, api.job(job.id).failures) == (2, 0)
    told = [item["text"] for item in api.client.get(f"{JOBS}/{job.id}/events").json()["events"]]
    assert "ada asked that it migrate to other cards" in told
    assert any(text.startswith("restart-migrated: start 1 task on card ") for text in told)
    array = api.submit(array=2, gpus=1)
    assert "is an array" in error_of(api.client.post(f"{JOBS}/{array.id}/migrate", json={})).cause


def test_a_job_is_expected_to_take_as_long_as_the_like_of_it_did_also_after_a_restart(tmp_path: Path) -> None:
    def forecasts(api: Api, job: JobInfo) -> list[str]:
        told = api.client.get(f"{JOBS}/{job.id}/events").json()["events"]
        return [item["text"] for item in told if item["what"] == "DurationPredicted"]

    first = Api(tmp_path)
    job = first.submit(name="train")
    assert forecasts(first, job) == []
    assert first.job(job.id).state == "running"
    first.clock.now += 500
    first.engine.finish(TaskId(job.id, 1, 0))
    assert first.job(job.id).state == "succeeded"
    assert forecasts(first, first.submit(name="train")) == ["expected to run 500 s, rarely more than 1000 s"]
    assert forecasts(first, first.submit(name="train", kind="service")) == []
    first.close()
    again = Api(tmp_path)
    assert forecasts(again, again.submit(name="train")) == ["expected to run 500 s, rarely more than 1000 s"]
    again.close()


def test_a_job_without_a_name_of_its_own_is_not_expected_to_take_as_long_as_others_of_its_program(api: Api) -> None:
    def foretold(*words: str) -> bool:
        job = api.submit(command=list(words), name="sleep")
        assert api.job(job.id).state == "running"
        told = api.client.get(f"{JOBS}/{job.id}/events").json()["events"]
        api.clock.now += 1
        api.engine.finish(TaskId(job.id, 1, 0))
        api.job(job.id)
        return any(item["what"] == "DurationPredicted" for item in told)

    assert [foretold("/bin/sleep", "1"), foretold("sleep", "200"), foretold("train.sh")] == [False, False, True]


def test_a_list_shows_each_job_as_it_is_now_although_unchanged_ones_are_not_encoded_again(api: Api) -> None:
    first, second = api.submit(name="first", gpus=1), api.submit(name="second", gpus=1)

    def listed() -> dict[str, JobInfo]:
        answer = api.client.get(JOBS)
        return {info.id: info for info in from_json(JobList, answer.content).jobs}

    before = {job.id: api.job(job.id) for job in (first, second)}
    assert listed() == listed() == before
    api.client.post(f"{JOBS}/{first.id}/suspend")
    suspended = api.job(first.id)
    assert suspended.state == "suspended"
    assert listed() == {first.id: suspended, second.id: before[second.id]}
    api.client.post(f"{JOBS}/{first.id}/stop")
    assert api.job(first.id).state == "cancelled"
    assert list(listed()) == [second.id]
    assert list(api.loop.job_cache._encoded) == [second.id]


def test_a_list_has_the_beginning_of_the_indices_of_an_array_and_the_array_itself_all_of_them(api: Api) -> None:
    indices = ",".join(str(index) for index in range(1, 4_000, 2))
    array = api.submit(array={"indices": indices}, gpus=1)
    listed = from_json(JobList, api.client.get(JOBS).content).jobs[0].array
    whole = api.job(array.id).array
    assert listed is not None
    assert whole is not None
    assert whole.indices == indices
    assert listed.count == whole.count == 2_000
    assert len(listed.indices) == 200
    assert listed.indices.startswith("1,3,5,")
    assert listed.indices.endswith("…")


def test_a_waiting_job_says_why_in_lists_and_in_full(api: Api) -> None:
    api.submit(gpus=4, time_limit="1h")
    waiting = api.submit(gpus=4)
    shown = api.job(waiting.id)
    assert shown.state == "queued"
    assert shown.reason
    reason = api.client.get(f"{JOBS}/{waiting.id}/why").json()
    assert reason["summary"] == shown.reason
    assert reason["position"] == 1
    listed = api.client.get(JOBS).json()["jobs"]
    assert [item["reason"] for item in listed if item["id"] == waiting.id] == [shown.reason]
    assert reason["start"]["basis"]


def test_a_start_is_foretold_by_the_clock_of_the_reader_also_after_that_was_set_back(api: Api) -> None:
    api.clock.now = time.time() + 7_200.0
    api.submit(gpus=4, time_limit="10m")
    waiting = api.submit(gpus=4, time_limit="10m")
    plan = api.client.post(f"{JOBS}/plan", json={"command": "work", "gpus": 4}).json()
    for reason in (api.client.get(f"{JOBS}/{waiting.id}/why").json(), plan["reason"]):
        assert 0.0 < reason["start"]["latest_at"] - time.time() < 1_500.0


def test_the_newest_jobs_come_first_and_a_cut_list_says_so(api: Api) -> None:
    ids = []
    for _ in range(4):
        api.clock.now += 1
        ids.append(api.submit().id)
    found = api.client.get(JOBS, params={"limit": 3}).json()
    assert [item["id"] for item in found["jobs"]] == ids[:0:-1]
    assert found["truncated"]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who waited for a turn."""
    answer, found = LongAnswers.answer, list[str]()

    async def noted(answers: LongAnswers, request: Any, user: str, make: Any) -> Any:
        found.append(user)
        return await answer(answers, request, user, make)

    monkeypatch.setattr(LongAnswers, "answer", noted)
    return found


def test_a_report_of_all_jobs_one_by_one_waits_for_its_turn(api: Api, turns: list[str]) -> None:
    job = api.submit(gpus=1).id
    api.job(job)
    api.client.post(f"{JOBS}/{job}/stop")
    assert api.job(job).state == "cancelled"
    bounds = {"until": api.clock.now + 60.0}
    short = api.client.get("/api/v1/usage", params={"by": "job", "limit": 1_000, **bounds})
    assert api.client.get("/api/v1/usage", params={"by": "user", **bounds}).status_code == 200
    assert turns == []
    long = api.client.get("/api/v1/usage", params={"by": "job", **bounds})
    assert turns == ["ada"]
    assert (long.status_code, long.content) == (short.status_code, short.content)


def test_a_list_of_more_jobs_than_clients_ask_for_waits_for_its_turn(
    api: Api, turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.job(api.submit().id)  # whose state changes no more
    short = api.client.get(JOBS, params={"limit": 10_000})
    assert turns == []
    monkeypatch.setattr(job_routes, "_SHORT_LIST", 0)
    long = api.client.get(JOBS, params={"limit": 10_001})
    assert len(turns) == 1
    assert (long.status_code, long.content) == (short.status_code, short.content)


def test_repeating_an_idempotency_key_gives_the_same_job(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = (api.client.post(JOBS, json={"command": "x"}, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"]
    other = api.client.post(JOBS, json={"command": "y"}, headers=headers)
    assert other.status_code == 409


def test_nodes_and_server_tell_what_is_free_and_that_it_is_fake(api: Api) -> None:
    job = api.submit(gpus=1)
    api.job(job.id)
    (node,) = api.client.get("/api/v1/nodes").json()["nodes"]
    assert node["fake"]
    assert [device["holders"] for device in node["devices"]] == [[job.id], [], [], []]
    server = api.client.get("/api/v1/server").json()
    assert (server["fake"], server["jobs"]) == (True, {"running": 1})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Host": "rebound.example"}, 421),
        ({"Host": "127.0.0.1:7433"}, 200),
        ({"Host": "[::1]:7433"}, 200),
        ({"Host": "localhost"}, 200),
    ],
)
def test_only_who_has_the_token_and_knows_our_name_comes_in(api: Api, headers: dict[str, str], status: int) -> None:
    answer = api.client.get(JOBS, headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert error_of(answer).cause


def test_health_needs_no_token(api: Api) -> None:
    for path in ("/healthz", "/readyz"):
        assert api.client.get(path, headers={"Authorization": ""}).status_code == 200


def test_a_server_that_cannot_take_work_is_not_ready(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OperationalError("INSERT", {}, Exception("disk full"))

    monkeypatch.setattr(api.store, "record", full)
    api.job(api.submit().id)
    answer = api.client.get("/readyz")
    assert answer.status_code == 503
    assert "disk full" in answer.json()["status"]


def test_a_server_whose_database_cannot_be_read_is_alive_and_not_ready(api: Api) -> None:
    with api.store.database.begin() as connection:
        connection.execute(sa.text("ALTER TABLE snapshots RENAME TO gone"))
    answer = api.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"].startswith("the store cannot be read")
    assert api.client.get("/healthz").status_code == 200


def test_a_wrong_job_file_is_answered_with_every_fault(api: Api) -> None:
    answer = api.client.post(JOBS, json={"comand": "x", "gpus": -1})
    assert answer.status_code == 422
    details = {detail.loc: detail for detail in error_of(answer).details}
    assert "did you mean 'command'?" in details["comand"].hint
    assert "negative" in details["gpus"].message
    assert error_of(answer).cause == "the job is not valid"  # it need not have been a file
    assert error_of(answer).remedy == "mend what is named, then send it again"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": 9}, "9 GPUs"),
        ({"gpus": 1, "gpu_models": ["V10"]}, "V10"),
        ({"queue": "nowhere"}, "nowhere"),
        ({"pool": "nowhere"}, "nowhere"),
        ({"memory": "64TiB"}, "memory"),
        ({"cpus": 10_000}, "CPU"),
    ],
)
def test_what_the_cluster_can_never_run_is_refused_with_a_remedy(api: Api, fields: dict[str, Any], words: str) -> None:
    answer = api.client.post(JOBS, json={"command": "x", **fields})
    assert answer.status_code == 422
    assert words.lower() in error_of(answer).cause.lower()
    assert error_of(answer).remedy


@pytest.mark.parametrize("body", [b"", b"{", b'{"command": "x", "gpus": NaN}', b"\xff", b"[]", b"1", b"[" * 5000])
def test_a_body_that_is_no_job_file_is_refused_in_our_form(api: Api, body: bytes) -> None:
    answer = api.client.post(JOBS, content=body)
    assert answer.status_code == 422
    assert error_of(answer).details


@pytest.mark.parametrize("path", ["jobs", "login", "tokens", "users", "blobs/missing", "datasets/cats"])
def test_a_body_without_end_is_cut_off_on_every_route_with_and_without_a_length(api: Api, path: str) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(6):
            yield b" " * 2**20

    for content in (b" " * (5 * 2**20), pieces()):
        answer = api.client.post(f"/api/v1/{path}", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert "larger than 4 MiB" in error_of(answer).cause
    answer = api.client.post("/api/v1/login", content=pieces(), headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 413
    assert "larger than 64 KiB" in error_of(answer).cause


def test_a_body_that_never_ends_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(body_limits, "BODY_WITHIN_S", 0.01)
    for body in (body_limits._Body(endless, 10, body_limits._Unfinished()), body_limits._Content(endless)):
        with pytest.raises(body_limits.RefusedBodyError, match="did not arrive"):
            asyncio.run(body.receive())


def test_a_client_that_leaves_within_its_body_is_no_defect(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Message] = []
    coming = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "scheme": "http", "path": JOBS, "headers": headers, "state": {}}

    async def receive() -> Message:
        return next(coming)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(api.client.app(scope | {"query_string": b"", "client": ("127.0.0.1", 1)}, receive, send))
    assert sent[0]["status"] == 503
    assert not caplog.records


def test_bodies_that_are_not_whole_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begun() -> Message:
        return {"type": "http.request", "body": b"12345", "more_body": True}

    monkeypatch.setattr(body_limits, "MOST_UNFINISHED_BYTES", 12)
    counted = body_limits._Unfinished()
    bodies = [body_limits._Body(begun, 100, counted) for _ in range(3)]
    for body in bodies[:2]:
        asyncio.run(body.receive())
    with pytest.raises(body_limits.RefusedBodyError, match="too many"):
        asyncio.run(bodies[2].receive())
    bodies[0].settle()
    bodies[2].settle()
    asyncio.run(body_limits._Body(begun, 100, counted).receive())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{JOBS}/nobody", 404),
        ("GET", f"{JOBS}/nobody/why", 404),
        ("GET", f"{JOBS}/nobody/events", 404),
        ("GET", f"{JOBS}/nobody/logs", 404),
        ("POST", f"{JOBS}/nobody/stop", 404),
        ("GET", "/api/v1/nothing", 404),
        ("DELETE", JOBS, 405),
        ("GET", f"{JOBS}?state=sleeping", 422),
        ("GET", f"{JOBS}?limit=0", 422),
        ("GET", f"{JOBS}/..%2F..%2Fetc%2Fpasswd/logs", 404),
    ],
)
def test_what_is_not_there_or_not_allowed_is_an_error_in_our_form(
    api: Api, method: str, path: str, status: int
) -> None:
    answer = api.client.request(method, path)
    assert answer.status_code == status
    error = error_of(answer)
    assert error.cause
    assert error.code == ("not-found" if "/nobody" in path else "request")


def test_a_defect_shows_an_id_and_nothing_of_its_inside(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(api.store.histories, "of_job", broken)
    job = api.submit()
    answer = api.client.get(f"{JOBS}/{job.id}/events")
    assert answer.status_code == 500
    assert "inside" not in answer.text
    assert error_of(answer).id


def test_a_dead_scheduler_is_said_at_once(api: Api) -> None:
    api.scheduler.close()
    answer = api.client.post(JOBS, json={"command": "x"})
    assert answer.status_code == 503
    assert api.client.get("/readyz").status_code == 503


def test_who_waits_for_a_scheduler_that_dies_is_told_and_so_is_everybody_after(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(api.core, "handle", broken)
    answer = api.client.post(JOBS, json={"command": "x"})
    assert answer.status_code == 503
    error = error_of(answer)
    assert (error.code, error.cause) == ("unavailable", "the scheduler stopped by a defect")
    assert "log" in error.remedy
    for path in ("/healthz", "/readyz"):
        told = api.client.get(path)
        assert (told.status_code, told.json()["status"]) == (503, "the scheduler stopped by a defect")
    assert error_of(api.client.post(JOBS, json={"command": "x"})).code == "unavailable"
    with pytest.raises(UnavailableError, match="defect"):
        api.loop.stop_job("j", "ada").result(60)  # it came too late for the check at the door


def test_a_server_whose_work_another_one_does_says_so_and_speaks_of_no_defect(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(*_: Any) -> None:
        raise LeadershipLostError("another server has the lease", "start this one again")

    monkeypatch.setattr(api.core, "handle", replaced)
    for _ in range(2):  # the request under way, and the one after
        error = error_of(api.client.post(JOBS, json={"command": "x"}))
        assert (error.cause, error.remedy) == ("another server has the lease", "start this one again")
    assert api.client.get("/healthz").json()["status"] == "another server has the lease"


def test_a_job_and_its_reason_are_of_one_instant(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    first = api.submit(gpus=4)
    waiting = api.submit(gpus=4)
    stale = api.job(waiting.id)
    api.engine.finish(TaskId(first.id, 1, 0))
    assert api.job(waiting.id).state == "running"
    monkeypatch.setattr(api.service.lookup, "look", lambda job: stale)  # as read a moment too early
    shown = from_json(JobInfo, api.client.get(f"{JOBS}/{waiting.id}").content)
    assert (shown.state, shown.reason) == ("running", "")


def test_jobs_are_listed_by_states_name_user_and_queue_ended_or_not(api: Api) -> None:
    ended, other, running = (api.submit(name=name) for name in ("Train-1", "train-1", "Train-1"))
    for job in (ended, other, running):
        api.job(job.id)
    api.engine.finish(TaskId(ended.id, 1, 0))
    api.job(ended.id)

    def listed(**params: Any) -> set[str]:
        answer = api.client.get(JOBS, params=params)
        assert answer.status_code == 200, answer.text
        return {job.id for job in from_json(JobList, answer.content).jobs}

    assert listed(name="Train-1") == {running.id}
    assert listed(name="Train-1", all=True) == {running.id, ended.id}
    assert listed(state=["running", "succeeded"]) == {running.id, ended.id, other.id}
    assert listed(state="succeeded", name="train-1") == set()
    assert listed(all=True, user=ended.user, queue="default") == {running.id, ended.id, other.id}
    assert listed(all=True, user="nobody") == listed(all=True, queue="nowhere") == set()


def test_the_last_word_about_a_job_of_several_tasks_names_the_one_that_failed(api: Api) -> None:
    ended = api.job(api.submit(tasks=2).id)
    ends = [{"detail": "exit code 143: ended by SIGTERM"}, {"detail": "exit code 3", "exit_code": 3}]
    tasks = [replace(task, **end) for task, end in zip(ended.tasks, ends, strict=True)]
    failed = replace(ended, state="failed", exit_code=3, tasks=tasks, first_started_at=1.0)
    assert last_word(failed).summary == "it failed with exit code 3: task 1 (worker)"


def test_the_last_word_tells_an_exit_code_once(api: Api) -> None:
    ended = replace(api.job(api.submit().id), state="failed", first_started_at=1.0)

    def told(code: int, detail: str) -> str:
        tasks = [replace(ended.tasks[0], detail=detail, exit_code=code)]
        return last_word(replace(ended, exit_code=code, tasks=tasks)).summary

    assert told(3, "exit code 3") == "it failed with exit code 3"
    assert told(139, "exit code 139: ended by SIGSEGV") == "it failed with exit code 139: ended by SIGSEGV"
    assert told(137, "out of memory") == "it failed with exit code 137: out of memory"


def test_logs_are_lines_of_json_that_end_with_the_job(api: Api) -> None:
    job = api.submit()
    api.job(job.id)
    log = TaskFiles.of(api.state_dir, TaskId(job.id, 1, 0)).log
    log.parent.mkdir(parents=True)
    log.write_bytes(b"hello\n")
    api.engine.finish(TaskId(job.id, 1, 0))
    answer = api.client.get(f"{JOBS}/{job.id}/logs", params={"follow": True})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    chunks = [from_json(LogChunk, line) for line in answer.content.splitlines()]
    assert "".join(chunk.data for chunk in chunks) == "hello\n"
    assert (chunks[-1].job_over, chunks[-1].exit_code) == (True, 0)
    assert api.client.get(f"{JOBS}/{job.id}/logs", params={"cursor": "nonsense"}).status_code == 422


def test_the_description_is_complete_and_the_reference_needs_nothing_from_elsewhere(api: Api) -> None:
    described = api.client.get("/openapi.json").json()
    text = json.dumps(described)
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in described["components"]["schemas"], name
    page = api.client.get("/docs").text
    assert "POST /api/v1/jobs" in page
    assert "JobFile" in page
    assert not re.search(r"(src|href)=.https?:", page)


def test_the_description_says_who_may_ask_and_in_which_form_answers_come(api: Api) -> None:
    described = api.client.get("/openapi.json").json()
    assert described["security"] == [{name: []} for name in described["components"]["securitySchemes"]] != []
    for path, method, status, kinds in [
        (f"{JOBS}/{{job}}/logs", "get", "200", ["application/x-ndjson"]),
        ("/api/v1/images/build", "post", "200", ["application/x-ndjson"]),
        (f"{JOBS}/{{job}}/output/{{path}}", "get", "206", ["application/octet-stream"]),
        ("/api/v1/login", "post", "429", ["application/json"]),
    ]:
        assert list(described["paths"][path][method]["responses"][status]["content"]) == kinds, path
    operations = {(path, name): each for path, ways in described["paths"].items() for name, each in ways.items()}
    open_to_all = {path for (path, _), each in operations.items() if each.get("security") == []}
    assert {"/healthz", "/readyz", "/api/v1/login"} <= open_to_all
    assert not {JOBS, "/metrics"} & open_to_all
    for (path, method), operation in operations.items():
        for status, answer in operation["responses"].items():
            forms = [form["schema"] for form in answer.get("content", {}).values()]
            assert forms or status == "204", f"{method} {path} does not say what {status} is"
            assert not any({"$ref", "type"} <= set(form) for form in forms), f"{method} {path} says {status} twice"


def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(api: Api) -> None:
    answer = api.client.request("PATCH", JOBS)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
    assert "Allow" not in api.client.get("/api/v1/nothing").headers


def test_a_misspelt_field_of_a_request_is_refused_and_not_passed_over(api: Api) -> None:
    [detail] = error_of(api.client.post("/api/v1/nodes/fake-1/open", json={"crad": 0})).details
    assert detail.loc == "body.crad"
    described = api.client.get("/openapi.json").json()
    bodies = [way.get("requestBody", {}) for ways in described["paths"].values() for way in ways.values()]
    forms = [form["schema"].get("$ref", "") for body in bodies for form in body.get("content", {}).values()]
    components = described["components"]["schemas"]
    names = {ref.rpartition("/")[2] for ref in forms if ref}
    assert len(names) > 30
    by_programs = {"BlobList", "RunState", "RunOutput"}
    assert {name for name in names if components[name].get("additionalProperties") is not False} == by_programs


def test_what_is_wrong_between_two_fields_is_said_without_the_words_of_a_library(api: Api) -> None:
    [detail] = error_of(api.client.post(f"{JOBS}/act", json={"act": "priority", "jobs": ["a"]})).details
    assert detail.message.startswith("`priority` goes with")


def test_the_description_is_written_once_however_often_anybody_asks_for_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [api.client.get(path).content for path in ("/openapi.json", "/docs")]
    monkeypatch.setattr(DescribedApi, "openapi", None)
    assert [api.client.get(path).content for path in ("/openapi.json", "/docs")] == first


@pytest.mark.parametrize(
    "path", ["/docs", "/", "/openapi.json", "/healthz", JOBS, f"{JOBS}/nobody", "/never", "/oidc/login"]
)
@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_every_answer_is_kept_by_nobody_and_runs_nothing(api: Api, path: str, token: str) -> None:
    answer = api.client.get(path, headers={"Authorization": f"Bearer {token}"})
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy


def test_answers_with_tokens_are_kept_by_nobody(api: Api) -> None:
    answer = api.client.post("/api/v1/tokens", json={"name": "mine"})
    assert answer.json()["secret"]
    assert answer.headers["Cache-Control"] == "no-store"


def test_when_a_job_was_used_is_remembered_until_it_ends(api: Api) -> None:
    job = api.submit()
    activity = api.service.activity
    with activity.use(job.id):
        pass
    assert activity.last_used(job.id) is not None
    with activity.use(job.id):
        api.engine.finish(TaskId(job.id, 1, 0))
        assert api.job(job.id).state == "succeeded"
    assert activity.last_used(job.id) is None
