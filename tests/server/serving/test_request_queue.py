"""Requests that wait for a replica: until one is there, until it takes too long, until their client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from millpond.server.serving.proxy.endpoints import NotRunningError
from millpond.server.serving.proxy.request_queue import RequestQueue, WaitingClient
from millpond.specs.job.serving import RequestHold


class Door:
    """A service that is at rest, and what the room does about it; each look at the clock moves it."""

    def __init__(self, ready_after: int) -> None:
        self.now = 0.0
        self.tries = 0
        self.wakes = 0
        self.ready_after = ready_after
        self.woken: list[tuple[str, float, int]] = []
        self.room = RequestQueue(self.wake, lambda *told: self.woken.append(told), self.clock)

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    async def wake(self, job: str) -> bool:
        self.wakes += 1
        return self.wakes == 1

    async def attempt(self, begins: Callable[[], None]) -> bool:
        self.tries += 1
        if self.tries < self.ready_after:
            return False
        self.room.served("web")
        begins()
        return True


def client(*messages: dict[str, Any]) -> WaitingClient:
    """One that sends these, and then nothing."""
    left = list(messages)

    async def receive() -> Any:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return WaitingClient(receive)


WHOLE = {"type": "http.request", "body": b"x", "more_body": False}
FIRST_PART = {"type": "http.request", "body": b"x", "more_body": True}
LEFT = {"type": "http.disconnect"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries, others have a turn, and no time passes."""
    real: Callable[[float], Any] = asyncio.sleep
    monkeypatch.setattr("millpond.server.serving.proxy.request_queue.asyncio.sleep", lambda _: real(0))


def test_a_request_wakes_a_service_once_and_is_answered_when_it_is_ready() -> None:
    door = Door(ready_after=3)
    asyncio.run(door.room.hold("web", RequestHold(), client(WHOLE), door.attempt))
    assert door.tries == 3
    ((job, after_s, waited),) = door.woken
    assert (job, waited) == ("web", 1)
    assert after_s > 0


def test_it_waits_no_longer_than_it_may() -> None:
    door = Door(ready_after=1_000)
    with pytest.raises(NotRunningError, match="no ready replica within 10 seconds"):
        asyncio.run(door.room.hold("web", RequestHold(longest="10s"), client(WHOLE), door.attempt))
    assert door.woken == []


def test_until_when_the_first_of_those_that_wait_does_is_told() -> None:
    door = Door(ready_after=1_000)
    seen: list[float | None] = []

    async def look(_: Callable[[], None]) -> bool:
        seen.append(door.room.waits_for_s("web"))
        return len(seen) == 3

    asyncio.run(door.room.hold("web", RequestHold(longest="60s"), client(WHOLE), look))
    assert [left_s is not None and 0 < left_s < 60 for left_s in seen] == [True] * 3
    assert seen == sorted(seen, reverse=True)
    assert door.room.waits_for_s("web") is None


def test_a_request_whose_answer_has_begun_waits_no_more_and_its_seat_is_free() -> None:
    door = Door(ready_after=1)
    seen: list[float | None] = []

    async def long_answer(begins: Callable[[], None]) -> bool:
        seen.append(door.room.waits_for_s("web"))
        begins()
        seen.append(door.room.waits_for_s("web"))
        await door.room.hold("web", RequestHold(requests=1), client(WHOLE), door.attempt)
        begins()  # with every part of the answer
        return True

    asyncio.run(door.room.hold("web", RequestHold(requests=1), client(WHOLE), long_answer))
    assert seen[0] is not None
    assert seen[1] is None
    assert door.tries == 1


def test_a_client_that_leaves_waits_no_more() -> None:
    door = Door(ready_after=1_000)
    asyncio.run(door.room.hold("web", RequestHold(), client(WHOLE, LEFT), door.attempt))
    assert door.tries < 10


def test_further_requests_than_may_wait_are_turned_away_and_seats_become_free() -> None:
    door = Door(ready_after=4)

    async def all_at_once() -> list[Any]:
        rule = RequestHold(requests=2)
        waits = (door.room.hold("web", rule, client(WHOLE), door.attempt) for _ in range(3))
        found = await asyncio.gather(*waits, return_exceptions=True)
        await door.room.hold("web", rule, client(WHOLE), door.attempt)
        return list(found)

    first, second, third = asyncio.run(all_at_once())
    assert (first, second) == (None, None)
    assert isinstance(third, NotRunningError)
    assert "2 requests wait for one" in third.cause


def test_what_was_read_ahead_is_handed_on_and_no_more_is_read_than_tells() -> None:
    async def walk() -> list[Any]:
        watched = client(FIRST_PART, WHOLE, LEFT)
        for _ in range(5):
            assert not watched.has_left
            await asyncio.sleep(0)
        return [await watched.receive() for _ in range(3)]

    assert asyncio.run(walk()) == [FIRST_PART, WHOLE, LEFT]
