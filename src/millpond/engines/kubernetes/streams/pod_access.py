"""Ways into the tasks that are pods (``engines.task_access.TaskAccess``)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.silent_peers import end_when_gone
from millpond.engines.kubernetes.pods.pod_marks import TaskMark
from millpond.engines.kubernetes.streams.channels import PodChannels, PodEntryForbiddenError
from millpond.engines.kubernetes.streams.pod_port import PodPort
from millpond.engines.kubernetes.streams.pod_session import PodSession, said_by
from millpond.engines.task_access import ServingPlace, TaskUnreachedError
from millpond.model.errors import UnavailableError
from millpond.node.task.records import TaskId

R = TypeVar("R")
MOST_AT_ONCE: Final = 1_000
"""Streams into pods; each is a connection to the API server."""
KNOWN_FOR_S: Final = 30.0
"""So long after a program answered at a port, it is believed to listen there still."""
_STRAIGHT_WITHIN_S: Final = 1.0
_NOT_STRAIGHT_FOR_S: Final = 60.0
_CPU_WITHIN_S: Final = 10.0
# Of control groups in their second and their first version: microseconds, nanoseconds.
_CPU_USED: Final = """
if read -r name used </sys/fs/cgroup/cpu.stat; then echo "${used}000"; else cat /sys/fs/cgroup/cpuacct/cpuacct.usage; fi
"""


class PodAccess:
    """Ways into the pods of one engine; the streams live on its loop.

    A server that runs in the cluster itself connects to pods straight, where it can. Programs that listen at 127.0.0.1
    alone, and all those that a server elsewhere asks, are reached through the API server.

    Args:
        find: a pod by its name, as far as the cluster was seen.
        name_of: the name of a task's pod.
        access_key_of: what a job's programs may ask of those who connect to them.
        tell: is told, for the job of a pod, that the cluster does not let its ports be reached.
        foreign: the namespace and name of the pod of others that a task is; empty where it is none.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channels: PodChannels,
        find: Callable[[str], PodObject | None],
        name_of: Callable[[TaskId], str],
        access_key_of: Callable[[str], str],
        tell: Callable[[str, str], None],
        foreign: Callable[[TaskId], str] = lambda _: "",
    ) -> None:
        self._foreign, self._tell = foreign, tell
        self._loop = loop
        self._channels = channels
        self._find, self._name_of = find, name_of
        self._access_key_of = access_key_of
        self._is_inside = "KUBERNETES_SERVICE_HOST" in os.environ
        self._straight_again_at: dict[str, float] = {}
        """By node whose pods did not answer when they were connected to straight: when that is tried again."""
        self._answered_at: dict[tuple[str, int], float] = {}
        self._forbidden: set[str] = set()
        """Pods of which it was told that their ports cannot be reached."""
        self._streams: set[asyncio.Task[None]] = set()

    def serving(self, task: TaskId) -> ServingPlace | None:
        """Where a task serves; None when it runs no more."""
        pod = self._find(self._name_of(task))
        if pod is None or pod.is_over:
            return None
        mark = TaskMark.of(pod.metadata.annotations)
        return ServingPlace(None if mark is None else mark.port, self._access_key_of(task.job))

    async def open_session(self, task: TaskId) -> socket.socket:
        """A place for one command beside a task.

        Raises:
            UnavailableError: it has ended, or too many are open, or its pod is somebody else's.
        """
        if foreign := self._foreign(task):
            namespace, _, pod = foreign.partition("/")
            remedy = f"use your own rights there: kubectl exec -n {namespace} -it {pod} -- sh"
            raise UnavailableError(f"pod {pod} of namespace {namespace} is not Millpond's to enter", remedy)
        return await self._on_loop(self._open_session(self._name_of(task)))

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        """A connection to a program of a task.

        Raises:
            OSError: no program listens there, or the task is over, or not reached (``TaskUnreachedError``).
        """
        pod = self._find(self._name_of(task))
        if pod is None or pod.is_over:
            raise ConnectionRefusedError("the task runs no more")
        async with asyncio.timeout(within_s):
            if self._is_inside and pod.status.pod_ip and self._is_straight_tried(pod.spec.node_name):
                with contextlib.suppress(OSError):
                    return await self._straight(pod, port)
            return await self._on_loop(self._forwarded(pod.metadata.name, port))

    def cpu_s(self, task: TaskId) -> float | None:
        """Processor time that its container has used; None where that cannot be read.

        The image needs a shell. Waits for the cluster; not for the engine's own thread.
        """
        work = asyncio.wait_for(said_by(self._channels, self._name_of(task), _CPU_USED), _CPU_WITHIN_S)
        try:
            said = asyncio.run_coroutine_threadsafe(work, self._loop).result()
            return int(said) / 1e9
        except (UnavailableError, ValueError, TimeoutError):
            return None

    def _is_straight_tried(self, node: str) -> bool:
        return time.monotonic() >= self._straight_again_at.get(node, 0.0)

    async def _straight(self, pod: PodObject, port: int) -> socket.socket:
        address = pod.status.pod_ip
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            async with asyncio.timeout(_STRAIGHT_WITHIN_S):
                await asyncio.get_running_loop().sock_connect(connection, (address, port))
        except BaseException as error:  # also a cancellation
            connection.close()
            if isinstance(error, TimeoutError):  # a network policy, for one
                self._straight_again_at[pod.spec.node_name] = time.monotonic() + _NOT_STRAIGHT_FOR_S
            raise
        end = partial(connection.shutdown, socket.SHUT_RDWR)
        asyncio.run_coroutine_threadsafe(end_when_gone(connection, end), self._loop)
        return connection

    async def _forwarded(self, pod: str, port: int) -> socket.socket:
        if len(self._streams) >= MOST_AT_ONCE:
            raise ConnectionError(f"{MOST_AT_ONCE} streams into pods are open already")
        known = time.monotonic() - self._answered_at.get((pod, port), -KNOWN_FOR_S) < KNOWN_FOR_S
        try:
            stream = await PodPort.open(self._channels, pod, port, is_known=known)
        except UnavailableError as error:
            if isinstance(error, PodEntryForbiddenError) and pod not in self._forbidden:
                self._forbidden = {each for each in self._forbidden if self._find(each)} | {pod}
                self._tell(pod, f"its ports cannot be reached, and are tried again: {error.cause}")
            raise TaskUnreachedError(error.cause, error.remedy) from error
        ours, theirs = _pair(socket.SOCK_STREAM)

        async def carry() -> None:
            await stream.carry(theirs)
            now = time.monotonic()
            for place, at in list(self._answered_at.items()):
                if now - at >= KNOWN_FOR_S:
                    del self._answered_at[place]
            if stream.has_answered:
                self._answered_at[pod, port] = now
            else:
                self._answered_at.pop((pod, port), None)

        self._keep(carry())
        return ours

    async def _open_session(self, pod: str) -> socket.socket:
        found = self._find(pod)
        if found is None or found.is_over:
            raise UnavailableError(f"pod {pod} takes no commands: it is over, or not Millpond's", "see `pond ps`")
        if len(self._streams) >= MOST_AT_ONCE:
            raise UnavailableError(f"{MOST_AT_ONCE} streams into pods are open already", "close some of them")
        ours, theirs = _pair(socket.SOCK_SEQPACKET)
        self._keep(PodSession(self._channels, pod, theirs).run())
        return ours

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        stream = self._loop.create_task(work)
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)

    async def _on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


def _pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    for end in (ours, theirs):
        end.setblocking(False)
    return ours, theirs
