"""The output of pods, copied to where that of local tasks lies: what shows logs finds it, whatever becomes of the pod.

A bounded number of pods is followed, and others are read in turns; ``copied_logs`` leaves out what was copied already.
Kubernetes does not say which stream a line was written to: all count as standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx2

from millpond.engines.kubernetes.cluster.api_channel import REQUEST_WITHIN_S, ApiChannel, ErrorAnswerError, status_of
from millpond.engines.kubernetes.pods.copied_logs import LogFile, NewLines, second_of
from millpond.engines.kubernetes.pods.pod_marks import CONTAINER
from millpond.node.task.records import TaskFiles

log = logging.getLogger(__name__)

FOLLOWED: Final = 64
"""So many pods are followed; of more, the output comes later."""
READS_A_SECOND: Final = 10
EACH_EVERY_S: Final = 1.0
"""A pod that is not followed is read so often at the most."""
READ_AT_ONCE: Final = 16
SILENT_FOR_S: Final = 120.0
"""Output that is followed and says nothing for so long is asked for anew: a proxy on the way may have forgotten it."""
ENDS_WITHIN_S: Final = 2.0
"""An answer that does not end within so long after its pod is read no further: the rest is asked for."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.3, 3.0
_NOT_THERE: Final = frozenset({400, 404})
"""The container does not run yet, or the pod is gone."""
_FORBIDDEN: Final = 403
_UNREAD: Final = (httpx2.TransportError, ErrorAnswerError, OSError)


@dataclass(eq=False, slots=True)
class LogCopy:
    """The copy of one pod's output.

    Attributes:
        files: makes the names of where it goes, which takes longer than all else of a pod that is found at a start.
        done: everything is here, or the pod is gone.
        is_over: the pod has ended: what is there now is all.
        is_told: that it may not be read.
        task: what reads it at the moment.
    """

    pod: str
    files: Callable[[], TaskFiles]
    done: asyncio.Event
    is_over: bool = False
    is_told: bool = False
    task: asyncio.Task[None] | None = None


