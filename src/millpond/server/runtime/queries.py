"""Queries to the scheduler's thread, answered in time or with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from millpond.model.errors import UnavailableError
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import answer_after
from millpond.server.runtime.loop import Loop

T = TypeVar("T")

ANSWER_WITHIN_S: Final = 30.0


class CoreQueries:
    """Queries for those who answer requests: none of them waits for a scheduler that has ended."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def dead(self) -> str:
        """Why this process will never take work on again; empty while it may."""
        if self._loop.failure is not None:
            return answer_after(self._loop.failure).cause
        return "" if self._loop.alive else "the scheduler is not running"

    async def query(self, question: Callable[[Core], T], *, is_long: bool = False) -> T:
        """Evaluate a function of the core between two turns; one that is long, when others leave time for it."""
        return await self.answered(self._loop.query(question, is_long=is_long))

    async def answered(self, future: Future[T]) -> T:
        """Wait for the answer to a request.

        Raises:
            UnavailableError: the scheduler is not running, or takes too long.
        """
        if self._loop.failure is not None:
            raise answer_after(self._loop.failure)
        if dead := self.dead():
            raise UnavailableError(dead, "see the server's log, then start it again")
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_WITHIN_S)
        except TimeoutError as error:
            hint = "look whether it was done before you try again"
            raise UnavailableError(f"no answer from the scheduler within {ANSWER_WITHIN_S:g} s", hint) from error
