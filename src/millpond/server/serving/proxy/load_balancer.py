"""Balance requests among the replicas of a job: the ready one with the fewest open requests is next."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpcore2

from millpond.engines.task_access import TaskAccess
from millpond.node.host.clocks import MonotonicClock
from millpond.node.task.records import TaskId
from millpond.server.serving.proxy.endpoints import TaskEndpoint
from millpond.server.sessions.task_routes import ADDRESS, UNREACHED, TaskNetwork

READY_FOR_S: Final = 5.0
"""So long the last answer of a ready replica counts."""
UNREADY_FOR_S: Final = 0.25
ANSWER_WITHIN_S: Final = 2.0
SILENT_FOR_S: Final = 15.0
"""So long after its first question without an answer, a replica that was ready still counts as ready: it may be short
of processor time, as may the machine, and of requests that are turned away for that, none would be answered."""
_MOST_REMEMBERED: Final = 10_000
_KEPT_OPEN: Final = 20


class Balancer:
    """Counts open requests by replica. Replicas that are about to be ended get no new ones.

    Of replicas with equally few, the one chosen longest ago comes first, so that idle replicas take turns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[TaskId, int] = {}
        self._chosen: dict[TaskId, int] = {}
        self._leaving: dict[str, frozenset[TaskId]] = {}
        self._ended: dict[TaskId, None] = {}
        self._turn = 0

    def order(self, places: Sequence[TaskEndpoint]) -> list[TaskEndpoint]:
        """The replicas that may get a request, the best first."""
        return sorted(
            (place for place in places if not self._leaves(place.task)),
            key=lambda place: (self._open.get(place.task, 0), self._chosen.get(place.task, 0)),
        )

    @contextmanager
    def request_at(self, place: TaskEndpoint) -> Iterator[None]:
        """A request at a replica, while it lasts.

        Raises:
            ConnectionError: the replica is about to be ended; another one may have the request.
        """
        with self._lock:
            if self._leaves(place.task):
                raise ConnectionError("it is about to be ended")
            self._turn += 1
            self._chosen.pop(place.task, None)
            self._chosen[place.task] = self._turn
            self._open[place.task] = self._open.get(place.task, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._open[place.task] -= 1
                if not self._open[place.task]:
                    del self._open[place.task]
                _forget_oldest(self._chosen)

    def retire(self, job: str, replicas: frozenset[TaskId]) -> None:
        """From now on these replicas of a job get no new requests, and its others do. Any thread."""
        with self._lock:
            self._leaving[job] = replicas

    def retain(self, job: str) -> None:
        """All replicas of a job get requests again, but those that are being ended."""
        with self._lock:
            self._leaving.pop(job, None)

    def end(self, replicas: Iterable[TaskId]) -> None:
        """These replicas are being ended, and never get a request again: a request may hold an older list of places."""
        with self._lock:
            self._ended.update(dict.fromkeys(replicas))
            _forget_oldest(self._ended)

    def is_quiet(self, job: str) -> bool:
        """Whether the retired replicas of a job have answered all that they were asked."""
        with self._lock:
            return not any(task in self._open for task in self._leaving.get(job, ()))

    def _leaves(self, task: TaskId) -> bool:
        return task in self._ended or task in self._leaving.get(task.job, ())


def _forget_oldest(remembered: dict[TaskId, Any]) -> None:
    while len(remembered) > _MOST_REMEMBERED:
        del remembered[next(iter(remembered))]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a replica said last.

    Attributes:
        until: it counts so long.
        silent_since: when it was first asked in vain since it last said something; None: it did answer.
    """

    ready: bool
    until: float
    silent_since: float | None = None


class Readiness:
    """Asks replicas whether they are ready, each once at a time, and remembers the answers; for one event loop."""

    def __init__(self, access: TaskAccess, clock: MonotonicClock = time.monotonic) -> None:
        self._clock = clock
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=None,
            max_keepalive_connections=_KEPT_OPEN,
            keepalive_expiry=READY_FOR_S,
            network_backend=TaskNetwork(access),
        )
        self._answers: dict[TaskId, _Answer] = {}
        self._questions: dict[TaskId, asyncio.Task[_Answer]] = {}

    async def ready_ones(self, places: Sequence[TaskEndpoint], path: str | None) -> list[TaskEndpoint]:
        """Those of the replicas that are ready; all of them where no ``path`` is given."""
        if path is None:
            return list(places)
        answers = await asyncio.gather(*(self._answer(place, path) for place in places))
        return [place for place, answer in zip(places, answers, strict=True) if answer.ready]

    async def _answer(self, place: TaskEndpoint, path: str) -> _Answer:
        """The last answer of a replica, or the next one where that counts no more."""
        known = self._answers.get(place.task)
        if known is not None and known.until >= self._clock():
            return known
        question = self._questions.get(place.task)
        if question is None:
            question = self._questions[place.task] = asyncio.create_task(self._question(place, path))
            question.add_done_callback(lambda _: self._questions.pop(place.task))
        return await asyncio.shield(question)  # whoever asked first may leave before the others

    async def _question(self, place: TaskEndpoint, path: str) -> _Answer:
        asked_at = self._clock()
        answer = self._judge(self._answers.get(place.task), await self.ask(place, path), asked_at)
        self._answers.pop(place.task, None)
        self._answers[place.task] = answer
        _forget_oldest(self._answers)
        return answer

    @staticmethod
    def _judge(before: _Answer | None, ready: bool | None, now: float) -> _Answer:
        """What to make of an answer, or of none."""
        if ready is not None or before is None or not before.ready:
            return _Answer(bool(ready), now + (READY_FOR_S if ready else UNREADY_FOR_S))
        since = now if before.silent_since is None else before.silent_since
        return _Answer(now - since < SILENT_FOR_S, now + UNREADY_FOR_S, since)

    async def ask(self, place: TaskEndpoint, path: str) -> bool | None:
        """Whether a replica says that it is ready, asked afresh; None when it says nothing in time."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                response = await self._pool.request("GET", place.way.url + path, headers=question_headers(place))
        except TimeoutError:
            return None
        except UNREACHED:
            return False
        return response.status // 100 == 2

    async def aclose(self) -> None:
        """Close the connections that are kept open."""
        await self._pool.aclose()


def question_headers(place: TaskEndpoint) -> list[tuple[bytes | str, bytes | str]]:
    """Those of a request of the platform's own to a program."""
    return [("Host", f"{ADDRESS}:{place.way.port}"), ("Authorization", f"Bearer {place.access_key}")]
