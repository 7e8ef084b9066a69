"""Requests to an API server, on many connections."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from benchmarks.lean_http import LeanConnection

CONNECTIONS = 32
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; ``body`` is JSON."""

    method: str
    path: str
    body: Any = None

    async def by(self, connection: LeanConnection) -> tuple[int, bytes]:
        """Ask on a connection, again where that was cut; the status and the body of the answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the server cannot be reached, or hangs up.
        """
        was_open = connection.is_open
        try:
            return await connection.request(self.method, self.path, self.body)
        except (OSError, asyncio.IncompleteReadError):
            connection.close()
            if not was_open:
                raise
            # The server went away and came back since the last request.
            return await connection.request(self.method, self.path, self.body)


class ApiClient:
    """A crowd of connections on a thread of its own, for programs that are not asynchronous themselves."""

    def __init__(self, url: str, token: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._crowd = [LeanConnection(url, token) for _ in range(CONNECTIONS)]
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-client", daemon=True)
        self._thread.start()

    def ask(self, method: str, path: str) -> Any:
        """The answer to one request, decoded."""
        _, content = self._run(Ask(method, path).by(self._crowd[0]))
        return json.loads(content)

    def all(self, asks: Iterable[Ask]) -> Counter[int]:
        """All of them, as fast as the server takes them; how many had which status."""
        return self._run(self._all(asks))

    async def _all(self, asks: Iterable[Ask]) -> Counter[int]:
        waiting, seen = iter(asks), Counter[int]()

        async def work(connection: LeanConnection) -> None:
            for ask in waiting:
                status, _ = await ask.by(connection)
                seen[status] += 1

        await asyncio.gather(*map(work, self._crowd))
        return seen

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
