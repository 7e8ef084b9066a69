"""The reader of bodies that a client has without pydantic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from job_infos import job_info
from millpond.specs.api.codec import from_json, to_plain
from millpond.specs.api.jobs.jobs import ArrayInfo, DeviceGrant, JobInfo, JobList, TaskInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo, StartInfo
from millpond.specs.api.models import adapter_of

GRANT = DeviceGrant(uuid="GPU-1", index=0, model="V100", compute_milli=500, limit_milli=500, memory_mib=16_384)
JOB = job_info(
    id="train-abcde",
    name="Größe",
    submitted_at=1000.5,
    started_at=1001.0,
    tasks=[TaskInfo(task=0, role="worker", state="running", node="n1", devices=[GRANT])],
    array=ArrayInfo(count=3, indices="0-2"),
    warnings=["`a` is ignored"],
)
REASON = ReasonInfo(
    job=JOB.id,
    state="queued",
    cause="capacity",
    summary="no room",
    nodes={"cpu": 2},
    remedy=RemedyInfo(change="ask for one card"),
    start=StartInfo(earliest_at=2000.0),
)


@pytest.mark.parametrize("body", [JOB, JobList(jobs=[JOB, JOB], truncated=True), REASON])
def test_a_client_reads_what_the_server_writes(body: Any) -> None:
    written = adapter_of(type(body)).dump_json(body)
    assert from_json(type(body), written) == body
    assert json.loads(written) == to_plain(body)


def test_fields_of_a_newer_server_are_ignored() -> None:
    assert from_json(JobInfo, json.dumps(to_plain(JOB) | {"colour": "blue"}).encode()) == JOB


def test_a_whole_number_is_an_instant_and_a_fraction_is_no_number_of_tasks() -> None:
    assert from_json(StartInfo, b'{"earliest_at": 5}') == StartInfo(earliest_at=5.0)
    with pytest.raises(ValueError, match="is no int"):
        from_json(ArrayInfo, b'{"count": 1.5, "indices": "0"}')


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"job": 1}', '{"earliest_at": null}', '{"earliest_at": "soon"}', '{"earliest_at": true}'],
)
def test_what_is_no_such_body_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - that of JSON or of ours
        from_json(StartInfo, text.encode())


def test_a_job_file_is_read_as_it_is() -> None:
    assert from_json(dict[str, Any], b'{"gpus": 1, "env": {"A": null}}') == {"gpus": 1, "env": {"A": None}}
