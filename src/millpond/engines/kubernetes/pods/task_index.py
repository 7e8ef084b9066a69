"""Tasks that have pods, found by pod, by job and by node at no cost that grows with their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from millpond.engines.kubernetes.pods.pod_marks import TaskMark


class PlacedTask(Protocol):
    """What does not change as long as a task is in an index."""

    @property
    def mark(self) -> TaskMark:
        """Which task of which run it is."""

    @property
    def node(self) -> str:
        """Where it is, or will be."""


T = TypeVar("T", bound=PlacedTask)


class TaskIndex(Generic[T]):
    """All of them. What it hands out is a copy, so that tasks may come and go meanwhile."""

    def __init__(self) -> None:
        self._by_pod: dict[str, T] = {}
        self._by_job: dict[str, dict[str, T]] = {}
        self._by_node: dict[str, dict[str, T]] = {}

    @property
    def by_pod(self) -> Mapping[str, T]:
        """By the names of their pods."""
        return self._by_pod

    def put(self, pod: str, task: T) -> None:
        """One more, or another in place of the one that had the pod."""
        self.take(pod)
        self._by_pod[pod] = task
        self._by_job.setdefault(task.mark.job, {})[pod] = task
        self._by_node.setdefault(task.node, {})[pod] = task

    def take(self, pod: str) -> T | None:
        """One less; None when there was none."""
        task = self._by_pod.pop(pod, None)
        if task is not None:
            _discard(self._by_job, task.mark.job, pod)
            _discard(self._by_node, task.node, pod)
        return task

    def of_job(self, job: str) -> dict[str, T]:
        """Those of a job, by their pods."""
        return dict(self._by_job.get(job, {}))

    def of_run(self, job: str, attempt: int) -> list[T]:
        """Those of one run of a job."""
        return [task for task in self._by_job.get(job, {}).values() if task.mark.attempt == attempt]

    def on_node(self, node: str) -> list[T]:
        """Those on one node."""
        return list(self._by_node.get(node, {}).values())

    def count_on(self, node: str) -> int:
        """How many are on one node."""
        return len(self._by_node.get(node, ()))

    @property
    def jobs(self) -> set[str]:
        """The jobs that have any."""
        return set(self._by_job)


def _discard(groups: dict[str, dict[str, T]], group: str, pod: str) -> None:
    """Take one out of its group, which goes with its last."""
    members = groups[group]
    del members[pod]
    if not members:
        del groups[group]
