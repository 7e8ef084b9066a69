"""Requests that wait for a replica: how many may, how long, and what wakes a service that has none.

A request that waits is not read any further than its first part, so what it costs is its connection. The client is
watched: one that leaves waits no more. One whose answer has begun waits no more either, however long the answer is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Message, Receive

from millpond.node.host.clocks import MonotonicClock
from millpond.server.serving.proxy.endpoints import NotRunningError
from millpond.server.wording import lasting
from millpond.specs.job.serving import RequestHold

Attempt = Callable[[Callable[[], None]], Awaitable[bool]]
"""Passes a request on if that is possible now, and says whether it was; calls what it gets when the answer begins."""

_SHORTEST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25


@dataclass(slots=True)
class _Waiting:
    """The requests that wait for one job.

    Attributes:
        overdue_at: of each, when it is answered with an error.
        woken_at: when the first of them woke it; None when it was not at rest.
    """

    overdue_at: list[float] = field(default_factory=list)
    woken_at: float | None = None


class RequestQueue:
    """Holds requests until a replica can answer them.

    Args:
        wake: has a job that is at rest get a replica; says whether it was at rest.
        on_woken: called with a job that was woken, after how many seconds, and how many requests had waited.
    """

    def __init__(
        self,
        wake: Callable[[str], Awaitable[bool]],
        on_woken: Callable[[str, float, int], None],
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._wake = wake
        self._on_woken = on_woken
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}

    async def hold(self, job: str, rule: RequestHold, client: WaitingClient, attempt: Attempt) -> None:
        """Try again and again until a request is answered, or its client has left.

        Args:
            job: whose replica it waits for.

        Raises:
            NotRunningError: too many wait already, or it has waited for too long.
        """
        pause = _SHORTEST_PAUSE_S
        overdue_at = self._clock() + rule.longest
        with ExitStack() as seat:
            waiting = seat.enter_context(self._seat(job, rule, overdue_at))
            while not client.has_left:
                if waiting.woken_at is None and await self._wake(job):
                    waiting.woken_at = self._clock()
                if await attempt(seat.close):
                    return
                if self._clock() >= overdue_at:
                    cause = f"{job} had no ready replica within {lasting(rule.longest)}"
                    raise NotRunningError(cause, f"try again later; pond why {job} says what it waits for")
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def served(self, job: str) -> None:
        """A replica of a job takes requests: one that was woken has come up."""
        waiting = self._waiting.get(job)
        if waiting is not None and waiting.woken_at is not None:
            after_s, waiting.woken_at = self._clock() - waiting.woken_at, None
            self._on_woken(job, after_s, len(waiting.overdue_at))

    def waits_for_s(self, job: str) -> float | None:
        """In how many seconds the first of the requests that wait is answered with an error; None when none waits."""
        waiting = self._waiting.get(job)
        deadlines = [] if waiting is None else waiting.overdue_at.copy()  # others come and go meanwhile
        return min(deadlines) - self._clock() if deadlines else None

    @contextmanager
    def _seat(self, job: str, rule: RequestHold, overdue_at: float) -> Iterator[_Waiting]:
        waiting = self._waiting.setdefault(job, _Waiting())
        count = len(waiting.overdue_at)
        if count >= rule.requests:
            raise NotRunningError(f"{job} has no ready replica, and {count} requests wait for one", "try again")
        waiting.overdue_at.append(overdue_at)
        try:
            yield waiting
        finally:
            waiting.overdue_at.remove(overdue_at)
            if not waiting.overdue_at:
                del self._waiting[job]


class WaitingClient:
    """The receiving end of a request or WebSocket that is watched before it is read.

    Reads ahead only as far as needed to know whether the client is still there: the first message, and the next only
    when nothing but word of the client's leaving can follow. What was read ahead is handed on first.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ahead: list[asyncio.Future[Message]] = []

    @property
    def has_left(self) -> bool:
        """Whether the client is gone; begins to watch it."""
        if not self._ahead:
            self._ahead.append(asyncio.ensure_future(self._receive()))
        last = self._ahead[-1]
        if not last.done():
            return False
        message = last.result()
        if message["type"].endswith(".disconnect"):
            return True
        if len(self._ahead) == 1 and not message.get("more_body", False):
            self._ahead.append(asyncio.ensure_future(self._receive()))
        return False

    async def receive(self) -> Message:
        """The next message, for the reader that answers."""
        if not self._ahead:
            return await self._receive()
        # A reader that gives up waiting leaves the message to the next.
        message = await asyncio.shield(self._ahead[0])
        if not message["type"].endswith(".disconnect"):
            self._ahead.pop(0)
        return message

    def close(self) -> None:
        """End the reading."""
        for message in self._ahead:
            message.cancel()
