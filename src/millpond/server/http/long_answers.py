"""Bound answers that take long or are large: some at once in all, and one after the other for each user.

All other requests share the threads and the memory of the server with them. So a user waits for their own answers
alone, and an answer counts until its client has taken it. Work that waits for a disk cannot be ended: its client is
answered without it, and some threads more are there for others meanwhile.

What such an answer is made of, half a million objects for 100,000 rows, is not looked through for garbage while it is
made: that would be a pause of some tenths of a second for all requests, and find nothing.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from millpond.model.errors import UnavailableError
from millpond.server.http.disconnects import while_connected
from millpond.server.http.user_turns import UserTurns

T = TypeVar("T")

AT_ONCE: Final = 2
"""Answers that are made at the same time."""
WITHIN_S: Final = 120.0
"""Work that takes longer waits for a disk, or for a folder of another machine."""
MOST_LEFT_BEHIND: Final = 6
"""How much work may go on beside these whose clients have been answered without it."""
_LOOK: Final = "see whether the disk, or the network folder, on which the job's files lie answers"
_PIECE: Final = 64 * 2**10
_NEVER: Final = 2**31 - 1


class LongAnswers:
    """Makes long answers. Belongs to an event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE + MOST_LEFT_BEHIND, "long-answer")
        self._under_way: set[Future[Any]] = set()
        self._turns = UserTurns(AT_ONCE)
        self._being_made = 0
        self._usual_looks = gc.get_threshold()

    async def answer(self, request: Request, user: str, make: Callable[[], Awaitable[Response]]) -> Response:
        """An answer when it is its turn; none is made for a client that has left.

        Args:
            request: whose body has been read.

        Raises:
            UnavailableError: too many are under way for this user, or the client has left.
        """
        self._turns.counts.enter(user)
        try:
            made = await while_connected(request, self._in_turn(user, make))
        except BaseException:
            self._turns.counts.leave(user)
            raise
        return _CountedAnswer(made, partial(self._turns.counts.leave, user))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work that blocks; no other request waits for its thread.

        Raises:
            UnavailableError: it takes too long, or too much of the kind does.
        """
        if len(self._under_way) == AT_ONCE + MOST_LEFT_BEHIND:
            raise UnavailableError(f"{len(self._under_way)} answers like this one do not come to an end", _LOOK)
        doing = self._threads.submit(work)
        self._under_way.add(doing)
        doing.add_done_callback(self._under_way.discard)
        try:
            async with asyncio.timeout(WITHIN_S):
                return await asyncio.wrap_future(doing)
        except TimeoutError as error:
            if doing.done() and not doing.cancelled():
                raise
            raise UnavailableError(f"the answer has not come within {WITHIN_S:g} s", _LOOK) from error

    async def _in_turn(self, user: str, make: Callable[[], Awaitable[Response]]) -> Response:
        async with self._turns.own(user):
            with self._young_garbage_only():
                return await make()

    @contextmanager
    def _young_garbage_only(self) -> Iterator[None]:
        """Garbage is looked for among what is new, and no longer among all there is, until the last of them is made."""
        if self._being_made == 0:
            self._usual_looks = gc.get_threshold()
            gc.set_threshold(*self._usual_looks[:2], _NEVER)
        self._being_made += 1
        try:
            yield
        finally:
            self._being_made -= 1
            if self._being_made == 0:
                gc.set_threshold(*self._usual_looks)


class _CountedAnswer(Response):
    """An answer that says when it is over. It goes out in pieces, each when the one before has nearly been taken."""

    def __init__(self, made: Response, over: Callable[[], None]) -> None:
        super().__init__(status_code=made.status_code)
        self.raw_headers = made.raw_headers
        self._content = memoryview(made.body)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for begin in range(0, len(self._content), _PIECE):
                piece = bytes(self._content[begin : begin + _PIECE])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._over()


class StreamedAnswer(StreamingResponse):
    """An answer whose source is a generator, which is closed at the end, also when the client has left.

    Left to the garbage collector, it would keep its files open until that comes by.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what the generator makes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await cast("AsyncGenerator[bytes]", self.body_iterator).aclose()
