"""The jobs of a server as rows of a trace: what is kept of them, what is left out, and that a replay reads it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from api_world import Api, error_of

from millpond.client.cli.commands.simulation.history import trace_text
from millpond.node.task.records import TaskId
from millpond.server.store import schema
from millpond.simulation.readers import native, read_workload
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.reports.history import HistoryPage, TraceRow


def page(api: Api, **params: Any) -> HistoryPage:
    answer = api.client.get("/api/v1/history", params=params)
    assert answer.status_code == 200, answer.text
    return HistoryPage.model_validate_json(answer.content)


def run(api: Api, ran_s: float = 100.0, **fields: Any) -> JobInfo:
    job = api.submit(**fields)
    assert api.job(job.id).state == "running"
    api.clock.now += ran_s
    end(api, job)
    return job


def end(api: Api, job: JobInfo, attempt: int = 1) -> None:
    for task in range(len(job.tasks)):
        api.engine.finish(TaskId(job.id, attempt, task))
    assert api.job(job.id).state == "succeeded"


def test_the_columns_of_a_row_are_those_of_the_native_form() -> None:
    assert {*TraceRow.model_fields} <= {*native.NEEDED, *native.OPTIONAL}


def test_a_replay_gets_the_jobs_as_they_were_submitted(api: Api, tmp_path: Path) -> None:
    begin = api.clock.now
    run(api, 60.0, name="whole", gpus=2, cpus=3, memory="6GiB", gpu_models=["V100"], priority="high")
    run(api, 30.5, gpus=0.25, preemptible=False, time_limit="2h", min_run_time="5m")
    run(api, 10.0, gpus=1, tasks=4, cpus=1, memory="1GiB")
    run(api, 10.0, gpus={"memory": "8GiB"})
    rows = page(api).rows
    assert rows[0].submit_s == begin
    (tmp_path / "jobs.csv").write_text(trace_text(rows))
    whole, slice_, gang, by_memory = read_workload("native", tmp_path / "jobs.csv", 8).jobs
    assert [entry.submit_at for entry in (whole, slice_, gang)] == pytest.approx([0.0, 60.0, 90.5])
    assert [entry.duration_s for entry in (whole, slice_, gang)] == pytest.approx([60.0, 30.5, 10.0])
    (role,) = whole.job.roles
    assert (role.request.devices, role.request.cpu_milli, role.request.memory_mib) == (2, 3000, 6144)
    assert (whole.job.user, whole.job.queue, whole.job.name, role.request.models) == (
        "ada",
        "default",
        "whole",
        ("V100",),
    )
    assert whole.job.priority.name == "HIGH"
    assert slice_.job.roles[0].request.slice.compute_milli == 250
    assert (slice_.job.preemptible, slice_.job.time_limit_s, slice_.job.minimum_run_s) == (False, 7200.0, 300.0)
    assert (gang.job.roles[0].desired, gang.job.roles[0].request.devices) == (4, 1)
    assert by_memory.job.gpu_milli == 250, "8 of 32 GiB"


@pytest.mark.parametrize(("checkpoint", "lasts_s"), [(None, 40.0), ({"signal": "SIGUSR1"}, 140.0)])
def test_what_a_preempted_run_did_counts_where_the_job_saves_its_work(api: Api, checkpoint, lasts_s) -> None:
    fields = {} if checkpoint is None else {"checkpoint": checkpoint}
    job = api.submit(gpus=1, **fields)
    assert api.job(job.id).state == "running"
    api.clock.now += 100
    assert api.client.post(f"/api/v1/jobs/{job.id}/migrate", json={"restart": True}).status_code == 202
    assert api.job(job.id).attempt == 2
    api.clock.now += 40
    end(api, job, attempt=2)
    (row,) = page(api).rows
    assert row.duration_s == pytest.approx(lasts_s)


def test_jobs_that_tell_nothing_are_left_out_and_counted(api: Api) -> None:
    run(api, gpus=1)
    running = api.submit(gpus=4)
    waiting = api.submit(gpus=4)
    assert api.job(running.id).state == "running"
    api.client.post(f"/api/v1/jobs/{waiting.id}/stop")
    api.job(waiting.id)
    found = page(api)
    assert len(found.rows) == 1
    assert found.left_out == {"never ran": 1, "wait or run still": 1}
    assert found.cluster == "1x4:V100"


def test_the_history_comes_in_parts_and_by_span(api: Api) -> None:
    jobs = [run(api, 10.0, gpus=1).id for _ in range(5)]
    seen, after = [], ""
    for _ in range(3):
        part = page(api, limit=2, after=after)
        seen += [row.job for row in part.rows]
        after = part.next
    assert (seen, after) == (jobs, "")
    second = page(api, since=1_010, until=1_030)
    assert [row.job for row in second.rows] == jobs[1:3]
    for wrong in ("soon", "0 \0"):
        answer = api.client.get("/api/v1/history", params={"after": wrong})
        assert "no place in the history" in error_of(answer).cause


def test_the_files_of_all_jobs_of_a_part_are_read_at_once(api: Api) -> None:
    for job in [run(api, 10.0, gpus=1).id for _ in range(8)]:
        api.service.job_files.forget(job)
    queries: list[str] = []
    sa.event.listen(api.store.database, "before_cursor_execute", lambda *seen: queries.append(seen[2]))
    assert len(page(api).rows) == 8
    assert len([query for query in queries if "jobs.document" in query]) == 1


def test_jobs_whose_files_are_damaged_are_counted(api: Api) -> None:
    kept, damaged = run(api, gpus=1), run(api, gpus=1)
    with api.store.database.begin() as connection:
        connection.execute(sa.update(schema.jobs).where(schema.jobs.c.id == damaged.id).values(document="{"))
    api.service.job_files.forget(damaged.id)
    found = page(api)
    assert [row.job for row in found.rows] == [kept.id]
    assert found.left_out == {"this version does not understand their job files": 1}


def test_members_of_an_array_are_jobs_of_their_own(api: Api, tmp_path: Path) -> None:
    array = api.submit(gpus=1, array=2)
    api.job(array.id)
    api.clock.now += 5
    for index in range(2):
        api.engine.finish(TaskId(f"{array.id}.{index}", 1, 0))
    api.job(array.id)
    rows = list(csv.DictReader(trace_text(page(api).rows).splitlines()))
    assert [(row["job"], row["gpus"], row["duration_s"]) for row in rows] == [
        (f"{array.id}.0", "1", "5.000"),
        (f"{array.id}.1", "1", "5.000"),
    ]


def test_parts_of_the_history_go_on_behind_a_job_that_had_to_wait_for_others(api: Api) -> None:
    first = api.submit(name="first")
    api.clock.now += 10.0
    held = api.submit(name="held", after=[first.id])
    api.clock.now += 10.0
    last = run(api, name="last")
    end(api, first)
    api.job(held.id)
    end(api, held)
    found, after = [], ""
    for _ in range(4):
        part = page(api, limit=1, after=after)
        found += [(row.job, row.submit_s) for row in part.rows]
        if not (after := part.next):
            break
    assert found == [(first.id, 1_000.0), (held.id, 1_120.0), (last.id, 1_020.0)]
