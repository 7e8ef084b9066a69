"""Questions that take long: what else is asked of the scheduler's thread does not wait for their answers."""

from __future__ import annotations

import asyncio

import pytest
from server_world import Server

from millpond.model.errors import UnavailableError
from millpond.server.runtime import long_questions, loop
from millpond.server.runtime.inbox import Query
from millpond.server.runtime.long_questions import LongQuestions


def test_a_request_and_short_questions_do_not_wait_behind_many_long_ones(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_questions, "TURN_S", 0.0)
    long = [server.loop.query(lambda core: len(core.scheduler.jobs), is_long=True) for _ in range(5)]
    short = server.loop.query(lambda core: len(core.scheduler.jobs))
    submitted = server.submit("a").answer
    server.turn()
    assert submitted.result(0).id == "a"
    assert short.result(0) == 1
    assert [answer.done() for answer in long] == [True, False, False, False, False]
    server.turn(4)
    assert [answer.result(0) for answer in long] == [1] * 5


def test_what_nobody_waits_for_any_more_is_not_answered(server: Server) -> None:
    asked: list[str] = []
    given_up = server.loop.query(lambda _: asked.append("given up"), is_long=True)
    waited_for = server.loop.query(lambda _: asked.append("waited for"), is_long=True)
    assert given_up.cancel()
    server.turn()
    assert waited_for.done()
    assert asked == ["waited for"]


def test_questions_that_are_left_when_the_thread_ends_are_answered_with_an_error() -> None:
    questions, left = LongQuestions(), Query(lambda _: None, is_long=True)
    questions.take([left])
    questions.turn_away()
    with pytest.raises(UnavailableError):
        left.answer.result(0)


def test_one_who_asked_in_vain_may_ask_again_and_one_who_had_something_done_looks_first(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ANSWER_WITHIN_S", 0.0)
    server.loop.alive = True
    with pytest.raises(UnavailableError) as asked:
        asyncio.run(server.loop.ask(lambda core: len(core.scheduler.jobs)))
    with pytest.raises(UnavailableError) as stopped:
        asyncio.run(server.loop.answered(server.loop.stop_job("a", "max")))
    remedies = [error.value.remedy for error in (asked, stopped)]
    assert remedies == ["try again in a moment", "look whether it was done before you try again"]


def test_what_the_scheduler_has_not_taken_up_in_time_is_not_done_later_whoever_waited(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ANSWER_WITHIN_S", 0.0)
    server.submit("a")
    server.turn()
    server.loop.alive = True
    with pytest.raises(UnavailableError, match="no answer from the scheduler within 0 s") as asked:
        server.loop.look_up(lambda core: len(core.scheduler.jobs))
    with pytest.raises(UnavailableError, match="no answer from the scheduler within 0 s") as stopped:
        server.loop.wait_for(server.loop.stop_job("a", "max"))
    with pytest.raises(UnavailableError):
        asyncio.run(server.loop.answered(server.loop.stop_job("a", "max")))
    server.turn()
    assert [error.value.remedy for error in (asked, stopped)] == [loop.ASK_AGAIN, loop.LOOK_FIRST]
    assert [job.state for job in server.loop.job_cache.newest_first()] == ["running"]
