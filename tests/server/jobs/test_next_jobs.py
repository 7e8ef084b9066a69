"""What starts next is found at once in small pools; in large ones it is kept for a while, and no page waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from server_world import Clock

from job_infos import job_info
from millpond.model.errors import UnavailableError
from millpond.server.jobs.next_jobs import NextJobs
from millpond.server.store.jobs import Owners
from millpond.server.views.visibility import EVERYBODY, Reader
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, StartInfo


class Line:
    """Jobs that wait in this order, and a core that takes its time to say when each starts."""

    def __init__(self) -> None:
        self.clock = Clock(0.0)
        self.jobs: dict[str, JobInfo] = {}
        self.asked: list[str] = []
        self.takes_s = 1.0
        self.answers = asyncio.Event()
        self.answers.set()
        self.turns = asyncio.Event()
        self.turns.set()
        self.asked_in_short: list[str] = []
        self.started: dict[str, str] = {}
        self.failure: Exception | None = None
        self.job_cache = SimpleNamespace(get=self.jobs.get)
        self.next = NextJobs(self, self, self.clock)  # type: ignore[arg-type]

    def wait(self, *names: str, user: str = "ada") -> None:
        for name in names:
            self.jobs[name] = job_info(id=name, name=name, user=user, state="queued", attempt=0)

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        core = SimpleNamespace(now=0.0, scheduler=SimpleNamespace(first_in_line=lambda most, now: list(self.jobs)))
        return question(core)

    async def of(self, job: str) -> ReasonInfo | None:
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        self.asked.append(job)
        self.clock.now += self.takes_s
        start = StartInfo(earliest_at=1.0, latest_at=2.0, basis="x", likely_at=1.5)
        state, summary = self.started.get(job, "queued"), f"full, asked {len(self.asked)}"
        return ReasonInfo(job=job, state=state, cause="c", summary=summary, start=start)

    async def explained(self, info: JobInfo, reader: Reader) -> JobInfo:
        self.asked_in_short.append(info.id)
        await self.turns.wait()
        return replace(info, state=self.started.get(info.id, "queued"), reason="in short")

    async def veiled(self, reason: ReasonInfo, reader: Reader) -> ReasonInfo:
        return reason


def test_what_is_found_quickly_is_found_anew_for_everybody() -> None:
    async def scene() -> None:
        line = Line()
        line.takes_s = 0.01
        line.wait("a")
        assert [each.reason for each in await line.next.of(EVERYBODY, None)] == ["full, asked 1"]
        line.clock.now += 0.01
        assert [each.reason for each in await line.next.of(EVERYBODY, None)] == ["full, asked 2"]

    asyncio.run(scene())


def test_what_took_long_is_kept_for_a_multiple_of_that_but_not_of_jobs_that_wait_no_more() -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a", "b")
        first = await line.next.of(EVERYBODY, None)
        assert [(each.job, each.position) for each in first] == [("a", 1), ("b", 2)]
        line.clock.now += 10
        assert await line.next.of(EVERYBODY, None) == first
        del line.jobs["a"]
        assert [each.job for each in await line.next.of(EVERYBODY, None)] == ["b"]
        assert line.asked == ["a", "b"]
        line.clock.now += 40
        assert [each.reason for each in await line.next.of(EVERYBODY, None)] == ["full, asked 3"]

    asyncio.run(scene())


def test_a_page_has_the_reason_in_short_until_the_estimate_is_known_and_is_told_then() -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a")
        line.answers.clear()
        (short,) = await line.next.of(EVERYBODY, 0.0)
        assert (short.reason, short.start) == ("in short", None)
        version = line.next.version
        line.answers.set()
        (whole,) = await line.next.of(EVERYBODY, None)
        assert whole.start is not None
        assert line.next.version > version
        assert line.asked == ["a"]

    asyncio.run(scene())


def test_all_that_is_asked_in_short_is_asked_before_the_scheduler_has_its_turn() -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a", "b", "c")
        line.answers.clear()
        line.turns.clear()
        page = asyncio.create_task(line.next.of(EVERYBODY, 0.0))
        while not line.asked_in_short:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert line.asked_in_short == ["a", "b", "c"]
        line.turns.set()
        assert [each.reason for each in await page] == ["in short"] * 3

    asyncio.run(scene())


@pytest.mark.parametrize("in_short", [True, False])
def test_a_job_that_the_scheduler_has_started_is_not_said_to_start_next(in_short: bool) -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a", "b")
        line.started["a"] = "starting"  # what is shown of jobs follows a moment later
        if in_short:
            line.answers.clear()
        found = await line.next.of(EVERYBODY, 0.0 if in_short else None)
        assert [each.job for each in found] == ["b"]

    asyncio.run(scene())


def test_a_job_that_starts_while_others_are_asked_about_is_not_said_to_start_next() -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a", "b")
        line.answers.clear()
        line.turns.clear()
        page = asyncio.create_task(line.next.of(EVERYBODY, 0.0))
        while len(line.asked_in_short) < 2:
            await asyncio.sleep(0)
        line.jobs["a"] = replace(line.jobs["a"], state="running")
        line.turns.set()
        assert [each.job for each in await page] == ["b"]

    asyncio.run(scene())


def test_each_reader_is_shown_what_they_may_see() -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a", "b", user="bob")
        line.wait("c")
        found = await line.next.of(Reader(Owners("ada", frozenset())), None)
        assert [(each.job, each.position) for each in found] == [("c", 3)]
        assert line.asked == ["c"]
        assert [each.job for each in await line.next.of(EVERYBODY, None)] == ["a", "b", "c"]

    asyncio.run(scene())


def test_a_core_that_does_not_answer_is_an_error_for_who_asks_and_the_next_one_asks_again() -> None:
    async def scene() -> None:
        line = Line()
        line.wait("a")
        line.failure = UnavailableError("it has ended", "start it")
        with pytest.raises(UnavailableError):
            await line.next.of(EVERYBODY, None)
        line.failure = None
        assert [each.job for each in await line.next.of(EVERYBODY, None)] == ["a"]

    asyncio.run(scene())
