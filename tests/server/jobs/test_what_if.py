"""Questions about changes, asked of a running server: what is answered, what is refused, and that nothing changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from api_world import Api, error_of

from millpond.client.cli.printing.differences import draw
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.model.events import QueueChanged
from millpond.model.tenancy.tenants import Queue
from millpond.node.task.records import TaskId
from millpond.server.auth.roles import Caller
from millpond.server.jobs.what_if import play, service
from millpond.server.jobs.what_if.child import ask_child
from millpond.server.runtime.queue_settings.service import QueueEdit
from millpond.specs.api.codec import from_json
from millpond.specs.api.reports.what_if import WhatIfInfo
from millpond.specs.api.reports.what_if_request import WhatIfRequest

WHAT_IF = "/api/v1/what-if"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A server of one node of four cards, whose answers are worked out in the test's own process."""

    async def answered_here(module: str, request: str, within_s: float, remedy: str) -> bytes:
        return play.answer(json.loads(request)).encode()

    monkeypatch.setattr(service, "ask_child", answered_here)
    made = Api(tmp_path / "state")
    made.service.what_if._clock = made.clock
    for name in ("vision", "speech"):
        made.service.queue_settings.add(name, {"guarantee": 2}, QueueEdit("ada"))
    yield made
    made.close()


def full(api: Api) -> list[str]:
    """All four cards are held for two hours, by vision and speech; two jobs of speech and one of vision wait."""
    first = [api.submit(queue=queue, gpus=2, time_limit="2h", preemptible=False) for queue in ("vision", "speech")]
    assert {api.job(job.id).state for job in first} == {"running"}
    later = [api.submit(queue=queue, gpus=2, time_limit="1h") for queue in ("speech", "speech", "vision")]
    return [job.id for job in (*first, *later)]


def ask(api: Api, **question: Any) -> WhatIfInfo:
    before = api.loop.query(lambda core: json.dumps(core.scheduler.snapshot())).result(60)
    answer = api.client.post(WHAT_IF, json=question)
    assert answer.status_code == 200, answer.text
    assert api.loop.query(lambda core: json.dumps(core.scheduler.snapshot())).result(60) == before
    return from_json(WhatIfInfo, answer.content)


def refused(api: Api, **question: Any) -> tuple[int, str, str]:
    answer = api.client.post(WHAT_IF, json=question)
    error = error_of(answer)
    return answer.status_code, error.cause, error.remedy


def faults(api: Api, setting: dict[str, Any]) -> list[tuple[str, str]]:
    answer = api.client.post(WHAT_IF, json={"set": [setting]})
    return [(detail.loc, detail.message) for detail in error_of(answer).details]


def test_another_node_starts_who_waits_at_once(api: Api) -> None:
    _, _, *waiting = full(api)
    answer = ask(api, add_nodes=["1x4"])
    assert answer.changes == ["1x4 added"]
    assert {job.job for job in answer.jobs} == set(waiting)
    starts = sorted((job.start_before - api.clock.now, job.start_after - api.clock.now) for job in answer.jobs)
    assert starts == [(7200.0, 0.0), (7200.0, 0.0), (10800.0, 3600.0)]
    assert (answer.before.gpus, answer.after.gpus) == (4, 8)


@pytest.mark.parametrize("cards", [2, 8])
def test_another_node_has_as_many_cards_as_were_asked_for_whatever_those_here_have(api: Api, cards: int) -> None:
    full(api)
    answer = ask(api, add_nodes=[f"1x{cards}"])
    assert (answer.before.gpus, answer.after.gpus) == (4, 4 + cards)


def test_the_only_node_may_go_where_others_come(api: Api) -> None:
    _, _, *waiting = full(api)
    answer = ask(api, remove_nodes=["n1"], add_nodes=["2x4"])
    assert answer.changes == ["without node n1", "2x4 added"]
    assert {job.job: job.start_after - api.clock.now for job in answer.jobs} == dict.fromkeys(waiting, 0.0)


def test_several_changes_are_made_together(api: Api) -> None:
    first, *_ = full(api)
    answer = ask(
        api,
        set=[
            {"queue": "speech", "field": "guarantee", "value": 0},
            {"queue": "vision", "field": "guarantee.gpus", "value": 4},
            {"queue": "vision", "field": "guarantee.models.V100", "value": 4},
            {"queue": "speech", "field": "limit.models.V100", "value": 2},
        ],
        ordering="fifo",
        cancel=[first],
        submit=[{"command": "work", "gpus": 1, "name": "small"}],
    )  # fmt: skip
    assert answer.changes[:5] == [
        "speech.guarantee = 0",
        "vision.guarantee.gpus = 4",
        "vision.guarantee.models.V100 = 4",
        "speech.limit.models.V100 = 2",
        "ordering = fifo",
    ]
    assert answer.compared == 4
    assert [job.effect for job in answer.jobs if job.job == "new-1"] == ["new"]


