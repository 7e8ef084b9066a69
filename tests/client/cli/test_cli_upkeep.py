"""``pond get``, ``events``, ``clone`` and ``delete``: looking at jobs, once more, and no more."""

from __future__ import annotations

import json
from dataclasses import asdict

import httpx2
import pytest
import yaml

from millpond.client.cli.printing import formats

REASON = {"job": "train-abcde", "state": "queued", "cause": "no-room", "summary": "it asks for 4 GPUs; 2 are free"}
TASK = {"task": 0, "role": "worker", "state": "running", "node": "n1"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("millpond.client.cli.commands.inspection.get.time.time", lambda: 1070.0)
    monkeypatch.setattr("millpond.client.cli.commands.cluster.events.time.sleep", lambda _: None)


def event(seq, text, **fields):
    """An entry of a history."""
    return {"seq": seq, "at": 1000.0 + seq, "what": "Noted", "decided": False, "text": text, "data": {}} | fields


# ---- get --------------------------------------------------------------------------------------------------------


def will_tell(server, job, reason=None, wrote=(), document=None):
    """The answers that ``pond get`` asks for; `document`: status and body of that about the job file, if it asks."""
    for status, body in filter(
        None,
        ((200, job), (200, job), document, (200, reason or REASON), (200, {"events": [event(1, "submitted")]})),
    ):
        server.will(status, body)
    if job["state"] == "failed":
        pieces = ({"job": job["id"], "task": 1, "attempt": 1, "offset": 0, "next_offset": 0} | piece for piece in wrote)
        server.will(200, stream=iter([b"".join(json.dumps(piece).encode() + b"\n" for piece in pieces)]))


def test_why_shows_what_a_job_that_failed_wrote_last(server, run_pond, make_job):
    job = make_job(state="failed", tasks=[TASK | {"state": "failed", "exit_code": 1}], exit_code=1, attempt=1)
    server.will(200, asdict(job))
    server.will(200, REASON | {"state": "failed", "cause": "failed", "summary": "it failed with exit code 1"})
    piece = {"job": job.id, "task": 0, "attempt": 1, "offset": 0, "next_offset": 0, "data": "loading\nno such file\n"}
    server.will(200, stream=iter([json.dumps(piece).encode() + b"\n"]))
    assert run_pond("why", "train-abcde")[1].splitlines() == [
        "train-abcde: failed",
        "  why     it failed with exit code 1",
        "    loading",
        "    no such file",
    ]


def test_why_shows_of_an_array_that_failed_what_its_first_failed_member_wrote_last(server, run_pond, make_job):
    member = make_job(id="tune.3", state="failed", tasks=[TASK | {"state": "failed", "exit_code": 1}], attempt=1)
    server.will(200, asdict(make_job(state="failed", array={"count": 9, "indices": "0-8", "failed": 2})))
    server.will(200, REASON | {"state": "failed", "cause": "failed", "summary": "it failed: 9/9 done, 2 failed"})
    server.will(200, {"jobs": [asdict(member)]})
    server.will(200, REASON | {"job": "tune.3", "summary": "it failed with exit code 1"})
    piece = {"job": "tune.3", "task": 0, "attempt": 1, "offset": 0, "next_offset": 0, "data": "no such file\n"}
    server.will(200, stream=iter([json.dumps(piece).encode() + b"\n"]))
    assert run_pond("why", "train-abcde")[1].splitlines() == [
        "train-abcde: failed",
        "  why     it failed: 9/9 done, 2 failed",
        "  member  tune.3: it failed with exit code 1",
        "    no such file",
    ]
    assert "members=train-abcde&state=failed" in str(server.requests[2].url)


def test_daemons_of_a_job_that_has_succeeded_are_shown_as_stopped_and_not_blamed(server, run_pond, make_job):
    worker = TASK | {"state": "succeeded", "exit_code": 0}
    daemon = worker | {"task": 1, "role": "ps", "exit_code": None, "detail": "stopped when the work was done"}
    job = make_job(state="succeeded", tasks=[worker, daemon], exit_code=0, started_at=1000.0, ended_at=1060.0)
    will_tell(server, asdict(job))
    out = run_pond("get", "train-abcde")[1]
    assert "worker   1 succeeded on n1\n" in out
    assert "ps       1 stopped when the work was done on n1\n" in out
    assert out.count("stopped when") == 1


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        (
            {"state": "queued", "attempt": 0},
            [
                ("done", "submitted", "{1000}"),
                ("now", "queued", "submitted 1m10s ago"),
                ("", "why", REASON["summary"]),
            ],
        ),
        (
            {"state": "starting", "tasks": [TASK]},
            [
                ("done", "submitted", "{1000}"),
                ("done", "placed", "on n1"),
                ("now", "started", "its processes are being started"),
            ],
        ),
        (
            {"state": "running", "tasks": [TASK], "attempt": 2, "first_started_at": 1020.0, "started_at": 1040.0},
            [
                ("done", "submitted", "{1000}"),
                ("done", "placed", "on n1, run 2"),
                ("done", "started", "{1040}, the first run 20s after its submission"),
                ("now", "running", "runs for 30s"),
            ],
        ),
        (
            {"state": "running", "tasks": [TASK], "started_at": 1040.0, "limit_ends_at": 2000.0},
            [
                ("done", "submitted", "{1000}"),
                ("done", "placed", "on n1"),
                ("done", "started", "{1040}, 40s after its submission"),
                ("now", "running", f"runs for 30s; its time limit ends at {formats.instant_text(2000.0)}"),
            ],
        ),
        (
            {
                "state": "failed",
                "tasks": [TASK | {"detail": "lost"}],
                "first_started_at": 1020.0,
                "ended_at": 1050.0,
                "exit_code": 137,
            },
            [
                ("done", "submitted", "{1000}"),
                ("done", "placed", "on n1"),
                ("done", "started", "{1020}, 20s after its submission"),
                ("done", "failed", "{1050}, exit code 137, 30s after its start: lost"),
            ],
        ),
        (
            {"state": "cancelled", "attempt": 0, "ended_at": 1050.0},
            [
                ("done", "submitted", "{1000}"),
                ("done", "placed", "never"),
                ("done", "started", "never"),
                ("done", "cancelled", "{1050}, exit code 143"),
            ],
        ),
    ],
    ids=["waits", "starts", "runs", "runs up to a limit", "failed", "cancelled"],
)
def test_a_job_is_shown_up_to_the_first_step_that_is_not_done(server, run_pond, make_job, fields, steps):
    will_tell(server, asdict(make_job(**fields)))
    code, out, _ = run_pond("get", "train-abcde")
    told = [(line[2:6].strip(), line[8:17].strip(), line[19:]) for line in out.splitlines()[1:]]
    at = {f"{{{second}}}": formats.instant_text(second, seconds=True) for second in (1000, 1020, 1040, 1050)}
    for text, instant in at.items():
        steps = [(mark, name, what.replace(text, instant)) for mark, name, what in steps]
    assert (code, told) == (0, steps)


