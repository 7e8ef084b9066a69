"""What an engine and the API of the server tell each other about runs whose files are carried. Safe for threads.

The engine knows which tasks have pods, and learns from the cluster that a program has ended. The carrier beside it may
know that earlier: of a pod that is being deleted, the cluster says nothing until all of it is gone.
"""

from __future__ import annotations

import threading
from collections import Counter

from millpond.node.task.records import TaskId


class CarriedRuns:
    """The tasks of one server that have pods.

    Args:
        clusters: in so many.
    """

    def __init__(self, clusters: int = 1) -> None:
        self._awaited = clusters
        self._lock = threading.Lock()
        self._ended: dict[TaskId, bool] = {}
        self._told: set[TaskId] = set()
        self._ending: set[TaskId] = set()
        self._runs: Counter[tuple[str, int]] = Counter()

    @property
    def is_ready(self) -> bool:
        """Whether the engines have looked at all clusters; before that, any run may live."""
        return self._awaited <= 0

    def note_look(self) -> None:
        """The engine of one of the clusters has looked at it."""
        with self._lock:
            self._awaited -= 1

    def enter(self, task: TaskId) -> None:
        """A task has a pod, or is about to."""
        with self._lock:
            if task not in self._ended:
                self._ended[task] = False
                self._runs[task.job, task.attempt] += 1

    def leave(self, task: TaskId) -> None:
        """A task is over, and what it left is here, or given up."""
        with self._lock:
            self._told.discard(task)
            self._ending.discard(task)
            if self._ended.pop(task, None) is not None:
                self._runs[task.job, task.attempt] -= 1
                if not self._runs[task.job, task.attempt]:
                    del self._runs[task.job, task.attempt]

    def note_end(self, task: TaskId) -> None:
        """The program of a task has ended, by the cluster's word."""
        with self._lock:
            if task in self._ended:
                self._ended[task] = True

    def note_word(self, task: TaskId) -> None:
        """The program of a task has ended, by its carrier's word."""
        with self._lock:
            if task in self._ended:
                self._told.add(task)

    def note_deletion(self, task: TaskId) -> None:
        """The pod of a task is being deleted: the cluster says nothing more of its program until all of it is gone."""
        with self._lock:
            if task in self._ended:
                self._ending.add(task)

    def is_ending(self, task: TaskId) -> bool:
        """Whether the pod of a task is being deleted."""
        return task in self._ending

    def has_ended(self, task: TaskId) -> bool:
        """Whether the cluster says that the program of a task has ended."""
        return self._ended.get(task, False)

    def seems_ended(self, task: TaskId) -> bool:
        """Whether anybody says so."""
        return task in self._told or self.has_ended(task)

    def has(self, task: TaskId) -> bool:
        """Whether a task has a pod, and is not over."""
        return task in self._ended

    def lives(self, job: str, attempt: int) -> bool:
        """Whether a run goes on, or may."""
        return not self.is_ready or (job, attempt) in self._runs