def test_the_report_fits_80_columns_and_names_who_gains(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    full(api)
    answer = ask(api, add_nodes=["1x4"])
    draw(answer, everything=False)
    text = click.unstyle(capsys.readouterr().out)
    assert "cards in use until 1970-01-01 " in text
    assert max(map(len, text.splitlines())) <= 80
    assert "mean wait" in text
    assert "speech" in text


def test_who_is_ended_and_waits_no_longer_is_named(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    full(api)
    answer = ask(api, add_nodes=["1x4"])
    loser = replace(answer.jobs[0], ran=True, wait_after_s=answer.jobs[0].wait_before_s, preemptions_after=1)
    draw(replace(answer, jobs=[loser]), everything=False)
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith(loser.job)]
    assert row.split()[-6:] == ["runs", "runs,", "ended", "1x", "as", "long"]


def test_a_change_that_is_none_unknown_or_refused_is_named(api: Api) -> None:
    full(api)
    by = {"queue": "vision", "field": "guarantee", "value": 2}
    assert refused(api, set=[by])[:2] == (422, "vision.guarantee is 2 already")
    assert refused(api, set=[by | {"queue": "visoin"}]) == (404, "no queue 'visoin'", "did you mean 'vision'?")
    assert faults(api, by | {"field": "garantee"}) == [("vision.garantee", "unknown field 'garantee'")]
    assert faults(api, by | {"field": "weight", "value": 0}) == [("vision.weight", "0 is too small")]
    assert faults(api, by | {"field": "limit.gpus", "value": 1})[0][0] == "vision.limit"
    assert faults(api, by | {"field": "cells", "value": {"node": 1}}) == [
        ("vision.cells", "cells of at least 4 cards, but vision is guaranteed 2 GPUs")
    ]
    [(place, cause)] = faults(api, by | {"value": 5})
    assert (place, cause.partition(",")[0]) == ("vision.guarantee", "all queues together are guaranteed 7 GPUs")
    assert ask(api, set=[by | {"value": 6}], add_nodes=["1x4"]).after.gpus == 8
    assert refused(api, set=[by | {"field": "guarantee.models.A100"}])[1].startswith(
        "vision.guarantee.models: no machine"
    )
    assert refused(api, set=[by | {"field": "guarantee.models.V100.x"}])[1].startswith("vision.guarantee.models: no")
    assert faults(api, by | {"field": "weight.heavy"})[0][0] == "vision.weight"
    assert refused(api, remove_nodes=["n9"])[:2] == (404, "no node 'n9'")
    assert refused(api, remove_nodes=["n1"])[1] == "no node would be left"
    assert refused(api, ordering="lifo")[1] == "unknown ordering 'lifo'"
    assert refused(api, ordering="default")[1] == "ordering is default already"
    assert refused(api, cancel=["never-was"])[:2] == (404, "no job 'never-was'")
    assert refused(api, add_nodes=["4"])[0] == 422
    assert refused(api, submit=[{"command": "x", "gpus": 99}])[0] == 422
    assert refused(api)[1] == "no change is asked about"
    assert refused(api, sets=[])[0] == 422


def test_the_recorded_past_comes_again_with_and_without_the_change(api: Api) -> None:
    begin = api.clock.now
    jobs = [api.submit(queue="vision", gpus=4, name=f"j{number}") for number in range(3)]
    for job in jobs:
        assert api.job(job.id).state == "running"
        api.clock.now += 100
        api.engine.finish(TaskId(job.id, 1, 0))
        assert api.job(job.id).state == "succeeded"
    past = {"since": begin - 1}
    answer = ask(api, add_nodes=["2x4"], past=past)
    assert answer.past
    assert (answer.before.mean_wait_s, answer.after.mean_wait_s) == pytest.approx((100.0, 0.0))
    assert [job.effect for job in answer.jobs] == ["earlier", "earlier"]
    assert refused(api, add_nodes=["2x4"], past={"since": begin + 500})[0] == 404
    assert refused(api, ordering="fifo", past={"since": 5, "until": 4})[1] == "the span ends before it begins"
    assert refused(api, submit=[{"command": "x"}], past=past)[0] == 422


def test_a_span_of_the_past_begins_with_what_held_cards_and_what_was_learnt_by_then(api: Api) -> None:
    def ended(job: str, after_s: float) -> None:
        assert api.job(job).state == "running"
        api.clock.now += after_s
        api.engine.finish(TaskId(job, 1, 0))
        assert api.job(job).state == "succeeded"

    for name, length_s in (("long", 900.0), ("short", 30.0)):
        ended(api.submit(gpus=4, name=name).id, length_s)
    first = api.submit(gpus=4, name="long").id
    assert api.job(first).state == "running"
    api.clock.now += 100.0
    begin = api.clock.now
    later = [api.submit(gpus=4, name=name).id for name in ("long", "short")]
    ended(first, 800.0)
    (second,) = [job for job in later if api.job(job).state == "running"]
    ended(second, 900.0 if second == later[0] else 30.0)
    (third,) = [job for job in later if job != second]
    ended(third, 900.0 if third == later[0] else 30.0)
    answer = ask(api, ordering="sjf", past={"since": begin})
    assert answer.compared == 2
    assert answer.after.mean_wait_s == pytest.approx((800.0 + 830.0) / 2), "first the short one, behind what ran then"
    answer = ask(api, ordering="fifo", past={"since": begin})
    assert answer.after.mean_wait_s == pytest.approx((800.0 + 1_700.0) / 2)


def test_a_job_to_be_cancelled_that_is_not_played_is_refused_with_what_it_is(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = api.clock.now
    done, other = api.submit(gpus=1, name="done"), api.submit(gpus=1, name="other")
    api.clock.now += 100
    for job in (done, other):
        api.engine.finish(TaskId(job.id, 1, 0))
        assert api.job(job.id).state == "succeeded"
    array = api.submit(gpus=1, array={"count": 2})
    assert refused(api, cancel=[done.id])[:2] == (409, f"job '{done.id}' has ended already (succeeded)")
    assert refused(api, cancel=[array.id])[1] == "an array of jobs to be cancelled"
    later = {"since": api.clock.now}
    assert refused(api, cancel=[done.id], past=later)[0] == 404
    past = {"since": begin - 1}
    assert "not among the jobs of the past" in refused(api, cancel=[f"{array.id}.0"], past=past)[1]
    answer = ask(api, cancel=[done.id], past=past)
    assert answer.compared == 1
    draw(answer, everything=False)
    assert "cards in use, the first 1h00m" in capsys.readouterr().out


def test_a_caller_asks_one_question_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    full(api)
    caller = Caller("ada", admin=True)

    async def both() -> None:
        begun, wanted = asyncio.Event(), asyncio.Event()

        async def slow(module: str, request: str, within_s: float, remedy: str) -> bytes:
            begun.set()
            await wanted.wait()
            return play.answer(json.loads(request)).encode()

        monkeypatch.setattr(service, "ask_child", slow)
        question = WhatIfRequest(ordering="fifo")
        first = asyncio.ensure_future(api.service.what_if.answer(question, caller))
        await begun.wait()
        with pytest.raises(ConflictError, match="last what-if question"):
            await api.service.what_if.answer(question, caller)
        wanted.set()
        assert (await first).compared == 5
        assert (await api.service.what_if.answer(question, caller)).compared == 5

    asyncio.run(both())


@pytest.mark.long
def test_a_child_process_gives_the_same_answer_or_the_refusal(api: Api) -> None:
    full(api)
    snapshot = api.loop.query(lambda core: json.dumps(core.scheduler.snapshot())).result(60)
    now = api.clock.now
    request = play.question_text(snapshot, ([QueueChanged(now, Queue("vision"))], ["x"]), (now, now + 9_000), None)
    answered = asyncio.run(ask_child(play.__name__, request, 600.0, "wait"))
    assert json.loads(answered) == json.loads(play.answer(json.loads(request)))
    wrong = play.question_text(snapshot, ([QueueChanged(now, Queue("a", "b"))], ["x"]), (now, now + 9_000), None)
    with pytest.raises((InvalidInputError, ConflictError)):
        asyncio.run(ask_child(play.__name__, wrong, 600.0, "wait"))


CHILD = """
import sys, threading
from millpond.server.jobs.what_if.child import answer_parent
def answer(request):
    print("asked", file=sys.stderr, flush=True)
    threading.Event().wait()
answer_parent(answer)
"""
PARENT = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
child.stdin.write(b"{}")
child.stdin.close()
print(child.pid, flush=True)
signal.pause()
"""


def test_a_child_whose_server_was_killed_computes_no_longer() -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        handle = os.pidfd_open(int(parent.stdout.readline()))
        assert parent.stderr.readline() == "asked\n"
        parent.kill()
    try:
        assert select.select([handle], [], [], 60)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def test_a_child_that_takes_too_long_is_ended_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []

    async def start(*_: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(await create(sys.executable, "-c", "import signal; signal.pause()", **options))
        return started[-1]

    create = asyncio.create_subprocess_exec
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    with pytest.raises(UnavailableError, match=r"no answer within 0\.01 s; ask for less"):
        asyncio.run(ask_child(play.__name__, "{}", 0.01, "ask for less"))
    assert [child.returncode for child in started] == [-signal.SIGKILL]