def test_a_name_is_shown_as_it_was_written_where_the_id_does_not_have_it(server, run_pond, make_job):
    will_tell(server, asdict(make_job("grosse-abcde", name="Größe")))
    assert run_pond("get", "grosse-abcde")[1].splitlines()[1] == "        name       Größe"


@pytest.mark.parametrize(
    ("network", "told"),
    [("host", ["the machine's"]), ("private", ["private, shared by its tasks alone"]), ("", [])],
)
def test_the_network_of_a_run_is_shown_where_it_is_known(server, run_pond, make_job, network, told):
    will_tell(server, asdict(make_job(tasks=[TASK], network=network)))
    lines = run_pond("get", "train-abcde")[1].splitlines()
    assert [line[19:] for line in lines if line[8:17].strip() == "network"] == told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"held_by": "gate"}, "kept to its part of the card by the gate"),
        (
            {"held_by": "gate", "memory_by_kernel": True},
            "kept to its part of the card by the gate, and its device memory by the kernel too (dmem)",
        ),
        (
            {"held_by": "dmem", "memory_by_kernel": True},
            "kept to its part of the card by the kernel, which bounds its device memory and not its time (dmem)",
        ),
        (
            {"held_by": "nothing", "hold_reason": "no C compiler"},
            "nothing keeps it to its part of the card: no C compiler",
        ),
    ],
)
def test_what_keeps_a_run_to_its_part_of_a_card_is_shown(server, run_pond, make_job, fields, told):
    will_tell(server, asdict(make_job(tasks=[TASK], **fields)))
    assert " ".join(run_pond("get", "train-abcde")[1].split()).endswith(f" isolation {told}")


def test_the_tasks_of_each_role_are_counted(server, run_pond, make_job):
    states = [
        ("chief", "running", "n1"),
        ("worker", "running", "n1"),
        ("worker", "queued", ""),
        ("worker", "running", "n2"),
    ]
    tasks = [{"task": n, "role": role, "state": state, "node": node} for n, (role, state, node) in enumerate(states)]
    will_tell(server, asdict(make_job(tasks=tasks)))
    out = run_pond("get", "train-abcde")[1]
    for told in ("tasks      4 tasks", "chief    1 running on n1", "worker   2 running, 1 queued on n1, n2"):
        assert told in out


def test_a_service_says_how_many_of_its_replicas_are_ready(server, run_pond, make_job):
    will_tell(server, asdict(make_job(kind="service", tasks=[TASK])))
    server.will(200, {"service": "train-abcde", "path": "/proxy/train-abcde/", "replicas": 3, "ready": 2})
    assert "replicas   2 of 3 ready\n" in run_pond("get", "train-abcde")[1]


