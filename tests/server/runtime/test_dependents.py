"""Jobs that wait for the end of others: through turns, restarts, cancellations and the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api, error_of
from server_world import Clock, KilledError, Server, World, killed_at

from millpond.model.errors import ConflictError, InvalidInputError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId


def submit(server: Server, name: str, **fields: Any) -> None:
    handed_in = server.submit(name, **fields)
    server.turn()
    handed_in.answer.result(0)


def state(server: Server, job: str) -> str:
    info = server.loop.job_cache.get(job) or server.store.jobs.ended_job(job)
    assert info is not None
    return info.state


def end(server: Server, job: str, outcome: Outcome = Outcome.SUCCESS) -> None:
    server.engine.finish(TaskId(job, 1, 0), outcome, 0 if outcome is Outcome.SUCCESS else 3)
    server.turn(3)


def test_a_job_starts_when_the_job_it_comes_after_has_succeeded(server: Server) -> None:
    submit(server, "first")
    submit(server, "second", after=["first"])
    server.turn(3)
    assert (state(server, "first"), state(server, "second")) == ("running", "queued")
    end(server, "first")
    assert state(server, "second") == "running"
    server.run_to_the_end()
    assert all(count == 1 for count in server.world.starts.values())


@pytest.mark.parametrize(
    ("how", "outcome", "becomes"),
    [
        ("ok", Outcome.USER_ERROR, "cancelled"),
        ("any", Outcome.USER_ERROR, "running"),
        ("any", Outcome.SUCCESS, "running"),
        ("failed", Outcome.USER_ERROR, "running"),
        ("failed", Outcome.SUCCESS, "cancelled"),
    ],
)
def test_what_is_hoped_of_a_job_decides_what_its_end_means(
    server: Server, how: str, outcome: Outcome, becomes: str
) -> None:
    submit(server, "first")
    submit(server, "second", after={how: ["first"]})
    end(server, "first", outcome)
    assert state(server, "second") == becomes


def test_a_cancelled_job_takes_everything_with_it_that_waits_for_it(server: Server) -> None:
    submit(server, "a")
    submit(server, "b", after="a")
    submit(server, "c", after="b")
    submit(server, "d", after={"any": ["c"]})
    end(server, "a", Outcome.USER_ERROR)
    server.turn(3)
    assert [state(server, name) for name in "abcd"] == ["failed", "cancelled", "cancelled", "running"]
    info = server.store.jobs.ended_job("c")
    assert info is not None
    assert info.tasks[0].detail == "job b, which it waits for to succeed, was cancelled"


def test_all_of_several_are_waited_for(server: Server) -> None:
    submit(server, "a")
    submit(server, "b")
    submit(server, "c", after=["a", "b"])
    end(server, "a")
    assert state(server, "c") == "queued"
    end(server, "b")
    assert state(server, "c") == "running"


def test_a_job_that_could_never_start_is_refused(server: Server) -> None:
    submit(server, "a")
    end(server, "a", Outcome.USER_ERROR)
    for after, kind, words in (
        ("a", ConflictError, "a, which it waits for"),
        ("nobody", InvalidInputError, "'nobody'"),
    ):
        handed_in = server.submit("b", after=after)
        server.turn()
        with pytest.raises(kind, match=words):
            handed_in.answer.result(0)


def test_what_has_been_met_already_is_not_waited_for(server: Server) -> None:
    submit(server, "a")
    end(server, "a")
    submit(server, "b", after="a")
    server.turn(2)
    assert state(server, "b") == "running"


def test_a_waiting_job_can_be_stopped(server: Server) -> None:
    submit(server, "a")
    submit(server, "b", after="a")
    answer = server.loop.stop_job("b", "ada")
    server.turn()
    assert answer.result(0).state == "cancelled"
    end(server, "a")
    server.turn(3)
    assert state(server, "b") == "cancelled"
    assert TaskId("b", 1, 0) not in server.world.starts


def test_a_restarted_server_knows_who_waits_and_what_ended_meanwhile(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    first = Server(tmp_path, world, clock)
    submit(first, "a")
    submit(first, "b", after="a", key="once")
    first.store.close()
    world.end(TaskId("a", 1, 0))
    second = Server(tmp_path, world, clock)
    again = second.submit("other", after="a", key="once")
    second.turn(4)
    assert again.answer.result(0).id == "b"
    assert (state(second, "a"), state(second, "b")) == ("succeeded", "running")
    second.store.close()


@pytest.mark.parametrize("place", ["before append", "after append", "before record", "after record", "before apply"])
@pytest.mark.parametrize("which", range(1, 6))
def test_a_server_killed_anywhere_runs_each_job_once_and_in_order(tmp_path: Path, place: str, which: int) -> None:
    world, clock = World(), Clock()
    server = Server(tmp_path, world, clock)
    submit(server, "a")
    submit(server, "b", after="a")
    server.store.trip = server.engine.trip = killed_at(place, which)
    try:
        end(server, "a")
        server.run_to_the_end()
    except KilledError:
        server.store.close()
        server = Server(tmp_path, world, clock)
        server.run_to_the_end()
    server.turn(2)
    server.run_to_the_end()
    assert [state(server, name) for name in "ab"] == ["succeeded", "succeeded"]
    assert world.starts[TaskId("b", 1, 0)] == 1
    server.store.close()


def test_a_job_that_waits_for_others_cannot_be_suspended(api: Api) -> None:
    first = api.submit(name="first")
    second = api.submit(name="second", after=[first.id])
    answer = api.client.post(f"{JOBS}/{second.id}/suspend")
    assert answer.status_code == 409
    assert "waits for other jobs" in answer.text
    assert api.job(second.id).state == "queued"


def test_a_waiting_job_says_whom_it_waits_for(api: Api) -> None:
    first = api.submit(name="first")
    second = api.submit(name="second", after=[first.id])
    assert second.state == "queued"
    reason = api.client.get(f"{JOBS}/{second.id}/why").json()
    assert (reason["cause"], reason["blocked_by"]) == ("dependency", first.id)
    assert reason["summary"] == f"it waits for job {first.id} to succeed, which is running now"
    assert api.job(second.id).reason == reason["summary"]
    api.client.post(f"{JOBS}/{first.id}/stop")
    api.job(first.id)
    assert api.job(second.id).state == "cancelled"
    told = api.client.get(f"{JOBS}/{second.id}/why").json()["summary"]
    assert told == f"it was cancelled: job {first.id}, which it waits for to succeed, was cancelled"
    assert api.client.get("/api/v1/server").json()["jobs"] == {"cancelled": 2}


def test_a_job_that_waits_for_nobody_known_is_refused_over_the_api(api: Api) -> None:
    answer = api.client.post(JOBS, json={"command": "x", "after": {"ok": ["nobody"]}})
    assert answer.status_code == 422
    assert "no job 'nobody'" in error_of(answer).cause
    assert api.client.post(JOBS, json={"command": "x", "after": 3}).status_code == 422


def listed(api: Api) -> dict[str, tuple[float, float | None]]:
    """Of each job in the list, and of each by itself, when it was submitted and when it could start."""
    jobs = api.client.get(JOBS, params={"all": True}).json()["jobs"]
    alone = [api.client.get(f"{JOBS}/{job['id']}").json() for job in jobs]
    told = [{job["name"]: (job["submitted_at"], job["eligible_at"]) for job in each} for each in (jobs, alone)]
    assert told[0] == told[1]
    return told[0]


@pytest.mark.parametrize("array", [None, "0-1"])
def test_lists_say_when_a_job_was_submitted_and_when_it_could_start_whatever_it_came_after(
    tmp_path: Path, array: str | None
) -> None:
    api = Api(tmp_path / "state")
    first = api.submit(name="first")
    api.clock.now = 1_010.0
    api.submit(name="second", after=[first.id], array=array)
    assert listed(api) == {"first": (1_000.0, 1_000.0), "second": (1_010.0, None)}
    api.clock.now = 1_100.0
    api.engine.finish(TaskId(first.id, 1, 0))
    assert api.job(first.id).state == "succeeded"
    second = next(job for job in api.loop.job_cache.newest_first() if job.name == "second" and not job.parent).id
    members = [second] if array is None else [f"{second}.{index}" for index in range(2)]
    assert {api.job(job).state for job in members} == {"running"}
    wanted = {"first": (1_000.0, 1_000.0), "second": (1_010.0, 1_100.0)}
    assert listed(api) == wanted
    api.close()
    again = Api(tmp_path / "state", world=api.world, clock=api.clock)
    assert listed(again) == wanted
    for job in members:
        assert again.job(job).state == "running"
        again.engine.finish(TaskId(job, 1, 0))
    assert again.job(second).state == "succeeded"
    assert listed(again) == wanted
    again.close()


def test_a_member_of_an_array_was_submitted_with_it_and_could_start_when_its_turn_came(api: Api) -> None:
    array = api.submit(name="many", array="0-1%1").id
    first, second = f"{array}.0", f"{array}.1"
    assert api.job(first).state == "running"
    api.clock.now = 1_100.0
    assert (api.job(second).submitted_at, api.job(second).eligible_at) == (1_000.0, None)
    api.engine.finish(TaskId(first, 1, 0))
    assert api.job(first).state == "succeeded"
    assert (api.job(second).submitted_at, api.job(second).eligible_at) == (1_000.0, 1_100.0)
    assert (api.job(first).submitted_at, api.job(first).eligible_at) == (1_000.0, 1_000.0)


def test_a_list_goes_on_behind_a_job_that_had_to_wait_for_others(api: Api) -> None:
    first = api.submit(name="first")
    ids = [first.id]
    for name in ("second", "third"):
        api.clock.now += 10.0
        ids.append(api.submit(name=name, **({"after": [first.id]} if name == "second" else {})).id)
    api.clock.now += 10.0
    api.engine.finish(TaskId(first.id, 1, 0))
    for job in ids:
        assert api.job(job).state in ("succeeded", "running")
    api.engine.finish(TaskId(ids[1], 1, 0))
    assert api.job(ids[1]).state == "succeeded"
    seen = [{"name": "", "id": ""}]
    for _ in range(4):
        behind = {"all": True, "limit": 1, "behind": seen[-1]["id"]}
        seen += api.client.get(JOBS, params=behind).json()["jobs"]
    assert [job["name"] for job in seen[1:]] == ["third", "second", "first"]


def test_waits_count_from_when_a_job_could_start_and_not_at_all_before(api: Api) -> None:
    first = api.submit(name="first", gpus=4, preemptible=False)
    api.clock.now = 1_010.0
    second = api.submit(name="second", after=[first.id], gpus=4)
    api.clock.now = 1_050.0
    waits = "/api/v1/usage/waits/jobs"
    assert [job["job"] for job in api.client.get(waits).json()["jobs"]] == [first.id]
    assert 'millpond_oldest_waiting_job_seconds{queue="default"}' not in api.client.get("/metrics").text
    between = api.submit(name="between", gpus=4, priority="high")
    api.engine.finish(TaskId(first.id, 1, 0))
    assert (api.job(between.id).state, api.job(second.id).state) == ("running", "queued")
    assert 'millpond_oldest_waiting_job_seconds{queue="default"}' in api.client.get("/metrics").text
    api.clock.now = 1_080.0
    api.engine.finish(TaskId(between.id, 1, 0))
    assert api.job(second.id).state == "running"
    found = {job["job"]: job for job in api.client.get(waits).json()["jobs"]}
    assert (found[second.id]["eligible_at"], found[second.id]["waited_s"]) == (1_050.0, 30.0)