class LogCopies:
    """Copies the output of pods. Lives on one event loop.

    Output that is followed takes a connection of the API server, and one of it to the kubelet, for as long as the pod
    runs. So that of some pods is followed, which are those that ran first; that of all others is read in turns, some
    each second, and at their ends.

    Args:
        channel: to the cluster's API, with room for as many connections.
        tell: is told, for the job of a pod, that the cluster does not let its output be read.
    """

    def __init__(self, channel: ApiChannel, namespace: str, tell: Callable[[str, str], None]) -> None:
        self._channel = channel
        self._tell = tell
        self._namespace = namespace
        self._followed: set[LogCopy] = set()
        self._others: deque[LogCopy] = deque()
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._said: set[object] = set()
        self._turns: asyncio.Task[None] | None = None

    def begin(self, pod: str, files: Callable[[], TaskFiles]) -> LogCopy:
        """Copy what a pod writes."""
        copy = LogCopy(pod, files, asyncio.Event())
        if len(self._followed) < FOLLOWED:
            self._follow(copy)
        else:
            self._others.append(copy)
            if self._turns is None or self._turns.done():
                self._turns = asyncio.create_task(self._take_turns())
        return copy

    def finish(self, copy: LogCopy) -> None:
        """Its pod has ended; the copy is done when the rest is here."""
        copy.is_over = True
        if copy in self._followed:
            asyncio.get_running_loop().call_later(ENDS_WITHIN_S, self._ask_for_the_rest, copy)
        else:
            self._ask_for_the_rest(copy)

    def _ask_for_the_rest(self, copy: LogCopy) -> None:
        if not copy.done.is_set():
            self._stop(copy)
            copy.task = asyncio.create_task(self._read_the_rest(copy))

    def cancel(self, copy: LogCopy) -> None:
        """What more there is of it matters to nobody."""
        copy.is_over = True
        self._stop(copy)
        copy.done.set()

    def _stop(self, copy: LogCopy) -> None:
        if copy.task is not None:
            copy.task.cancel()

    def _follow(self, copy: LogCopy) -> None:
        self._followed.add(copy)
        copy.task = asyncio.create_task(self._to_the_end(copy))
        copy.task.add_done_callback(lambda task: self._followed_to_the_end(copy, task))

    def _followed_to_the_end(self, copy: LogCopy, task: asyncio.Task[None]) -> None:
        self._followed.discard(copy)
        if task.cancelled() and not copy.is_over:
            return  # the engine is being closed
        while self._others and len(self._followed) < FOLLOWED:
            if not (following := self._others.popleft()).is_over and following.task is None:
                self._follow(following)

    async def _take_turns(self) -> None:
        """Read what is not followed, one after the other, for as long as there is such."""
        while self._others:
            copy = self._others.popleft()
            if not copy.is_over:
                if copy.task is None:  # else it is still being read: two at once would copy everything twice
                    copy.task = asyncio.create_task(self._read_now(copy))
                self._others.append(copy)
            await asyncio.sleep(max(1 / READS_A_SECOND, EACH_EVERY_S / max(len(self._others), 1)))

    async def _read_now(self, copy: LogCopy) -> None:
        try:
            async with self._reading:
                await self._read(copy, follow=False)
        except _UNREAD as error:
            self._note(copy, error)
        finally:
            if copy.task is asyncio.current_task():  # else the pod has ended, and the rest is being read
                copy.task = None

    async def _read_the_rest(self, copy: LogCopy) -> None:
        async with self._reading:
            await self._to_the_end(copy)

    async def _to_the_end(self, copy: LogCopy) -> None:
        """Read until the pod is over and everything is copied, or the pod is gone."""
        wait_s = _FIRST_WAIT_S
        while True:
            over = copy.is_over  # before it is asked: an answer that ends is the last one
            try:
                await self._read(copy, follow=not over)
                if over:
                    break
                wait_s = _FIRST_WAIT_S
            except _UNREAD as error:
                if over and _status(error) in _NOT_THERE:
                    break
                self._note(copy, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        copy.done.set()

    def _note(self, copy: LogCopy, error: Exception) -> None:
        """Log what keeps output away, each kind once: it is tried again, and of many pods at the same time.

        That the cluster forbids it is told to each job once: else its users would believe that it says nothing.
        """
        if isinstance(error, ErrorAnswerError) and error.status_code == _FORBIDDEN and not copy.is_told:
            copy.is_told = True
            self._tell(
                copy.pod, f"its output cannot be read, and is asked for again: {status_of(error.answer).message}"
            )
        kind = _status(error) or getattr(error, "errno", None)
        is_news = kind not in {None, *_NOT_THERE, *self._said}  # connections that break the reflectors say, too
        self._said.add(kind)
        log.log(logging.WARNING if is_news else logging.DEBUG, "the output of %s cannot be read: %s", copy.pod, error)

    async def _read(self, copy: LogCopy, *, follow: bool) -> None:
        target = LogFile(copy.files())
        try:
            await self._read_into(target, copy.pod, follow=follow)
        finally:
            target.close()

    async def _read_into(self, target: LogFile, pod: str, *, follow: bool) -> None:
        params = {"container": CONTAINER, "timestamps": "true", **({"follow": "true"} if follow else {})}
        if target.last:
            params["sinceTime"] = second_of(target.last)
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/log"
        lines = NewLines(target)
        answer = self._channel.follow(path, params, SILENT_FOR_S if follow else REQUEST_WITHIN_S)
        async with contextlib.aclosing(answer) as pieces:
            async for piece in pieces:
                lines.take(piece)
        lines.end()


def _status(error: Exception) -> int | None:
    """What the cluster answered; None: nothing."""
    return error.status_code if isinstance(error, ErrorAnswerError) else None