def test_a_failed_job_names_its_task_and_shows_what_that_wrote_last(server, run_pond, make_job):
    failed = {"task": 1, "state": "failed", "exit_code": 3, "detail": "exit code 3"}
    job = make_job(state="failed", tasks=[TASK | {"state": "cancelled"}, TASK | failed], exit_code=3, ended_at=1050.0)
    pieces = [{"data": "50 %\r100 %\n\x1b[31mTraceback\x1b[0m\x07\n", "stream": "stderr"}, {"data": "x" * 100 + "\n"}]
    will_tell(server, asdict(job), wrote=pieces)
    lines = run_pond("get", "train-abcde")[1].splitlines()
    assert server.requests[-1].url.params["task"] == "1"
    assert server.requests[-1].url.params["tail"] == "10"
    assert any(line.endswith(": task 1 (worker)") for line in lines)
    assert lines[-3:] == ["    100 %", "    Traceback?", "    " + "x" * 75 + "…"]
    assert max(map(len, lines)) == 80


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_everything_about_a_job_comes_in_one_piece(server, run_pond, make_job, form):
    will_tell(server, asdict(make_job()), document=(200, {"command": "work"}))
    found = yaml.safe_load(run_pond("get", "train-abcde", "-o", form)[1])
    assert found["job"]["user"] == "ada"
    assert found["document"] == {"command": "work"}
    assert found["reason"]["cause"] == "no-room"
    assert found["events"][0]["text"] == "submitted"


@pytest.mark.parametrize("status", [403, 422])
def test_a_job_whose_file_cannot_be_had_is_shown_without_it(server, run_pond, make_job, status):
    refusal = {"error": {"cause": "the stored file is damaged", "remedy": "restore a backup"}}
    will_tell(server, asdict(make_job()), document=(status, refusal))
    code, out, err = run_pond("get", "train-abcde", "-o", "json")
    found = json.loads(out)
    assert (code, found["document"], found["reason"]["cause"]) == (0, None, "no-room")
    assert err == "pond: the stored file is damaged\n      restore a backup\n"


def test_the_steps_of_a_job_are_shown_without_asking_for_its_file(server, run_pond, make_job):
    will_tell(server, asdict(make_job()))
    assert run_pond("get", "train-abcde")[0] == 0
    assert not [request for request in server.requests if request.url.path.endswith("/document")]


