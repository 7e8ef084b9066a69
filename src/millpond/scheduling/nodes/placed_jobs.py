"""Which jobs have a place on a node, so that nobody looks through all jobs when something happens to the node."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.scheduling.records import JobRecord


class PlacedJobs:
    """The jobs of a scheduler by the nodes of their tasks' latest places, also those that have ended.

    It is made from the jobs when it is asked first; twins are seldom asked. From then on every place that a task gets
    is noted. Places that were left are found out when their node is asked about.
    """

    def __init__(self, jobs: Mapping[str, JobRecord]) -> None:
        self._jobs = jobs
        self._by_node: dict[str, set[str]] | None = None
        self._nodes_of: dict[str, set[str]] = {}
        """All nodes under which a job stands."""

    def note(self, job: str, node: str) -> None:
        """A task of a job has a place on a node."""
        if self._by_node is not None:
            self._by_node.setdefault(node, set()).add(job)
            self._nodes_of.setdefault(job, set()).add(node)

    def forget(self, job: str) -> None:
        """A job is no longer among the jobs."""
        if self._by_node is not None:
            for node in self._nodes_of.pop(job, ()):
                self._leave(job, node)

    def on(self, node: str) -> set[str]:
        """The jobs with a task whose latest place is on a node."""
        if self._by_node is None:
            self._by_node = {}
            for job, record in self._jobs.items():
                for task in record.tasks:
                    if task.placement is not None:
                        self.note(job, task.placement.node)
        for job in list(self._by_node.get(node, ())):
            if not _is_on(self._jobs[job], node):
                self._nodes_of[job].discard(node)
                self._leave(job, node)
        return set(self._by_node.get(node, ()))

    def _leave(self, job: str, node: str) -> None:
        assert self._by_node is not None
        there = self._by_node[node]
        there.discard(job)
        if not there:
            del self._by_node[node]


def _is_on(record: JobRecord, node: str) -> bool:
    return any(task.placement is not None and task.placement.node == node for task in record.tasks)
