"""The client's requests, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import UserDict
from dataclasses import asdict

import httpx2
import pytest

from millpond.client.sdk.functions import handles
from millpond.client.sdk.transport import connection
from millpond.client.sdk.transport.reconnecting import Patience
from millpond.model.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MillpondError,
    NotAllowedError,
    NotFoundError,
    NotLoggedInError,
    TooManyTriesError,
    UnavailableError,
)


def test_a_request_carries_the_token(client, server, make_job):
    server.will(200, asdict(make_job()))
    assert client.job("train-abcde").state == "running"
    assert server.requests[0].headers["authorization"] == "Bearer secret"
    assert server.requests[0].url.path == "/api/v1/jobs/train-abcde"


BUSY = {"error": {"code": "busy", "cause": "8 long answers to max are under way", "remedy": "wait"}}


def test_what_the_server_has_no_turn_for_yet_is_asked_again(client, server, make_job, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    for _ in range(3):
        server.will(503, BUSY)
    server.will(200, asdict(make_job()))
    assert client.job("train-abcde").state == "running"
    assert len(pauses) == 3


def test_a_server_that_never_has_a_turn_says_so_in_the_end(client, server, monkeypatch):
    now = iter(range(0, 1_000, 30))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    for _ in range(9):
        server.will(503, BUSY)
    with pytest.raises(BusyError, match="8 long answers to max are under way"):
        client.job("train-abcde")
    assert len(server.requests) < 9


def test_other_threads_can_ask_while_the_server_is_looked_for_anew(client, server, make_job, monkeypatch):
    find = connection.find_server

    def slowly(*where):
        assert client.job("train-abcde").state == "running"
        return find(*where)

    monkeypatch.setattr(connection, "find_server", slowly)
    for _ in range(2):
        server.will(200, asdict(make_job()))
    client.reconnect()
    assert client.job("train-abcde").state == "running"


def test_what_one_thread_asks_goes_on_while_another_finds_the_server_anew(client, server, make_job):
    class Found(UserDict[str, str]):
        def keys(self):  # as late as it can be before the request is sent
            client.reconnect()
            return super().keys()

    server.will(200, asdict(make_job()))
    ((connected,),) = [[part for part in client._connection.stream("/jobs/train-abcde", Found(), 1.0) if part]]
    assert b"train-abcde" in connected


def test_an_awaited_job_outlasts_a_server_that_is_restarted(client, server, make_job, monkeypatch):
    monkeypatch.setattr(handles, "Patience", lambda client: Patience(client, lambda _: None))
    monkeypatch.setattr(handles.PoolJob, "_value", lambda self, task: self.info.state)
    server.will_fail(httpx2.ConnectError("gone"))
    server.will(200, asdict(make_job(state="succeeded")))
    assert asyncio.run(handles.PoolJob(client, make_job()).aresult()) == "succeeded"


def test_what_has_failed_is_not_waited_for_while_its_place_is_kept(client, server, make_job):
    for _ in range(2):
        server.will(200, asdict(make_job(kept_until=99.0, exit_code=3)))
    assert handles.PoolJob(client, make_job()).wait() == "failed"
    assert client.wait("train-abcde").exit_code == 3


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "model/weights"])
def test_what_would_name_another_path_is_no_id_and_is_sent_nowhere(client, server, name):
    for act in (client.find, client.stop, client.accounts.revoke_token, client.webhooks.remove):
        with pytest.raises(InvalidInputError, match=f"'{re.escape(name)}' is no name or id.*may be empty"):
            act(name)
    assert not server.requests


def test_what_is_too_long_for_an_address_is_refused_and_sent_nowhere(client, server):
    with pytest.raises(InvalidInputError, match="no address can be made of that"):
        client.job("x" * 100_000)
    assert server.requests == []


def test_a_submission_whose_answer_was_lost_is_repeated_under_the_same_key(client, server, make_job):
    server.will_fail(httpx2.ReadError("gone"))
    server.will(201, asdict(make_job(state="queued")))
    assert client.submit({"command": "true"}).state == "queued"
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(server.requests) == 2
    assert len(keys) == 1


def test_two_submissions_have_different_keys(client, server, make_job):
    for _ in range(2):
        server.will(201, asdict(make_job()))
        client.submit({"command": "true"})
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


def test_a_key_of_any_script_travels_in_the_job_and_in_no_header(client, server, make_job):
    server.will_fail(httpx2.ReadError("gone"))
    server.will(201, asdict(make_job()))
    client.submit({"command": "true", "idempotency_key": "夜间\n1"})
    assert [json.loads(request.content)["idempotency_key"] for request in server.requests] == ["夜间\n1"] * 2
    assert not any("idempotency-key" in request.headers for request in server.requests)


@pytest.mark.parametrize("value", [math.nan, {1, 2}])
def test_what_json_cannot_hold_is_refused_with_a_remedy_before_anything_is_sent(client, server, value):
    with pytest.raises(InvalidInputError, match=r"cannot be sent as JSON.*finite numbers"):
        client.submit({"command": "true", "env": {"A": value}})
    assert not server.requests


def test_what_is_not_utf_8_is_refused_as_such_in_parameters_and_bodies_too(client, server):
    for ask in (
        lambda: client.jobs(name="\udcff"),
        lambda: client.submit({"command": "\udcff"}),
        lambda: client.images.add("torch", "1", "\udcff", print),
    ):
        with pytest.raises(InvalidInputError, match=r"not UTF-8 \(it has \\xff\)"):
            ask()
    assert not server.requests


def test_a_submission_to_nobody_is_not_repeated(client, server):
    server.will_fail(httpx2.ConnectError("refused"))
    with pytest.raises(UnavailableError, match="ask an admin whether the server runs"):
        client.submit({"command": "true"})
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotLoggedInError),
        (403, NotAllowedError),
        (429, TooManyTriesError),
        (404, NotFoundError),
        (409, ConflictError),
        (422, InvalidInputError),
        (500, MillpondError),
    ],
)
def test_a_refusal_becomes_an_error_with_cause_and_remedy(client, server, status, kind):
    server.will(status, {"error": {"cause": "no such thing", "remedy": "ask for another"}})
    with pytest.raises(kind) as caught:
        client.job("x")
    assert (caught.value.cause, caught.value.remedy) == ("no such thing", "ask for another")


def test_every_fault_of_a_refused_job_is_told(client, server):
    faults = [
        {"loc": "gpus", "message": "a fraction of several cards", "hint": "ask for whole cards"},
        {"loc": "tasks.min", "line": 3, "column": 9, "message": "too small"},
    ]
    server.will(422, {"error": {"cause": "the job is refused", "details": faults}})
    with pytest.raises(InvalidInputError) as caught:
        client.submit({})
    assert caught.value.remedy.splitlines() == [
        "gpus: a fraction of several cards (ask for whole cards)",
        "line 3, column 9: tasks.min: too small",
    ]


def test_another_kind_of_server_is_called_so(client, server):
    server.answers.append(httpx2.Response(404, content=b"<html>not found</html>"))
    with pytest.raises(UnavailableError, match="not a Millpond server"):
        client.nodes()


def test_an_answer_that_is_not_understood_is_no_traceback(client, server):
    server.will(200, {"surprise": 1})
    with pytest.raises(UnavailableError, match="not understood"):
        client.server()


def test_a_slow_server_is_told_from_an_absent_one(client, server):
    server.will_fail(httpx2.ReadTimeout("slow"))
    with pytest.raises(UnavailableError, match="did not answer in time"):
        client.server()


def test_a_job_is_found_by_the_beginning_of_its_id(client, server, make_job):
    server.will(404, {"error": {"cause": "no job 'train-a'"}})
    server.will(200, {"jobs": [asdict(make_job("train-abcde")), asdict(make_job("eval-abcde"))]})
    assert client.find("train-a").id == "train-abcde"
    assert dict(server.requests[1].url.params)["all"] == "true"


def test_a_beginning_that_several_jobs_share_is_refused_with_some_of_them(client, server, make_job):
    server.will(404, {"error": {"cause": "no job 'train'"}})
    server.will(200, {"jobs": [asdict(make_job("train-a")), asdict(make_job("train-b"))]})
    with pytest.raises(ConflictError, match=r"2 jobs begin with 'train', the newest first: train-a \w+, train-b \w+;"):
        client.find("train")


@pytest.mark.parametrize(
    ("jobs", "meant"),
    [
        ([("train-a", "train", "running"), ("train-b", "train", "failed")], "train-a"),
        ([("train-a", "train", "failed"), ("training-b", "training", "running")], "train-a"),
        ([("train-c", "train", "failed"), ("train-a", "train", "succeeded")], "train-c"),
    ],
)
def test_a_whole_name_means_the_job_that_has_it_and_has_not_ended_or_the_one_submitted_last(
    client, server, make_job, jobs, meant
):
    server.will(404, {"error": {"cause": "no job 'train'"}})
    server.will(200, {"jobs": [asdict(make_job(id_, state, name=name)) for id_, name, state in jobs]})
    assert client.find("train").id == meant


@pytest.mark.parametrize(("users", "unambiguous"), [(("ada", "max"), False), (("ada", "ada"), True)])
def test_of_ended_jobs_of_a_name_none_is_taken_that_another_user_or_a_deletion_might_mean(
    client, server, make_job, users, unambiguous
):
    server.will(404, {"error": {"cause": "no job 'train'"}})
    jobs = [make_job(f"train-{user}{number}", "failed", user=user) for number, user in enumerate(users)]
    server.will(200, {"jobs": list(map(asdict, jobs))})
    with pytest.raises(ConflictError, match="the newest first: train-ada0 failed, train-"):
        client.find("train", unambiguous=unambiguous)


def test_an_unknown_job_keeps_the_servers_words(client, server):
    server.will(404, {"error": {"cause": "no job 'x'", "remedy": "`pond ps -a` lists them"}})
    server.will(200, {"jobs": []})
    with pytest.raises(NotFoundError, match="no job 'x'"):
        client.find("x")


def test_waiting_ends_with_the_job(client, server, make_job, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr("millpond.client.sdk.resources.jobs.time.sleep", pauses.append)
    for state in ("queued", "running", "running", "failed"):
        server.will(200, asdict(make_job(state=state)))
    assert client.wait("train-abcde").state == "failed"
    assert len(pauses) == 3
    assert pauses == sorted(pauses)


def test_a_submission_is_the_job_file_as_json(client, server, make_job):
    server.will(201, asdict(make_job()))
    client.submit({"command": ["echo", "ä"], "gpus": 0.25})
    assert json.loads(server.requests[0].content) == {"command": ["echo", "ä"], "gpus": 0.25}


def test_an_empty_name_is_refused_and_asks_about_nothing_else(client, server):
    for ask in (client.find, client.why, client.queue):
        with pytest.raises(InvalidInputError, match="is no name or id"):
            ask("")
    assert server.requests == []