# ---- history ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["jobs.csv", "-"])
def test_a_trace_in_a_file_is_followed_by_the_command_that_plays_it(server, run_pond, monkeypatch, tmp_path, file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    row = {"submit_s": 5.0, "duration_s": 1.0, "gpus": 0, "gpu_milli": 1000}
    server.will(200, {"rows": [row | {"job": "a-abcde", "user": "ada", "name": "a", "queue": "default"}]})
    code, _, err = run_pond("history", "export", file)
    assert (code, "pond replay" in err) == (0, file != "-")


# ---- events -----------------------------------------------------------------------------------------------------


def test_the_history_of_a_job_is_listed(server, run_pond, make_job):
    server.will(200, asdict(make_job()))
    server.will(200, {"events": [event(1, "submitted"), event(2, "start 1 task on n1")]})
    lines = run_pond("events", "train")[1].splitlines()
    first, second = (formats.instant_text(at, seconds=True) for at in (1001, 1002))
    assert lines[1:] == [f"{first}  submitted", f"{second}  start 1 task on n1"]


def test_what_happened_of_late_says_to_whom(server, run_pond):
    server.will(200, {"events": [event(7, "closed by ada", about="n1")]})
    assert run_pond("events", "--limit", "5")[1].splitlines()[1].split(maxsplit=2)[2] == "n1     closed by ada"
    assert server.requests[0].url.params["limit"] == "5"


def test_the_history_of_a_machine_is_asked_for_by_its_name(server, run_pond):
    server.will(200, {"events": []})
    run_pond("events", "--node", "n1")
    assert server.requests[0].url.path == "/api/v1/nodes/n1/events"


def test_that_nothing_happened_to_a_machine_is_said(server, run_pond):
    server.will(200, {"events": []})
    assert run_pond("events", "--node", "gpu-9") == (0, "", "pond: no events\n")


def test_a_followed_job_is_told_to_its_end_each_line_once(server, run_pond, make_job):
    running, over = asdict(make_job()), asdict(make_job(state="succeeded"))
    first, second, third = event(1, "submitted"), event(2, "started"), event(3, "all tasks ended")
    server.will(200, running)
    server.will(200, {"events": [first]})
    server.will(200, running)
    server.will(200, {"events": [first, second]})
    server.will(200, over)
    server.will(200, {"events": [first, second, third]})
    code, out, _ = run_pond("events", "-f", "train-abcde")
    assert code == 0
    assert [line.split("  ")[-1] for line in out.splitlines()] == ["submitted", "started", "all tasks ended"]


@pytest.mark.parametrize("line", ["j --node n1", "-f --node n1", "-f -o json"])
def test_histories_that_cannot_be_told_together_are_refused(server, run_pond, line):
    assert run_pond("events", *line.split())[0] == 2
    assert server.requests == []


# ---- clone ------------------------------------------------------------------------------------------------------


def test_a_cloned_job_is_handed_in_as_it_was_with_changes_and_as_a_job_of_its_own(server, run_pond, make_job):
    document = {"command": "work", "gpus": 1, "env": {"A": "a"}, "idempotency_key": "once"}
    server.will(200, asdict(make_job()))
    server.will(200, document)
    server.will(201, asdict(make_job("train-fghij", "queued")))
    assert run_pond("clone", "train", "--set", "gpus=2", "--set", "env.A=b") == (0, "train-fghij\n", "")
    assert json.loads(server.requests[2].content) == {"command": "work", "gpus": 2, "env": {"A": "b"}}


def test_a_change_that_makes_no_job_is_told_and_nothing_is_handed_in(server, run_pond, make_job):
    server.will(200, asdict(make_job()))
    server.will(200, {"command": "work"})
    code, _, err = run_pond("clone", "train", "--set", "gpsu=2")
    assert code == 2
    assert "gpus" in err
    assert [request.method for request in server.requests] == ["GET", "GET"]


# ---- delete -----------------------------------------------------------------------------------------------------


def test_jobs_are_deleted_and_one_that_cannot_be_does_not_hold_up_the_others(server, run_pond, make_job):
    server.will(200, asdict(make_job("a")))
    server.will(200, asdict(make_job("b")))
    server.will(409, {"error": {"cause": "job 'a' has not ended (running)", "remedy": "end it first: pond stop a"}})
    server.will(200, asdict(make_job("b", "failed")))
    code, out, err = run_pond("delete", "-y", "a", "b")
    assert (code, out) == (5, "b: deleted\n")
    assert "end it first" in err


def test_nothing_is_deleted_where_nobody_can_be_asked(server, run_pond):
    code, _, err = run_pond("delete", "a")
    assert code == 2
    assert "add -y" in err
    assert server.requests == []


@pytest.mark.parametrize(("said", "code", "methods"), [(True, 0, ["GET", "DELETE"]), (False, 1, ["GET"])])
def test_a_person_is_asked_first(server, run_pond, make_job, monkeypatch, said, code, methods):
    asked = []
    monkeypatch.setattr("millpond.client.cli.connection._is_attended", lambda: True)
    monkeypatch.setattr("millpond.client.cli.connection.click.confirm", lambda text, **_: asked.append(text) or said)
    server.will(200, asdict(make_job("a", "failed")))
    server.will(200, asdict(make_job("a", "failed")))
    assert run_pond("delete", "a")[0] == code
    assert [request.method for request in server.requests] == methods
    assert asked == ["Delete a: 1 job and all that they wrote?"]


# ---- suspend ----------------------------------------------------------------------------------------------------


LEAVES = {"state": "suspended", "leaving": True, "suspension": "on its way to host memory (suspend-requested)"}


@pytest.mark.parametrize(
    ("outcome", "code", "told", "said"),
    [
        ({"state": "suspended", "suspension": "swapped to host memory"}, 0, "train-abcde: suspended\n", ""),
        (
            {"state": "running", "suspension": "could not leave its cards: host memory is short"},
            5,
            "",
            (
                "pond: job 'train-abcde' could not leave its cards: host memory is short\n"
                "      it runs on; without --swap it is halted where it is\n"
            ),
        ),
    ],
)
def test_suspend_waits_until_the_job_has_left_and_says_why_when_it_could_not(
    run_pond, server, make_job, monkeypatch, outcome, code, told, said
):
    monkeypatch.setattr("millpond.client.cli.commands.control.jobs.time.sleep", lambda _: None)
    for fields in ({}, LEAVES, LEAVES, outcome):
        server.will(200, asdict(make_job(**fields)))
    assert run_pond("suspend", "--swap", "train-abcde") == (code, told, said)


def test_suspend_that_was_asked_for_is_no_failure_when_the_server_goes_away_meanwhile(
    run_pond, server, make_job, monkeypatch
):
    monkeypatch.setattr("millpond.client.cli.commands.control.jobs.time.sleep", lambda _: None)
    for fields in ({}, LEAVES):
        server.will(200, asdict(make_job(**fields)))
    server.will_fail(httpx2.ConnectError("refused"))
    code, told, _ = run_pond("suspend", "--swap", "train-abcde")
    assert (code, told) == (0, f"train-abcde: being suspended, {LEAVES['suspension']}\n")
