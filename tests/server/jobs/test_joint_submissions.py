"""Jobs that are submitted together: taken all or not at all, and waiting for each other by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api, error_of
from server_world import Clock, KilledError, Server, World, killed_at, submission_of

from millpond.client.sdk.resources.job_matching import meant_by, the_one_meant
from millpond.model.errors import ConflictError, InvalidInputError
from millpond.server.jobs.admission import submission
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.models import adapter_of

BATCH = f"{JOBS}/batch"


def job(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": "work", **fields}


def together(api: Api, *jobs: dict[str, Any], key: str = "") -> list[JobInfo]:
    answer = api.client.post(BATCH, json={"jobs": jobs}, headers={"Idempotency-Key": key} if key else {})
    assert answer.status_code == 201, answer.text
    return [adapter_of(JobInfo).validate_python(each) for each in answer.json()["jobs"]]


def refused(api: Api, *jobs: dict[str, Any]) -> str:
    """What is wrong, in words; nothing was submitted."""
    before = api.client.get(JOBS, params={"all": True}).json()["jobs"]
    answer = api.client.post(BATCH, json={"jobs": jobs})
    assert answer.status_code in (404, 409, 422), answer.text
    assert api.client.get(JOBS, params={"all": True}).json()["jobs"] == before
    error = error_of(answer)
    return " ".join([error.cause, *(detail.message for detail in error.details)])


def document(api: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = api.client.get(f"{JOBS}/{name}/document").json()
    return found


def test_a_pipeline_in_one_submission_names_its_own_jobs(api: Api) -> None:
    train, prepare, report = together(
        api, job("train", after="prepare"), job("prepare"), job("report", after={"ok": ["train"], "any": ["prepare"]})
    )
    assert document(api, train.id)["after"] == {"ok": [prepare.id]}
    assert document(api, report.id)["after"] == {"ok": [train.id], "any": [prepare.id]}
    assert [api.job(each.id).state for each in (prepare, train, report)] == ["running", "queued", "queued"]


def test_an_id_that_a_job_has_or_had_is_not_given_to_another_of_its_name(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([0, *(0, 0, 0), *(1, 1, 2), 3])
    monkeypatch.setattr(submission.secrets, "token_bytes", lambda length: bytes([next(drawn)] * length))
    assert [each.id for each in together(api, job("train"))] == ["train-aaaaa"]
    several = together(api, job("train"), job("train"), job("train"))
    assert sorted(each.id for each in several) == ["train-bbbbb", "train-ccccc", "train-ddddd"]


def test_a_member_of_an_array_of_the_same_submission_can_be_waited_for(api: Api) -> None:
    parts, first, all_of = together(
        api, job("parts", array="0-3"), job("first", after="parts[0]"), job("all", after="parts")
    )
    assert document(api, first.id)["after"] == {"ok": [f"{parts.id}.0"]}
    assert document(api, all_of.id)["after"] == {"ok": [parts.id]}
    assert api.job(first.id).state == api.job(all_of.id).state == "queued"


@pytest.mark.parametrize("array", ["0-3", None])
def test_a_member_that_an_array_of_the_submission_does_not_have_is_not_waited_for(api: Api, array: str | None) -> None:
    parts = job("parts") if array is None else job("parts", array=array)
    assert "no job 'parts[4]' to wait for" in refused(api, parts, job("last", after="parts[4]"))


def test_a_sweep_can_be_part_of_a_pipeline(api: Api) -> None:
    sweep = {"parameters": {"lr": [0.1, 0.2]}}
    prepare, tune = together(api, job("prepare"), job("tune", sweep=sweep, command="x {{lr}}", after="prepare"))
    assert document(api, tune.id)["after"] == {"ok": [prepare.id]}
    assert api.job(tune.id).state == "queued"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (job("second", gpus=1_000), "job 2 of 3 ('second'): "),
        (job("second", after="nobody"), "job 2 of 3 ('second'): there is no job 'nobody'"),
        (job("second", memory=12), "job 2 of 3 ('second'): "),
        (job("second", data={"in": "dataset/none"}), "job 2 of 3 ('second'): "),
        (job("second", after="third"), "wait for each other: second after third after second"),
    ],
)
def test_one_job_that_cannot_be_taken_refuses_all_of_them(api: Api, bad: dict[str, Any], words: str) -> None:
    assert words in refused(api, job("first"), bad, job("third", after="second"))


def test_two_jobs_of_one_name_cannot_be_waited_for_by_it(api: Api) -> None:
    assert "2 jobs are called 'twin'" in refused(api, job("twin"), job("twin"), job("last", after="twin"))
    assert len(together(api, job("twin"), job("twin"))) == 2


def test_the_callers_own_jobs_are_found_by_name_the_living_before_the_last(api: Api) -> None:
    first = api.submit(name="prep")
    later = api.submit(name="next", after="prep")
    assert document(api, later.id)["after"] == {"ok": [first.id]}
    second = api.submit(name="prep")
    answer = api.client.post(JOBS, json=job("next", after="prep"))
    assert answer.status_code == 422
    assert first.id in error_of(answer).cause
    assert second.id in error_of(answer).cause
    for each in (first, second):
        api.client.post(f"{JOBS}/{each.id}/stop")
        api.job(each.id)
    api.clock.now += 5.0
    third = api.submit(name="prep")
    api.client.post(f"{JOBS}/{third.id}/stop")
    api.job(third.id)
    last = api.submit(name="next", after={"any": ["prep"]})
    assert document(api, last.id)["after"] == {"any": [third.id]}


def test_a_name_that_several_jobs_of_a_submission_wait_for_is_looked_up_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = api.submit(name="prep")
    api.client.post(f"{JOBS}/{first.id}/stop")
    api.job(first.id)
    sought: list[str] = []
    look_up = JobStore.latest_named

    def counted(store: JobStore, name: str, user: str) -> JobInfo | None:
        sought.append(name)
        return look_up(store, name, user)

    monkeypatch.setattr(JobStore, "latest_named", counted)
    after = {"any": ["prep"]}
    jobs = together(api, job("one", after=after), job("two", after=after), job("three", after=after))
    assert [document(api, each.id)["after"] for each in jobs] == [{"any": [first.id]}] * 3
    assert sought == ["prep"]


def test_a_repeated_submission_gives_the_same_jobs(api: Api) -> None:
    jobs = (job("prepare"), job("train", after="prepare"))
    first = [each.id for each in together(api, *jobs, key="once")]
    assert [each.id for each in together(api, *jobs, key="once")] == first
    changed = api.client.post(
        BATCH, json={"jobs": [job("prepare", gpus=1), jobs[1]]}, headers={"Idempotency-Key": "once"}
    )
    assert changed.status_code == 409


def test_a_job_that_was_submitted_before_is_the_one_that_a_new_one_waits_for(api: Api) -> None:
    prepare = api.submit(name="prepare", idempotency_key="p")
    known = {"name": "prepare", "command": "work", "idempotency_key": "p"}
    again, train = together(api, known, job("train", after="prepare"))
    assert again.id == prepare.id
    assert document(api, train.id)["after"] == {"ok": [prepare.id]}
    assert "same idempotency key" in refused(api, {**known, "idempotency_key": "q"}, {**known, "idempotency_key": "q"})


@pytest.mark.parametrize("body", [[], {}, {"jobs": []}, {"jobs": {}}, {"jobs": [1]}, {"jobs": [{}] * 1_001}, 7])
def test_what_is_no_list_of_jobs_is_refused(api: Api, body: Any) -> None:
    answer = api.client.post(BATCH, json=body)
    assert answer.status_code == 422
    assert error_of(answer).cause


def test_the_scheduler_takes_all_or_none(server: Server) -> None:
    good, bad = submission_of("good"), submission_of("bad", gpus=1_000)
    answer = server.loop.submit(good, bad)
    server.turn()
    with pytest.raises(InvalidInputError):
        answer.result(0)
    assert not server.store.jobs.is_job("good")
    taken = server.loop.submit(submission_of("late", after="early"), submission_of("early"))
    server.turn()
    assert [info.id for info in taken.result(0)] == ["late", "early"]
    server.run_to_the_end()
    ended = server.store.jobs.ended_job("late")
    assert ended is not None
    assert ended.state == "succeeded"


@pytest.mark.parametrize("place", ["before append", "after append"])
def test_a_server_killed_while_it_takes_them_has_all_or_none(tmp_path: Path, place: str) -> None:
    world, clock = World(), Clock()
    server = Server(tmp_path, world, clock)
    server.turn()
    server.store.trip = killed_at(place, 1)
    server.loop.submit(submission_of("late", after="early"), submission_of("early"))
    with pytest.raises(KilledError):
        server.turn()
    server.store.close()
    server = Server(tmp_path, world, clock)
    known = [server.store.jobs.is_job(name) for name in ("late", "early")]
    assert known == [place == "after append"] * 2
    server.run_to_the_end()
    server.store.close()


def test_a_key_that_came_with_another_job_refuses_all(server: Server) -> None:
    server.submit("a", key="k")
    server.turn()
    answer = server.loop.submit(submission_of("b"), submission_of("c", key="k", gpus=1))
    server.turn()
    with pytest.raises(ConflictError):
        answer.result(0)
    assert not server.store.jobs.is_job("b")


NAMES = [
    ("My_Job", "my-job-"),
    ("Größe-2", "grosse-2-"),
    ("Обучение", "job-"),
    ("训练.v2", "v2-"),
    ("résumé", "resume-"),
    ("हिन्दी", "job-"),
]


@pytest.mark.parametrize(("name", "slug"), NAMES)
def test_names_keep_their_spelling_and_ids_are_slugs(api: Api, name: str, slug: str) -> None:
    info = api.submit(name=name)
    assert info.name == name
    assert info.id.startswith(slug)
    assert info.id.isascii()
    assert document(api, api.submit(name="next", after=name).id)["after"] == {"ok": [info.id]}


def test_a_name_is_the_same_however_its_accents_are_written(api: Api) -> None:
    info = api.submit(name="re\u0301sume\u0301")
    assert info.name == "résumé"
    assert document(api, api.submit(name="next", after="re\u0301sume\u0301").id)["after"] == {"ok": [info.id]}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a" * 101,
        "x" * 10_000,
        "a\u202eb",
        "\u200fa",
        "a\u200bb",
        "a\nb",
        "a\x00b",
        "a b",
        "a/b",
        "-a",
        "_a",
        "..",
        "\u0301a",
    ],
)
def test_hostile_names_stay_refused(api: Api, name: str) -> None:
    answer = api.client.post(JOBS, json=job(name))
    assert answer.status_code == 422
    assert len(error_of(answer).cause) < 500
    assert error_of(answer).cause.isprintable()
    assert api.client.post(JOBS, json=job("next", after=name)).status_code == 422


def test_a_command_finds_a_job_by_its_name_as_it_is_typed(api: Api) -> None:
    jobs = [api.job(api.submit(name=name).id) for name in ("My_Job", "my-other", "训练")]
    for typed, found in (("My_Job", 0), ("My_", 0), ("my-job", 0), ("my-o", 1), ("训练", 2), ("训", 2)):
        assert the_one_meant(typed, meant_by(typed, jobs)).id == jobs[found].id


def test_a_name_that_is_typed_far_too_long_is_not_repeated_in_full(api: Api) -> None:
    assert len(error_of(api.client.get(f"{JOBS}/{'x' * 10_000}")).cause) < 200
