"""Pods that the agent of their node gives cards to are bound to it one at a time.

The kubelet does not tell the agent for which pod it asks, so the next is bound when the kubelet has taken the last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable
from typing import Final, TypeVar

from millpond.engines.kubernetes.cluster.objects import PodObject

R = TypeVar("R")
PATIENCE_S: Final = 20.0
"""A kubelet that says nothing of a pod keeps others from its node for so long."""


class BindTurns:
    """The turns of all nodes. Lives on one event loop."""

    def __init__(self) -> None:
        self._nodes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._awaited: dict[str, asyncio.Event] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def bind(self, node: str, pod: str, binding: Awaitable[R]) -> R:
        """Bind a pod when it is its turn; returns when that is done, and its turn ends when the kubelet has taken it.

        Args:
            pod: its namespace and name, as ``namespace/name``.
            binding: where it comes to a text, that says why the pod is not bound, and the kubelet hears of none.
        """
        lock = self._nodes[node]
        await lock.acquire()
        try:
            taken = self._awaited[pod] = asyncio.Event()
            result = await binding
        except BaseException:
            self._awaited.pop(pod, None)
            lock.release()
            raise
        if result:
            taken.set()
        task = asyncio.get_running_loop().create_task(self._end_turn(lock, pod, taken))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return result

    def seen(self, pod: PodObject, *, is_gone: bool = False) -> None:
        """What a kubelet says of a pod."""
        awaited = self._awaited.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
        status = pod.status
        has_begun = bool(status.container_statuses or status.init_container_statuses) or status.phase != "Pending"
        if awaited is not None and (is_gone or has_begun):
            awaited.set()

    async def _end_turn(self, lock: asyncio.Lock, pod: str, taken: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(taken.wait(), PATIENCE_S)
        self._awaited.pop(pod, None)
        lock.release()
