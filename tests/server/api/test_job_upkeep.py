"""Looking at what happened, and dropping jobs that have ended, through the API."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from api_world import JOBS, Api, error_of
from server_world import Clock, Server, World

from millpond.node.task.records import TaskId, job_dir
from millpond.server.runtime.clock import SLOWER_BY


def ended(api: Api, **fields: object) -> str:
    """The id of a job that has succeeded."""
    job = api.submit(**fields)
    assert api.job(job.id).state == "running"
    api.engine.finish(TaskId(job.id, 1, 0))
    assert api.job(job.id).state == "succeeded"
    return job.id


def test_the_end_of_a_time_limit_is_by_the_clock_of_readers_where_that_was_set_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.submit(time_limit="30m").id
    ends_at = api.job(job).limit_ends_at
    assert ends_at is not None
    now = api.loop.now
    monkeypatch.setattr(time, "time", lambda: now - 600.0)
    (listed,) = api.client.get(JOBS).json()["jobs"]
    extended = api.client.post(f"{JOBS}/{job}/extend", json={"by_s": 60}).json()
    for shown, end_s in (
        (listed, ends_at),
        (extended, ends_at + 60),
        (api.client.get(f"{JOBS}/{job}").json(), ends_at + 60),
    ):
        assert shown["limit_ends_at"] == pytest.approx(now - 600.0 + (end_s - now) / (1.0 - SLOWER_BY), abs=5)


def test_the_job_file_of_a_job_is_given_back(api: Api) -> None:
    job = api.submit(name="train", env={"A": "b"}, gpus=1)
    assert api.client.get(f"{JOBS}/{job.id}/document").json() == {
        "command": "work", "name": "train", "env": {"A": "b"}, "gpus": 1,
    }  # fmt: skip
    assert api.client.get(f"{JOBS}/nobody/document").status_code == 404


def test_a_job_that_has_ended_is_deleted_with_all_it_wrote(api: Api) -> None:
    job = ended(api)
    folder = job_dir(api.state_dir, job)
    (folder / "sealed").mkdir(parents=True)
    (folder / "sealed" / "output").write_text("much")
    (folder / "sealed").chmod(0o500)
    assert api.client.delete(f"{JOBS}/{job}").json()["state"] == "succeeded"
    assert not folder.exists()
    for path in (job, f"{job}/events", f"{job}/logs", f"{job}/document", f"{job}/why"):
        assert api.client.get(f"{JOBS}/{path}").status_code == 404
    assert api.client.get(JOBS, params={"all": True}).json()["jobs"] == []
    assert api.client.get("/api/v1/server").json()["jobs"] == {}
    assert api.client.delete(f"{JOBS}/{job}").status_code == 404


def test_what_a_deleted_job_used_stays_in_the_books(api: Api) -> None:
    job = ended(api, gpus=1)
    api.client.delete(f"{JOBS}/{job}")
    rows = api.client.get("/api/v1/usage", params={"by": "job", "until": 1e9}).json()["rows"]
    assert [row["name"] for row in rows] == [job]


def test_what_a_job_holds_counts_up_to_now_also_in_a_month_that_is_not_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.job(api.submit(gpus=2).id).state == "running"
    begin = api.clock.now
    monkeypatch.setattr("millpond.server.api.routes.reports.time", SimpleNamespace(time=lambda: begin + 1_800))

    def gpu_hours(**span: float) -> list[float]:
        rows = api.client.get("/api/v1/usage", params={"since": begin, **span}).json()["rows"]
        return [row["gpu_hours"] for row in rows]

    assert gpu_hours() == gpu_hours(until=begin + 1e6) == [pytest.approx(1.0, abs=0.01)]
    assert gpu_hours(until=begin + 900) == [pytest.approx(0.5, abs=0.01)]
    assert gpu_hours(since=begin + 5_000, until=begin + 1e6) == []


def test_a_job_that_has_not_ended_is_not_deleted(api: Api) -> None:
    job = api.submit()
    answer = api.client.delete(f"{JOBS}/{job.id}")
    assert answer.status_code == 409
    assert error_of(answer).remedy == f"end it first: `pond stop {job.id}`"
    assert api.job(job.id).state == "running"


def test_a_restart_that_replays_a_deleted_job_does_not_bring_it_back(tmp_path: Path) -> None:
    clock, world = Clock(), World()
    first = Server(tmp_path, world, clock)
    first.submit("j", key="k")
    first.turn(2)
    first.engine.finish(TaskId("j", 1, 0))
    first.turn(3)
    assert first.store.deletion.delete("j")
    second = Server(tmp_path, world, clock)
    second.turn(2)
    assert second.store.jobs.ended_job("j") is None
    assert second.store.jobs.repeated("k") is None
    assert second.store.histories.of_job("j")[0], "a restart would replay it"
    for _ in range(2):  # snapshots
        second.turn()
        second.submit("other")
        second.turn()
        second.processor.keep_snapshot()
    assert second.store.histories.of_job("j") == ([], [])
    assert not second.store.jobs.is_job("j")


def test_what_happened_of_late_is_told_of_jobs_and_machines_and_followed(api: Api) -> None:
    job = ended(api)
    api.client.post("/api/v1/nodes/n1/close", json={"reason": "new disks"})
    told = api.client.get("/api/v1/events").json()["events"]
    lines = [(item["about"], item["text"]) for item in told]
    assert lines[0] == ("n1", "joined with 4 cards")
    assert (job, "submitted by ada to queue default") in lines
    assert (job, "start 1 task on n1 (attempt 1, fits)") in lines
    assert (job, "1 task running") in lines
    assert lines[-1] == ("n1", "closed by ada: new disks")
    assert [item["seq"] for item in told] == sorted(item["seq"] for item in told)
    for limit in (1, 3):
        latest = api.client.get("/api/v1/events", params={"limit": limit}).json()["events"]
        assert latest == told[-limit:]
    seq, rest = 0, []
    while fresh := api.client.get("/api/v1/events", params={"after": seq, "limit": 2}).json()["events"]:
        rest += fresh
        seq = fresh[-1]["seq"]
    assert rest == told, "followed in small steps, nothing is missing and nothing comes twice"


def test_the_history_of_a_machine_is_its_own(api: Api) -> None:
    api.submit()
    api.client.post("/api/v1/nodes/n1/close", json={"until": 9e9})
    api.client.post("/api/v1/nodes/n1/open", json={})
    told = api.client.get("/api/v1/nodes/n1/events").json()["events"]
    assert [item["what"] for item in told] == ["NodeJoined", "NodeClosed", "NodeOpened"]
    assert api.client.get("/api/v1/nodes/n7/events").json()["events"] == []
