"""Answers that take long to make: how many at once, in whose turn, and until when they count."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from millpond.model.errors import UnavailableError
from millpond.server.http import long_answers
from millpond.server.http.long_answers import AT_ONCE, MOST_LEFT_BEHIND, LongAnswers
from millpond.server.http.user_turns import MOST_OF_ONE


class Work:
    """Answers that are made when the test says so."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.begun: list[str] = []

    def of(self, user: str) -> Callable[[], Awaitable[Response]]:
        async def make() -> Response:
            self.begun.append(user)
            await self.goes_on.wait()
            return Response(b"x" * 200_000)

        return make


class Client:
    """A client that has sent its request, and may leave."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self.request = Request({"type": "http"}, self._receive)
        self.got: list[Message] = []

    async def _receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def takes(self, answer: Response) -> None:
        async def send(message: Message) -> None:
            self.got.append(message)

        await answer({"type": "http"}, self._receive, send)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_one_user_waits_for_their_own_answers_and_not_others_for_theirs() -> None:
    async def scene() -> None:
        answers, work = LongAnswers(), Work()
        asked = [
            asyncio.create_task(answers.answer(Client().request, user, work.of(user)))
            for user in ("max", "max", "max", "mia", "sam")
        ]
        await settled()
        assert work.begun == ["max", "mia"]
        assert len(work.begun) == AT_ONCE
        work.goes_on.set()
        await asyncio.gather(*asked)
        assert sorted(work.begun) == ["max", "max", "max", "mia", "sam"]

    asyncio.run(scene())


def test_an_answer_counts_until_its_client_has_taken_it() -> None:
    async def scene() -> None:
        answers, work, client = LongAnswers(), Work(), Client()
        work.goes_on.set()
        made = [await answers.answer(Client().request, "max", work.of("max")) for _ in range(MOST_OF_ONE)]
        with pytest.raises(UnavailableError, match="are under way"):
            await answers.answer(Client().request, "max", work.of("max"))
        await answers.answer(Client().request, "mia", work.of("mia"))
        await client.takes(made[0])
        assert b"".join(message.get("body", b"") for message in client.got) == b"x" * 200_000
        assert max(len(message.get("body", b"")) for message in client.got) < 100_000
        await answers.answer(Client().request, "max", work.of("max"))

    asyncio.run(scene())


def test_nothing_is_made_for_a_client_that_has_left_and_what_fails_counts_no_more() -> None:
    async def scene() -> None:
        answers, work, leaving = LongAnswers(), Work(), Client()
        first = asyncio.create_task(answers.answer(Client().request, "max", work.of("max")))
        second = asyncio.create_task(answers.answer(leaving.request, "max", work.of("gone")))
        await settled()
        leaving.leaves.set()
        with pytest.raises(UnavailableError, match="has left"):
            await second
        work.goes_on.set()
        await first

        async def broken() -> Any:
            raise ValueError

        for _ in range(2 * MOST_OF_ONE):
            with pytest.raises(ValueError):  # noqa: PT011
                await answers.answer(Client().request, "mia", broken)
        assert "gone" not in work.begun

    asyncio.run(scene())


def test_work_that_a_disk_keeps_from_ending_keeps_no_other_user_waiting() -> None:
    disk, begun = threading.Event(), threading.Semaphore(0)

    def read() -> None:
        begun.release()
        disk.wait()

    async def scene() -> None:
        answers = LongAnswers()
        for _ in range(AT_ONCE + MOST_LEFT_BEHIND):
            assert await answers.in_thread(lambda: "made") == "made"
            reading = asyncio.create_task(answers.in_thread(read))
            await asyncio.to_thread(begun.acquire)
            reading.cancel()  # its client has left
            await asyncio.wait([reading])
        with pytest.raises(UnavailableError, match=r"8 answers like this one do not come to an end; .*disk"):
            await answers.in_thread(lambda: "made")
        disk.set()
        answers._threads.shutdown()
        assert answers._under_way == set()

    try:
        asyncio.run(scene())
    finally:
        disk.set()


def test_a_client_does_not_wait_for_ever_for_work_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()

    async def scene() -> None:
        with pytest.raises(UnavailableError, match=r"has not come within 0 s; .*disk"):
            await LongAnswers().in_thread(disk.wait)

    monkeypatch.setattr(long_answers, "WITHIN_S", 0.0)
    try:
        asyncio.run(scene())
    finally:
        disk.set()


def test_a_disk_that_says_itself_that_it_does_not_answer_is_quoted() -> None:
    def read() -> None:
        raise TimeoutError(110, "Connection timed out")

    async def scene() -> None:
        with pytest.raises(TimeoutError, match="Connection timed out"):
            await LongAnswers().in_thread(read)

    asyncio.run(scene())


def test_all_objects_are_looked_through_for_garbage_again_once_the_last_answer_is_made() -> None:
    usual = gc.get_threshold()

    async def ask() -> None:
        answers, slow, fast = LongAnswers(), Work(), Work()
        first = asyncio.create_task(answers.answer(Client().request, "ada", slow.of("ada")))
        second = asyncio.create_task(answers.answer(Client().request, "bob", fast.of("bob")))
        await settled()
        assert (slow.begun, fast.begun) == (["ada"], ["bob"])
        fast.goes_on.set()
        await second
        assert gc.get_threshold() == (*usual[:2], 2**31 - 1), "young garbage is looked for as ever"
        first.cancel()
        await settled()

    asyncio.run(ask())
    assert gc.get_threshold() == usual
