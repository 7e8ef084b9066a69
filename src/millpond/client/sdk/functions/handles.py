"""Jobs as Python objects: what ``millpond.submit`` gives back.

Waiting is synchronous or asynchronous on the same object, by one client and with the same errors: a second client, for
asynchronous programs, would repeat every method. A job lasts seconds to days; an asynchronous wait borrows a thread for
the milliseconds of each look and none in between.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from millpond.client.sdk.client import Client
from millpond.client.sdk.functions.outcomes import JobTimeoutError, value_of, without_result
from millpond.client.sdk.resources.jobs import ENDED
from millpond.client.sdk.transport.reconnecting import Patience
from millpond.model.errors import NotAllowedError, NotFoundError, UnavailableError
from millpond.specs.api.jobs.files import MetricsInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.logs import LogStream
from millpond.specs.api.jobs.reasons import ReasonInfo

T = TypeVar("T")

_LOOK_EVERY_S = 1.0
_FIRST_LOOK_S = 0.05
_LAST_LINES = 20


class JobHandle(ABC, Generic[T]):
    """A function that runs, or ran: in the pool, or right here (``executor="debug"``)."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The job's id."""

    @property
    @abstractmethod
    def state(self) -> str:
        """Its state now; a ``model.states.JobState``."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> str:
        """Wait for its end; returns its last state.

        Raises:
            JobTimeoutError: it has not ended within ``timeout`` seconds; it goes on.
        """

    @abstractmethod
    def results(self, timeout: float | None = None) -> list[T]:
        """What the function returned in each task, by rank; otherwise like ``result``."""

    @abstractmethod
    async def aresult(self, timeout: float | None = None) -> T:
        """``result`` for asynchronous programs; awaiting the job itself is the same."""

    @abstractmethod
    def logs(self, stream: LogStream | None = None) -> str:
        """What it wrote so far, to both streams or to one."""

    @abstractmethod
    def follow(self) -> Iterator[str]:
        """What it writes, piece by piece, up to its end."""

    @abstractmethod
    def metrics(self) -> MetricsInfo:
        """What its tasks reported of themselves."""

    @abstractmethod
    def why(self) -> ReasonInfo:
        """Why it waits or runs, and what would help."""

    @abstractmethod
    def stop(self) -> None:
        """Ask for its end. One that has ended stays as it is."""

    def result(self, timeout: float | None = None) -> T:
        """Wait for its end; returns what the function returned (in the task of rank 0).

        Raises:
            Exception: what the function raised, with the remote traceback as its cause.
            JobFailedError: it ended without a result.
            NotAllowedError: it is another user's, whom ``attach`` does not name as trusted.
            JobTimeoutError: it has not ended within ``timeout`` seconds; it goes on.
        """
        return self.results(timeout)[0]

    def __await__(self) -> Generator[Any, None, T]:
        return self.aresult().__await__()

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


class PoolJob(JobHandle[T]):
    """A job of a server.

    Args:
        info: its look when it was submitted.
        trusted: the one user, besides oneself, whose results are read: reading one runs what its job wrote into it.
    """

    def __init__(self, client: Client, info: JobInfo, trusted: str = "") -> None:
        self._client = client
        self._trusted = trusted
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def state(self) -> str:
        if self.info.state not in ENDED:
            self.info = self._client.job(self.id)
        return self.info.state

    def wait(self, timeout: float | None = None) -> str:
        give_up_at = None if timeout is None else time.monotonic() + timeout
        every_s = _LOOK_EVERY_S if timeout is None else min(_LOOK_EVERY_S, max(timeout / 4, _FIRST_LOOK_S))
        for info in self._client.watch(self.id, every_s):
            self.info = info
            if info.settled:
                break
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise self._too_late(timeout)
        return self.info.settled

    def results(self, timeout: float | None = None) -> list[T]:
        self.wait(timeout)
        return [self._value(task) for task in range(len(self.info.tasks))]

    def result(self, timeout: float | None = None) -> T:
        self.wait(timeout)
        return self._value(0)

    async def aresult(self, timeout: float | None = None) -> T:
        give_up_at = None if timeout is None else time.monotonic() + timeout
        pause_s, patience = _FIRST_LOOK_S, Patience(self._client)
        while not await asyncio.to_thread(self._look, patience):
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise self._too_late(timeout)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LOOK_EVERY_S)
        return await asyncio.to_thread(self._value, 0)

    def logs(self, stream: LogStream | None = None) -> str:
        return "".join(chunk.data for chunk in self._client.logs(self.id) if stream in (None, chunk.stream))

    def follow(self) -> Iterator[str]:
        for chunk in self._client.logs(self.id, follow=True):
            if chunk.data:
                yield chunk.data

    def why(self) -> ReasonInfo:
        return self._client.why(self.id)

    def metrics(self) -> MetricsInfo:
        return self._client.files.metrics(self.id)

    def stop(self) -> None:
        if self.state not in ENDED:
            self.info = self._client.stop(self.id)

    def _look(self, patience: Patience) -> str:
        """How its work has ended, as far as that is known."""
        try:
            _ = self.state
        except UnavailableError as error:
            patience.lost(error)
        else:
            patience.found()
        return self.info.settled

    def _value(self, task: int) -> T:
        owner = self.info.user
        if owner != self._trusted and owner != self._client.accounts.whoami().user:
            raise NotAllowedError(
                f"job {self.id} is {owner}'s, and reading its result runs whatever code it wrote into it",
                f"if you trust them: millpond.attach({self.id!r}, trusted_user={owner!r})",
            )
        try:
            data = self._client.files.result(self.id, task)
        except NotFoundError as error:
            raise without_result(self.info, "\n".join(self.logs().splitlines()[-_LAST_LINES:])) from error
        value: T = value_of(data)
        return value

    def _too_late(self, timeout: float | None) -> JobTimeoutError:
        return JobTimeoutError(
            f"job {self.id} is still {self.info.state} after {timeout:g} s", "wait longer; it goes on"
        )


class InlineJob(JobHandle[T]):
    """A function that ran in this process, while ``submit`` was called: breakpoints and debuggers work as ever.

    What it raised is raised again by ``result``, the very same exception with the frames in which it was raised, for a
    debugger to look into.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._error: Exception | None = None
        try:
            self._returned: T = call()
        except Exception as error:
            self._error = error

    @property
    def id(self) -> str:
        return "debug"

    @property
    def state(self) -> str:
        return "succeeded" if self._error is None else "failed"

    def wait(self, timeout: float | None = None) -> str:
        return self.state

    def results(self, timeout: float | None = None) -> list[T]:
        if self._error is not None:
            raise self._error
        return [self._returned]

    async def aresult(self, timeout: float | None = None) -> T:
        return self.result()

    def logs(self, stream: LogStream | None = None) -> str:
        return ""

    def follow(self) -> Iterator[str]:
        return iter(())

    def metrics(self) -> MetricsInfo:
        return MetricsInfo(job=self.id, attempt=1, series=[])

    def why(self) -> ReasonInfo:
        return ReasonInfo(job=self.id, state=self.state, cause=self.state, summary="it ran in this process, at once")

    def stop(self) -> None:
        return None


class JobHandles(list[JobHandle[T]]):
    """Jobs of one ``map``, in the order of its items.

    Args:
        array: what they are members of, where they were submitted as one.
    """

    def __init__(self, jobs: Iterable[JobHandle[T]] = (), array: PoolJob[Any] | None = None) -> None:
        super().__init__(jobs)
        self._array = array

    def results(self, timeout: float | None = None) -> list[T]:
        """What the function returned for each item.

        Raises:
            Exception: as ``JobHandle.result``, of the first job that has no result.
        """
        give_up_at = None if timeout is None else time.monotonic() + timeout
        return [job.result(None if give_up_at is None else max(0.0, give_up_at - time.monotonic())) for job in self]

    async def aresults(self) -> Sequence[T]:
        """``results`` for asynchronous programs."""
        return await asyncio.gather(*(job.aresult() for job in self))

    def stop(self) -> None:
        """Ask for the end of all of them."""
        for job in self if self._array is None else [self._array]:
            job.stop()
