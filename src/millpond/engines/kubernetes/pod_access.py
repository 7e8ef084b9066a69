"""Ways into the tasks that are pods (``engines.task_access.TaskAccess``)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from millpond.engines.kubernetes.channels import PodChannels
from millpond.engines.kubernetes.objects import PodObject
from millpond.engines.kubernetes.pod_session import PodSession
from millpond.engines.kubernetes.pod_template import pod_name
from millpond.engines.task_access import ServingPlace
from millpond.model.errors import UnavailableError
from millpond.node.task.records import TaskId

R = TypeVar("R")
MOST_AT_ONCE: Final = 1_000
"""Streams into pods; each is a connection to the API server."""


class PodAccess:
    """Ways into the pods of one engine; the streams live on its loop.

    Args:
        find: a pod by its name, as far as the cluster was seen.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, channels: PodChannels, find: Callable[[str], PodObject | None]
    ) -> None:
        self._loop = loop
        self._channels = channels
        self._find = find
        self._streams: set[asyncio.Task[None]] = set()

    def serving(self, task: TaskId) -> ServingPlace | None:
        """Where a task serves; None when it runs no more."""
        pod = self._find(pod_name(task))
        return None if pod is None or pod.is_over else ServingPlace(None)

    async def open_session(self, task: TaskId) -> socket.socket:
        """A place for one command beside a task.

        Raises:
            UnavailableError: it has ended, or too many are open.
        """
        return await self._on_loop(self._open_session(pod_name(task)))

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        """A connection to a program of a task."""
        raise ConnectionRefusedError("no port of a pod is reached yet")

    async def _open_session(self, pod: str) -> socket.socket:
        self._require_room(pod)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setblocking(False)
        self._keep(PodSession(self._channels, pod, theirs).run())
        return ours

    def _require_room(self, pod: str) -> None:
        found = self._find(pod)
        if found is None or found.is_over:
            raise UnavailableError(f"pod {pod} takes no commands: it is over", "see `pond ps` for what became of it")
        if len(self._streams) >= MOST_AT_ONCE:
            raise UnavailableError(f"{MOST_AT_ONCE} streams into pods are open already", "close some of them")

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        stream = self._loop.create_task(work)
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)

    async def _on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
