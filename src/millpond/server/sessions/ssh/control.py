"""The gateway's side of the conversation with the authorizer (``messages``)."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Final

from millpond.server.sessions.ssh.messages import GatewayRequest, receive, send

_REPORT_USE_EVERY_S: Final = 5.0


class RefusalError(Exception):
    """The authorizer says no: why, and as which exit code a client should see it."""

    def __init__(self, error: str, remedy: str, exit_code: int) -> None:
        super().__init__(f"{error}; {remedy}" if remedy else error)
        self.exit_code = exit_code


class GatewayControl:
    """Asks questions and takes their answers, in whatever order they come.

    Args:
        connection: to the authorizer; it keeps the bounds of messages.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = 0
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection, self._take)

    async def ask(self, ask: GatewayRequest, about: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question; ``connection`` in it is what was handed over.

        Raises:
            RefusalError: the answer is no, or the server is gone, or what a client said is too long to be asked about.
        """
        self._numbers += 1
        waiting = self._waiting[self._numbers] = asyncio.get_running_loop().create_future()
        try:
            self.notify(ask, about | {"id": self._numbers})
        except ValueError as error:
            del self._waiting[self._numbers]
            raise RefusalError(str(error), "", 1) from error
        answer: dict[str, Any] = await waiting
        if "error" in answer:
            raise RefusalError(answer["error"], answer["remedy"], answer["exit"])
        return answer

    def notify(self, ask: GatewayRequest, about: dict[str, Any]) -> None:
        """Say something that wants no answer, or ask.

        Raises:
            ValueError: it is too long; nothing is said.
        """
        # A full socket means that the authorizer is slow: no client is let in meanwhile.
        self._connection.setblocking(True)
        try:
            send(self._connection, {"ask": ask.value, **about})
        except OSError:
            self._end()
        finally:
            self._connection.setblocking(False)

    async def until_gone(self) -> None:
        """Until the authorizer has gone."""
        await self._gone.wait()

    def _take(self) -> None:
        try:
            received = receive(self._connection)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._end()
            return
        answer, descriptors = received
        if descriptors:
            answer["connection"] = socket.socket(fileno=descriptors[0])
        waiting = self._waiting.pop(answer["id"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        elif "connection" in answer:
            answer["connection"].close()  # who asked has gone
        if waiting is not None and waiting.cancelled() and "session" in answer:
            self.notify(GatewayRequest.LEFT, {"session": answer["session"]})

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._connection)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result({"error": "the server is going down", "remedy": "try again", "exit": 1})
        self._waiting.clear()
        self._gone.set()


class TaskSession:
    """A session beside a task, reported to the authorizer while it lasts."""

    def __init__(self, control: GatewayControl, number: int) -> None:
        self._control = control
        self._number = number
        self._reported_at = time.monotonic()

    def used(self) -> None:
        """They do something."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_USE_EVERY_S:
            self._reported_at = now
            self._control.notify(GatewayRequest.USED, {"session": self._number})

    def left(self) -> None:
        """They are gone."""
        self._control.notify(GatewayRequest.LEFT, {"session": self._number})
