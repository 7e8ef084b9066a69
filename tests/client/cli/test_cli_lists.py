"""What ``ps``, ``nodes``, ``why`` and ``stop`` print of a server's answers."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import yaml
from machine_bodies import MACHINE

from millpond.client.cli.commands.control.rollout import lines_of
from millpond.client.cli.commands.inspection.get import steps_of
from millpond.client.cli.commands.inspection.why import start_text
from millpond.client.cli.printing.listing import Column, show
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import StartInfo
from millpond.specs.api.services import ScalingInfo, ServiceInfo

CARD = {
    "uuid": "FAKE-a-0",
    "index": 0,
    "vendor": "fake",
    "model": "V100",
    "memory_mib": 32768,
    "free_memory_mib": 16384,
    "free_compute_milli": 500,
    "fake": True,
    "holders": ["train-abcde", "eval-abcde"],
    "slices": [
        {
            "job": "train-abcde",
            "task": 0,
            "state": "running",
            "compute_milli": 250,
            "limit_milli": 500,
            "memory_mib": 8,
        },
        {"job": "eval-abcde", "task": 1, "state": "frozen", "compute_milli": 0, "limit_milli": 500, "memory_mib": 2048},
    ],
}


@pytest.fixture(autouse=True)
def _clock_stands(monkeypatch):
    monkeypatch.setattr("millpond.client.cli.commands.inspection.ps.time.time", lambda: 1070.0)


def test_jobs_are_listed_with_where_they_run_or_why_they_wait(server, run_pond, make_job):
    tasks = [{"task": i, "role": "worker", "state": "running", "node": node} for i, node in enumerate("aab")]
    jobs = [
        make_job("late-abcde", "queued", attempt=0, gpus="2", reason="no node has 2 free cards"),
        make_job("train-abcde", started_at=1010.0, gpus="3 x 1", tasks=tasks),
    ]
    server.will(200, {"jobs": [asdict(job) for job in jobs]})
    code, out, err = run_pond("ps")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=5) for line in out.splitlines()] == [
        ["ID", "STATE", "GPUS", "AGE", "RAN", "WHERE"],
        ["late-abcde", "queued", "2", "1m10s", "-", "no node has 2 free cards"],
        ["train-abcde", "running", "3", "x", "1", "1m10s  1m00s  a, b"],
    ]


def test_the_wide_list_has_names_as_they_were_written(server, run_pond, make_job):
    server.will(200, {"jobs": [asdict(make_job("grosse-abcde", name="Größe"))]})
    heads, row = (line.split() for line in run_pond("ps", "-o", "wide")[1].splitlines())
    assert row[heads.index("NAME")] == "Größe"


def test_a_failed_job_tells_its_exit_code_and_what_the_engine_saw(server, run_pond, make_job):
    tasks = [{"task": 0, "role": "worker", "state": "failed", "exit_code": 137, "detail": "out of memory"}]
    job = make_job(state="failed", started_at=1000.0, ended_at=1005.0, exit_code=137, tasks=tasks)
    server.will(200, {"jobs": [asdict(job)]})
    assert run_pond("ps", "-a")[1].splitlines()[1].split(maxsplit=4)[-1] == "5s  out of memory"


def test_a_failed_job_of_several_tasks_names_the_one_that_failed(server, run_pond, make_job):
    tasks = [
        {"task": 0, "role": "chief", "state": "failed", "detail": "exit code 143: ended by SIGTERM"},
        {"task": 1, "role": "worker", "state": "failed", "exit_code": 3, "detail": "exit code 3"},
    ]
    job = make_job(state="failed", started_at=1000.0, ended_at=1005.0, exit_code=3, tasks=tasks)
    server.will(200, {"jobs": [asdict(job)]})
    assert run_pond("ps", "-a")[1].splitlines()[1].endswith("5s  task 1 (worker): exit code 3")


def test_a_cut_list_says_so(server, run_pond, make_job):
    server.will(200, {"jobs": [asdict(make_job())], "truncated": True})
    assert run_pond("ps", "--limit", "1")[2] == "only the newest 1 job; --limit shows more\n"


def test_an_empty_list_is_said_and_prints_nothing(server, run_pond):
    server.will(200, {"jobs": []})
    code, out, err = run_pond("ps")
    assert (code, out) == (0, "")
    assert "pond ps -a" in err


def test_letters_that_take_the_room_of_two_leave_the_columns_straight(capsys):
    show([Column("WHY"), Column("STATE")], [["风扇", "open"], ["none", "open"]])
    assert capsys.readouterr().out == "WHY   STATE\n风扇  open\nnone  open\n"


def test_a_long_id_is_cut_in_the_middle_as_ids_differ_in_their_ends(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    show([Column("ID"), Column("WHERE", gives_way=True)], [["long-" * 8 + "abcde", "somewhere " * 9]])
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("long-long-long-…-long-long-abcde  somewhere")
    assert len(line) <= 60


def test_jobs_come_as_the_apis_own_json(server, run_pond, make_job):
    server.will(200, {"jobs": [asdict(make_job())]})
    assert json.loads(run_pond("ps", "-o", "json")[1])["jobs"][0]["user"] == "ada"


def test_jobs_come_as_names_for_other_programs(server, run_pond, make_job):
    server.will(200, {"jobs": [asdict(make_job())]})
    assert run_pond("ps", "-o", "name")[1] == "train-abcde\n"


def test_jobs_come_as_yaml_too(server, run_pond, make_job):
    server.will(200, {"jobs": [asdict(make_job())]})
    assert yaml.safe_load(run_pond("ps", "-o", "yaml")[1])["jobs"][0]["id"] == "train-abcde"


def test_machines_come_as_yaml_too(server, run_pond):
    server.will(200, {"nodes": [MACHINE]})
    assert yaml.safe_load(run_pond("nodes", "-o", "yaml")[1])["nodes"][0]["name"] == "a"


def test_a_watched_list_is_printed_again_when_it_has_changed_and_only_then(server, run_pond, make_job, monkeypatch):
    for state in ("queued", "queued", "running"):
        server.will(200, {"jobs": [asdict(make_job(state=state))]})
    pauses = [None, None, KeyboardInterrupt]

    def sleep(_seconds):
        if (what := pauses.pop(0)) is not None:
            raise what

    monkeypatch.setattr("millpond.client.cli.printing.listing.time.sleep", sleep)
    code, out, _ = run_pond("ps", "--watch")
    assert code == 130
    assert [line.split()[1] for line in out.splitlines()] == ["STATE", "queued", "STATE", "running"]


def test_machines_are_listed_with_their_cards_and_what_is_free(server, run_pond):
    broken = CARD | {"index": 1, "health": "faulty", "free_compute_milli": 1000}
    server.will(200, {"nodes": [MACHINE | {"devices": [CARD, broken]}, MACHINE | {"name": "cpu"}]})
    header, first, second = run_pond("nodes")[1].splitlines()
    assert header.split() == ["NODE", "CARDS", "FREE", "CPUS", "FREE", "GIB", "FREE", "STATE"]
    assert first.split("  ")[0] == "a"
    assert "2 x V100 32GiB (fake)" in first
    assert first.split("  ")[-1].strip() == "1 card unusable"
    assert [part for part in first.split() if part in ("0.5", "7.5/8", "63/64")] == ["0.5", "7.5/8", "63/64"]
    assert second.split() == ["cpu", "-", "-", "7.5/8", "63/64", "open"]


def test_cards_of_a_closed_machine_and_what_frozen_work_keeps_are_not_free(server, run_pond):
    frozen = {"job": "j", "task": 0, "state": "frozen", "compute_milli": 300, "limit_milli": 300, "memory_mib": 1}
    keeping = CARD | {"index": 1, "free_compute_milli": 1000, "slices": [frozen]}
    shut = MACHINE | {"name": "b", "schedulable": False, "devices": [CARD]}
    server.will(200, {"nodes": [MACHINE | {"devices": [CARD, keeping]}, shut]})
    _, first, second = run_pond("nodes")[1].splitlines()
    assert "  1.2 " in first
    assert "    0 " in second


def test_nodes_name_their_pools_where_there_are_others_than_the_default(server, run_pond):
    server.will(200, {"nodes": [MACHINE, MACHINE | {"name": "b", "pool": "gold"}]})
    rows = [line.split()[:2] for line in run_pond("nodes")[1].splitlines()]
    assert rows == [["NODE", "POOL"], ["a", "default"], ["b", "gold"]]


def test_a_closed_machine_says_why(server, run_pond):
    server.will(200, {"nodes": [MACHINE | {"schedulable": False, "unschedulable_reason": "repair"}]})
    assert run_pond("nodes")[1].splitlines()[1].endswith("closed: repair")


def test_a_node_is_shown_with_its_cards_where_a_command_could_stand(server, run_pond):
    server.will(200, {"nodes": [MACHINE | {"devices": [CARD]}, MACHINE | {"name": "gpu-b"}]})
    server.will(200, {"node": MACHINE})
    rows = [line.split()[:2] for line in run_pond("nodes", "a")[1].splitlines()]
    assert rows == [["NODE", "CARDS"], ["a", "1"], [], ["NODE", "CARD"], ["a", "0"]]


def test_a_node_is_shown_with_the_images_and_data_that_it_holds(server, run_pond):
    server.will(200, {"nodes": [MACHINE]})
    held = [{"name": "image:docker.io/library/python:3.12", "bytes": 1_240_000_000}, {"name": "data:faces@3"}]
    server.will(200, {"node": MACHINE, "contents": held, "fetch_rate": 50_000_000})
    _, out, said = run_pond("nodes", "a")
    rows = [line.split() for line in out.splitlines()][-3:]
    assert rows == [["NODE", "GB", "HOLDS"], ["a", "1.2", held[0]["name"]], ["a", "-", "data:faces@3"]]
    assert said == "pond: a fetches what it lacks at 50 MB/s\n"


def test_an_unknown_node_is_refused_with_the_nearest_one(server, run_pond):
    server.will(200, {"nodes": [MACHINE | {"name": "gpu-b"}]})
    assert run_pond("nodes", "gpu-d")[2] == "pond: no node 'gpu-d'\n      did you mean gpu-b?\n"


@pytest.mark.parametrize(
    ("spare", "text"),
    [
        ({"spare": 1}, "pool gold: 1 empty node to stay on"),
        (
            {"spare": 2, "cover": 0.98, "no_forecast": "the history is too short: 0.1 of 3 days"},
            "pool gold: 2 empty nodes to stay on; no forecast: the history is too short: 0.1 of 3 days",
        ),
        (
            {"spare": 9, "cover": 0.98, "within_s": 300.0, "coverage": 0.9831, "skill": 0.5, "tested_days": 7},
            "pool gold: 9 empty nodes to stay on, for 98% of the rises within 5 min; met 98.3% in 7 days, skill 0.50",
        ),
    ],
)
def test_nodes_say_how_many_empty_ones_stay_on_and_what_the_forecast_is_worth(server, run_pond, spare, text):
    server.will(200, {"nodes": [MACHINE], "spares": [{"pool": "gold"} | spare]})
    assert run_pond("nodes")[2] == f"pond: {text}\n"


def test_cards_are_listed_with_who_holds_them(server, run_pond):
    busy = CARD | {
        "index": 1,
        "fake": False,
        "health": "busy-elsewhere",
        "health_detail": "python (4711)",
        "holders": [],
    }
    server.will(200, {"nodes": [MACHINE | {"devices": [CARD, busy]}]})
    _, first, second = run_pond("nodes", "-o", "wide")[1].splitlines()
    assert "V100 (fake)" in first
    assert first.endswith("train-abcde 25%, eval-abcde 2GiB frozen")
    assert "busy-elsewhere: python (4711)" in second
    assert second.split()[3:5] == ["0", "0/32"]


def test_why_tells_the_numbers_the_remedy_and_the_start_within_80_columns(server, run_pond, make_job, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.commands.inspection.why.time.time", lambda: 1000.0)
    server.will(200, asdict(make_job(state="queued")))
    reason = {
        "job": "train-abcde",
        "state": "queued",
        "cause": "no-room",
        "summary": "it wants 8 cards on one node; the most that any of the 12 nodes has free is 6",
        "nodes": {"device-compute": 10, "cpu": 2},
        "position": 3,
        "remedy": {"change": "ask for 6 cards", "field": "gpus", "value": "6"},
        "start": {"earliest_at": 1060.0, "latest_at": 4600.0, "basis": "time limits of what runs"},
        "blocked_by": "big-abcde",
    }
    server.will(200, reason)
    assert run_pond("why", "train-abcde")[1].splitlines() == [
        "train-abcde: queued, number 3 in line",
        "  why     it wants 8 cards on one node; the most that any of the 12 nodes has",
        "          free is 6",
        "  nodes   10 without enough free on a card; 2 without enough free CPU cores",
        "  job     big-abcde",
        "  remedy  ask for 6 cards (gpus: 6)",
        "  start   in 1m00s to 1h00m (time limits of what runs)",
    ]


def test_why_a_job_waits_for_cards_is_told_with_what_its_queue_has(server, run_pond, make_job):
    quota = {"gpu_milli": 6000, "promised_gpu_milli": 4000, "within_gpu_milli": 4000, "borrowed_gpu_milli": 2000}
    waits = asdict(make_job(state="queued", queue="vision", gpu_milli=2000))
    reason = {"job": "train-abcde", "state": "queued", "cause": "no-room", "summary": "no node has room"}
    for status, answer in ((200, {"queue": {**VISION, **quota}}), (403, {"error": {"cause": "not yours"}})):
        server.will(200, waits)
        server.will(200, reason)
        server.will(status, answer)
        code, out, err = run_pond("why", "train-abcde")
        assert (code, err) == (0, "")
        told = "quota queue vision: 6 used of 4 guaranteed, limit 20; 4 within guarantees, 2 borrowed"
        assert (told in " ".join(out.split())) is (status == 200)


@pytest.mark.parametrize(
    ("latest_at", "text"), [(4630.0, "in 1h00m"), (None, "in 1h00m at the earliest"), (8200.0, "in 1h00m to 2h00m")]
)
def test_a_start_within_one_shown_unit_is_one_instant(latest_at, text):
    assert start_text(StartInfo(earliest_at=4601.0, latest_at=latest_at, basis=""), 1000.0) == text


def test_a_start_is_told_from_and_to_with_what_is_most_likely():
    start = StartInfo(earliest_at=1000.0, latest_at=8200.0, likely_at=4600.0, basis="5 ahead")
    assert start_text(start, 1000.0) == "now to 2h00m, most likely about 1h00m (5 ahead)"


def test_a_start_of_which_nothing_is_known_says_why():
    start = StartInfo(earliest_at=1000.0, unknown="too few jobs have ended to learn from")
    assert start_text(start, 1000.0) == "not known: too few jobs have ended to learn from"


@pytest.mark.parametrize(
    "line",
    [
        *("ps --user", "ps --queue", "ps --name", "ps --state", "queue show"),
        *("stop -y --all --user", "stop -y --queue q --name", "submit", "apply"),
    ],
)
def test_a_word_that_is_empty_chooses_nothing_and_not_everything(server, run_pond, line):
    code, out, said = run_pond(*line.split(), "")
    assert (code, out) == (2, "")
    assert "a variable of the shell may be empty" in said
    assert server.requests == []


def test_stopping_goes_on_after_one_that_cannot_be_stopped(server, run_pond, make_job):
    server.will(200, asdict(make_job("a-1", "failed")))
    server.will(409, {"error": {"cause": "a-1 has ended"}})
    server.will(200, asdict(make_job("b-1")))
    server.will(200, asdict(make_job("b-1", "stopping")))
    assert run_pond("stop", "a-1", "b-1") == (5, "b-1: stopping\n", "pond: a-1 has ended\n")


def test_jobs_are_listed_by_state_user_queue_and_name(server, run_pond, make_job):
    server.will(200, {"jobs": [asdict(make_job())]})
    options = "--state running,failed --user ada --queue vision --name train"
    assert run_pond("ps", *options.split(), "-o", "name")[:2] == (0, "train-abcde\n")
    params = server.requests[0].url.params
    assert params.get_list("state") == ["running", "failed"]
    assert (params["user"], params["queue"], params["name"]) == ("ada", "vision", "train")
    code, _, err = run_pond("ps", "--state", "running,faild")
    assert (code, "'faild' is no state; did you mean failed?" in err) == (2, True)


def test_a_trial_that_was_stopped_early_is_called_so_with_how_it_fell_behind(server, run_pond, make_job):
    behind = "behind the best half of 4 at step 5: loss 0.9, and 0.5 was needed"
    server.will(200, asdict(make_job("tune-abcde")))
    server.will(200, {"jobs": [asdict(make_job("tune.3", state="cancelled", parent="tune", stopped_early=behind))]})
    _, out, _ = run_pond("ps", "--members", "tune-abcde")
    assert "stopped early" in out
    assert behind in out
    assert "cancelled" not in out


def test_why_a_trial_was_stopped_early_is_told_under_that_name(server, run_pond, make_job):
    trial = make_job("tune.3", state="cancelled", parent="tune", stopped_early="behind the best half of 4")
    server.will(200, asdict(make_job("tune")))
    server.will(200, asdict(trial))
    summary = f"it was stopped early: {trial.stopped_early}"
    server.will(200, {"job": "tune.3", "state": "cancelled", "cause": "cancelled", "summary": summary})
    _, out, _ = run_pond("why", "tune.3")
    assert out.splitlines() == ["tune.3: stopped early", f"  why     {summary}"]


def test_that_no_jobs_are_like_that_is_said(server, run_pond):
    server.will(200, {"jobs": []})
    assert run_pond("ps", "--user", "bob")[2] == "no such jobs wait or run (`pond ps -a` shows ended ones)\n"


WHO = {"user": "ada", "admin": False, "how": "token"}


VISION = {
    "name": "vision",
    "parent": "root",
    "group": "vision",
    "weight": 2.0,
    "gpu_milli": 10_500,
    "guarantee_gpu_milli": 6000,
    "promised_gpu_milli": 6000,
    "guarantee_memory_mib": 65_536,
    "limit_gpu_milli": 20_000,
    "memory_mib": 1024,
    "within_gpu_milli": 6000,
    "borrowed_gpu_milli": 4500,
    "lent_gpu_milli": 0,
    "free_gpu_milli": 0,
    "running": 3,
    "waiting": 1,
    "waiting_gpu_milli": 16_000,
    "limit_jobs": 9,
}
QUEUES = {
    "queues": [
        {"name": "root", "takes_jobs": False, "gpu_milli": 10_500, "running": 3, "waiting": 1},
        {**VISION, "name": "a-group-of-forty-people"},
    ]
}
DETAIL = {
    "queue": VISION,
    "users": [{"user": "max", "gpu_milli": 10_500, "memory_mib": 1024, "running": 3}, {"user": "mia", "waiting": 1}],
    "borrowers": [{"queue": "speech", "gpu_milli": 2000}],
    "largest": {"job": "train-a", "name": "", "user": "mia", "gpu_milli": 16_000, "reason": "too large " * 9},
}


def test_reservations_are_cancelled_by_name_and_one_that_is_gone_keeps_no_other(server, run_pond):
    server.will(404, {"error": {"cause": "no reservation 'gone'", "remedy": ""}})
    server.will(204, {})
    code, out, err = run_pond("reservations", "cancel", "gone", "demo")
    assert (code, out) == (4, "demo: cancelled\n")
    assert "no reservation 'gone'" in err
    assert [(request.method, request.url.path) for request in server.requests] == [
        ("DELETE", "/api/v1/reservations/gone"),
        ("DELETE", "/api/v1/reservations/demo"),
    ]


def test_queues_are_listed_below_one_another_in_80_columns(server, run_pond):
    server.will(200, QUEUES)
    code, out, _ = run_pond("queue", "show")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["root", "10.5", "-", "-", "-", "-", "-", "1", "0"],
        ["a-group-of-forty-people", "10.5", "6", "6", "4.5", "0", "20", "1", "16"],
    ]
    assert out.splitlines()[2].startswith("  a-group")
    assert len(out.splitlines()[2]) - len("  a-group-of-forty-people") + len("  vision-long") <= 80


def test_queues_are_listed_without_a_command(server, run_pond):
    server.will(200, QUEUES)
    assert run_pond("queue", "-o", "name")[:2] == (0, "root\na-group-of-forty-people\n")


def test_one_queue_is_shown_where_a_command_could_stand(server, run_pond):
    server.will(200, DETAIL)
    assert run_pond("queue", "vision", "-o", "name")[:2] == (0, "vision\n")
    assert run_pond("queue", "ad")[2] == "pond: no command 'ad'; did you mean `pond queue add`?\n"


def test_what_background_work_holds_is_shown_beside_what_queues_hold(server, run_pond):
    root, team = QUEUES["queues"]
    server.will(200, {"queues": [root, {**team, "background_gpu_milli": 1500}]})
    _, out, _ = run_pond("queue", "show")
    head, _, last = out.splitlines()
    assert head.split()[:3] == ["QUEUE", "USED", "BACKGROUND"]
    assert last.split()[1:3] == ["10.5", "1.5"]


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [(200, DETAIL, (0, "vision\n")), (404, {"error": {"cause": "no queue 'visoin'", "remedy": ""}}, (4, ""))],
)
def test_one_queue_is_shown_alone(server, run_pond, status, body, answer):
    server.will(status, body)
    assert run_pond("queue", "show", "vision", "-o", "name")[:2] == answer


def test_a_queue_shows_its_card_memory_where_that_is_used_guaranteed_or_limited(server, run_pond):
    server.will(200, {"queue": {**VISION, "card_mib": 4096, "guarantee_card_mib": 65_536, "limit_card_mib": 163_840}})
    out = run_pond("queue", "show", "vision")[1]
    assert "card mem.  4 GiB used of 64 GiB guaranteed, limit 160 GiB" in out.splitlines()
    server.will(200, {"queue": {**VISION, "gpu_milli": 0, "card_mib": 4096}})
    assert "card mem.  4 GiB used" in run_pond("queue", "show", "vision")[1].splitlines()
    server.will(200, DETAIL)
    assert "card mem." not in run_pond("queue", "show", "vision")[1]


def test_one_queue_is_shown_with_its_users_and_its_largest_waiting_job(server, run_pond):
    server.will(200, DETAIL)
    code, out, _ = run_pond("queue", "show", "vision")
    lines = out.splitlines()
    assert (code, max(map(len, lines)) <= 80) == (0, True)
    assert lines[:4] == [
        "queue      vision, below root, of group vision",
        "cards      10.5 used of 6 guaranteed, limit 20; 6 within guarantees, 4.5",
        "           borrowed, 0 lent, 0 free",
        "CPUs       0 used",
    ]
    assert "memory     1 GiB used of 64 GiB guaranteed" in lines
    assert "rules      weight 2, it may borrow, at most 9 jobs at once" in lines
    assert "waiting    1 job, asking for 16 cards" in lines
    assert "largest    train-a asks for 16 cards: too large too large" in out
    assert [line.split() for line in lines[-5:]] == [
        ["max", "10.5", "0", "1", "3", "0", "0"],
        ["mia", "0", "0", "0", "0", "1", "0"],
        [],
        ["BORROWER", "BORROWED"],
        ["speech", "2"],
    ]


def test_all_jobs_of_ones_own_are_stopped_after_a_yes(server, run_pond, make_job, monkeypatch):
    asked = []
    monkeypatch.setattr("millpond.client.cli.connection._is_attended", lambda: True)
    monkeypatch.setattr("millpond.client.cli.connection.click.confirm", lambda text, **_: asked.append(text) or True)
    server.will(200, WHO)
    server.will(200, {"jobs": [asdict(make_job(job)) for job in "abcdef"]})
    for job in "abcdef":
        server.will(200, asdict(make_job(job)))
        if job == "c":
            server.will(403, {"error": {"cause": "ada may not change job 'c'"}})
        else:
            server.will(200, asdict(make_job(job, "stopping")))
    code, out, err = run_pond("stop", "--all", "--name", "train")
    assert (code, out.count("stopping"), err) == (3, 5, "pond: ada may not change job 'c'\n")
    assert asked == ["End 6 jobs of ada (a, b, c, d, e, …)?"]
    params = server.requests[1].url.params
    assert (params["user"], params["name"], "queue" in params) == ("ada", "train", False)


@pytest.mark.parametrize("arguments", [["--all"], ["-y"], ["-y", "--all", "a"]], ids=["no answer", "none", "both"])
def test_nothing_is_stopped_where_it_is_unclear_what(server, run_pond, arguments):
    code, _, err = run_pond("stop", *arguments)
    assert (code, server.requests) == (2, [])
    assert err.startswith("pond: ")


def test_several_jobs_are_waited_for_and_the_first_that_failed_gives_the_exit_code(server, run_pond, make_job):
    ends = {"a": ("succeeded", 0), "b": ("failed", 7), "c": ("cancelled", 143)}
    for _ in range(2):  # found, then watched
        for job, (state, code) in ends.items():
            server.will(200, asdict(make_job(job, state, exit_code=code)))
    assert run_pond("wait", *ends)[:2] == (7, "a: succeeded\nb: failed\nc: cancelled\n")


@pytest.mark.parametrize(
    "command",
    [
        *("ps", "nodes", "events", "metrics", "usage", "webhooks", "audit"),
        *("queue show", "data ls", "output ls", "user ls", "group ls", "token ls"),
    ],
)
def test_every_list_has_the_same_forms_and_can_be_watched(run_pond, command):
    code, out, _ = run_pond(*command.split(), "--help")
    assert code == 0
    assert "[table|wide|json|yaml|name" in out
    assert "--watch" in out


@pytest.mark.parametrize("files", [[], [{"path": "a", "size": 1, "modified_at": 0.0, "version": "v"}]])
@pytest.mark.parametrize("command", [["output", "ls"], ["get-output"]])
def test_output_files_that_cannot_be_fetched_are_counted_beside_the_others(
    server, run_pond, make_job, tmp_path, monkeypatch, command, files
):
    monkeypatch.chdir(tmp_path)
    server.will(200, asdict(make_job()))
    server.will(200, {"job": "train-abcde", "attempt": 1, "files": files, "left_out": 2})
    if command == ["get-output"] and files:
        server.will(200, stream=iter([b"x"]))
    code, out, err = run_pond(*command, "train-abcde")
    assert (code, bool(out)) == (0, bool(files))
    assert err == (
        "pond: 2 files left out, whose names cannot be printed or are too long: rename them in the job, or pack them\n"
    )


@pytest.mark.parametrize("command", [["output", "ls"], ["get-output"]])
def test_links_and_pipes_of_an_output_are_counted(server, run_pond, make_job, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    server.will(200, asdict(make_job()))
    server.will(200, {"job": "train-abcde", "attempt": 1, "files": [], "no_files": 3})
    assert run_pond(*command, "train-abcde") == (
        0,
        "",
        "pond: 3 links or pipes left out: files alone are fetched; copy or pack them in the job\n",
    )


@pytest.mark.parametrize("command", [["output", "ls"], ["get-output"]])
def test_files_beyond_those_that_a_list_holds_are_not_missing_in_silence(
    server, run_pond, make_job, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    server.will(200, asdict(make_job()))
    file = {"path": "a", "size": 1, "modified_at": 0.0, "version": "v"}
    server.will(200, {"job": "train-abcde", "attempt": 1, "files": [file], "truncated": True})
    if command == ["get-output"]:
        server.will(200, stream=iter([b"x"]))
    code, out, err = run_pond(*command, "train-abcde")
    assert (code, bool(out)) == (0, True)
    assert err == (
        "pond: there are more files than the 1 that a list can hold: `pond get-output train-abcde PATH` fetches a "
        "folder, or one file\n"
    )


def test_a_link_of_an_output_that_is_asked_for_by_name_is_no_missing_file(
    server, run_pond, make_job, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    server.will(200, asdict(make_job()))
    server.will(200, {"job": "train-abcde", "attempt": 1, "files": [], "no_files": 1})
    code, _, err = run_pond("get-output", "train-abcde", "latest")
    assert code == 4
    assert "a link or pipe lies there; files alone are fetched" in err
    assert "have the job copy or pack what it leads to" in err


def test_what_is_left_out_beside_the_folder_that_is_fetched_is_not_counted(
    server, run_pond, make_job, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    server.will(200, asdict(make_job()))
    file = {"path": "deep/a", "size": 1, "modified_at": 0.0, "version": "v"}
    server.will(200, {"job": "train-abcde", "attempt": 1, "files": [file]})
    server.will(200, stream=iter([b"x"]))
    assert run_pond("get-output", "train-abcde", "deep")[0] == 0
    assert server.requests[1].url.params["under"] == "deep", "the server counts what lies there"


@pytest.mark.parametrize("command", [["metrics", ""], ["output", "ls", ""], ["ps", "--members", ""], ["get", ""]])
def test_an_empty_name_of_a_job_is_refused_as_that_and_not_taken_for_all_or_none(server, run_pond, command):
    code, out, err = run_pond(*command)
    assert (code, out) == (2, "")
    assert err.startswith("pond: '' is no name or id\n")
    assert not server.requests


def test_templates_are_listed_in_every_form(run_pond, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    names = run_pond("template", "ls", "-o", "name")[1].split()
    assert {"jupyterlab", "code-server", "tensorboard", "mlflow", "label-studio", "elyra", "pytorch", "vllm"} <= {
        *names
    }
    listed = json.loads(run_pond("template", "ls", "-o", "json")[1])["templates"]
    assert [each["name"] for each in listed] == names
    (elyra,) = [each for each in listed if each["name"] == "elyra"]
    assert (elyra["kind"], elyra["own"], elyra["needs"]) == ("dev", False, ["jupyter-lab", "the Python module elyra"])
    assert yaml.safe_load(run_pond("template", "ls", "-o", "yaml")[1])["templates"] == listed
    assert "NEEDS" not in run_pond("template", "ls")[1]
    assert "NEEDS" in run_pond("template", "ls", "-o", "wide")[1]


SERVICE = {
    "service": "web-abcde",
    "path": "/proxy/web-abcde/",
    "requests": 7,
    "open_requests": 1,
    "cold_starts": 2,
    "mean_cold_start_s": 1.5,
    "longest_cold_start_s": 2.0,
    "revisions": [
        {"number": 1, "job": "web-abcde", "user": "ada", "created_at": 1000.0, "phase": "current", "running": 2},
        {
            "number": 2,
            "job": "web-abcde.r2",
            "user": "ada",
            "created_at": 1060.0,
            "phase": "canary",
            "percent": 10.0,
            "running": 1,
            "target": 2,
        },
    ],
}


def test_the_revisions_of_a_service_are_listed_with_their_states(server, run_pond, make_job, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.printing.formats.time.time", lambda: 1070.0)
    job = asdict(make_job("web-abcde", kind="service"))
    server.will(200, job)
    server.will(200, SERVICE)
    out = run_pond("rollout", "status", "web-abcde")[1]
    assert [line.split() for line in out.splitlines()] == [
        ["REVISION", "STATE", "REPLICAS", "AGE", "JOB", "ABOUT"],
        ["1", "current", "2/0", "1m10s", "web-abcde", "-"],
        ["2", "canary", "(10", "%)", "1/2", "10s", "web-abcde.r2", "-"],
    ]


def test_what_is_done_to_a_revision_is_answered_with_its_new_state(server, run_pond, make_job):
    server.will(200, asdict(make_job("web-abcde", kind="service")))
    server.will(202, SERVICE | {"revisions": [SERVICE["revisions"][1] | {"phase": "rolling", "percent": 0.0}]})
    assert run_pond("rollout", "promote", "web-abcde")[1] == "web-abcde: revision 2 is rolling\n"


@pytest.mark.parametrize(
    ("forecast", "line"),
    [
        (
            {"ahead_s": 600.0, "forecast": 4, "by": "ridge", "coverage": 0.984, "skill": 0.87, "tested_days": 7},
            "4 needed in 10m00s (ridge; met 98% in 7 days, skill 0.87)",
        ),
        ({"ahead_s": 600.0, "no_forecast": "it is being made"}, "none: it is being made"),
        ({}, None),
    ],
)
def test_what_the_rule_of_a_service_asks_for_is_told_with_its_forecast(forecast, line):
    scaling = ScalingInfo(at=0.0, wanted=3, why="5 open requests", fewest=1, most=4, **forecast)
    told = dict(
        lines_of(ServiceInfo(service="web", path="/proxy/web/", replicas=2, ready=1, scaling=scaling), "http://h:1")
    )
    assert told["address"] == "http://h:1/proxy/web/"
    assert told["replicas"] == "1 of 2 replicas ready, 3 wanted of 1 to 4: 5 open requests"
    assert told.get("forecast") == line


@pytest.mark.parametrize(("held_s", "told"), [(90.0, ["held back for 1m30s"]), (0.5, []), (None, [])])
def test_a_job_that_was_held_back_says_since_when_it_could_start(held_s, told):
    job = JobInfo(
        id="a", name="a", queue="q", pool="p", user="ada", kind="train", priority="normal", state="queued", attempt=0,
        submitted_at=1_000.0, eligible_at=None if held_s is None else 1_000.0 + held_s,
    )  # fmt: skip
    steps = [step.text.partition(", ")[2] for step in steps_of(job, 2_000.0) if step.name == "eligible"]
    assert steps == told


def test_a_job_whose_scheduler_is_ahead_of_this_clock_is_given_no_length(make_job):
    job = make_job(state="running", attempt=1, submitted_at=1000.0, started_at=1000.0)
    told = [step.text for now in (999.0, 1060.0) for step in steps_of(job, now) if step.text.startswith("runs")]
    assert told == ["runs", "runs for 1m00s"]
