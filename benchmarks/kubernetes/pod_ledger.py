"""Everybody's pods as they come by on a watch of its own: how many are bound, when, and whether any rule was broken.

It is the judge of a benchmark: it looks at the cluster alone, and believes no scheduler.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.cluster_view import PODS
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.reflector import Reflector
from millpond.engines.kubernetes.pods.pod_marks import TaskMark

CARD = "nvidia.com/gpu"
TaskDone: TypeAlias = tuple[str, int]
"""A job and the number of a task."""


class PodLedger:
    """Follows all pods of a cluster on a thread of its own.

    Args:
        cards: of each node.

    Attributes:
        wrongs: what must never be: cards given out twice, a pod on two nodes, two pods that did one task of one run.
        done: tasks of Millpond's jobs that were done to their end, in which runs and by which pods.
    """

    def __init__(self, kubeconfig: Path, cards: int) -> None:
        self.wrongs: list[str] = []
        self._cards = cards
        self._bound: dict[str, tuple[str, int]] = {}
        self._bound_at: dict[str, float] = {}
        self._held: defaultdict[str, int] = defaultdict(int)
        self._uids: dict[str, str] = {}
        self._phases: dict[str, str] = {}
        self._in_phase: Counter[str] = Counter()
        self.done: defaultdict[TaskDone, dict[int, str]] = defaultdict(dict)
        self._news = threading.Condition()
        self._config = find_config(ClusterAccess(str(kubeconfig)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._follow(),), daemon=True)
        self._thread.start()

    @property
    def bound(self) -> int:
        """Pods that were bound so far, those that are gone too."""
        return len(self._bound_at)

    def names(self, phase: str) -> list[str]:
        """The pods in a phase."""
        with self._news:
            return sorted(name for name, each in self._phases.items() if each == phase)

    @property
    def phases(self) -> Counter[str]:
        """How many pods there are in which phase."""
        with self._news:
            return +self._in_phase

    def has(self, name: str) -> bool:
        """Whether there is a pod of that name."""
        with self._news:
            return name in self._phases

    def bound_between(self, prefix: str = "") -> list[float]:
        """When pods whose name begins so were bound, in order, by the monotonic clock."""
        with self._news:
            return sorted(at for name, at in self._bound_at.items() if name.startswith(prefix))

    def forget(self) -> None:
        """Count from zero; the rules go on."""
        with self._news:
            self._bound_at.clear()

    def wait(self, holds: Callable[[], bool], patience_s: float) -> bool:
        """Wait until a condition holds; false when nothing at all has been bound or changed for so long."""
        with self._news:
            while not holds():
                if not self._news.wait(patience_s):
                    return False
        return True

    async def _follow(self) -> None:
        channel = api_channel(self._config, 0)
        await Reflector(channel, PODS, self._changed, self._deleted).run()

    def _changed(self, pod: PodObject) -> None:
        meta, node = pod.metadata, pod.spec.node_name
        with self._news:
            first = self._uids.setdefault(meta.name, meta.uid)
            if first != meta.uid:
                self._wrong(f"pod {meta.name} was made again while it was there")
                self._uids[meta.name] = meta.uid
            self._enter(meta.name, "Ending" if meta.deletion_timestamp else pod.status.phase)
            before = self._bound.get(meta.name)
            if before is not None and before[0] != node:
                self._wrong(f"pod {meta.name} moved from {before[0]} to {node or 'nowhere'}")
            if node and before is None and not pod.is_over:
                asked = sum(int(each.resources.requests.get(CARD, "0")) for each in pod.spec.containers)
                self._bound[meta.name] = (node, asked)
                self._bound_at[meta.name] = time.monotonic()
                self._held[node] += asked
                if self._held[node] > self._cards:
                    self._wrong(f"{self._held[node]} of {self._cards} cards of node {node} are given out")
            elif pod.is_over:
                self._release(meta.name)
            self._note_end(pod)
            self._news.notify_all()

    def _deleted(self, pod: PodObject) -> None:
        with self._news:
            self._release(pod.metadata.name)
            self._enter(pod.metadata.name, "")
            self._uids.pop(pod.metadata.name, None)
            self._news.notify_all()

    def _enter(self, name: str, phase: str) -> None:
        """A pod is in a phase by now; an empty one: it is gone."""
        if before := self._phases.pop(name, ""):
            self._in_phase[before] -= 1
        if phase:
            self._phases[name] = phase
            self._in_phase[phase] += 1

    def _note_end(self, pod: PodObject) -> None:
        mark = TaskMark.of(pod.metadata.annotations)
        if mark is not None and pod.status.phase == "Succeeded":
            first = self.done[mark.job, mark.task].setdefault(mark.attempt, pod.metadata.uid)
            if first != pod.metadata.uid:
                self._wrong(f"two pods called {pod.metadata.name} did their task to its end")

    def _release(self, name: str) -> None:
        if (was := self._bound.pop(name, None)) is not None:
            self._held[was[0]] -= was[1]

    def _wrong(self, text: str) -> None:
        self.wrongs.append(text)
