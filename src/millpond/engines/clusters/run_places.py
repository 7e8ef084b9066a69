"""Which cluster drives which node, and in which one each run of a job lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.model.decisions import Decision, Prefetch, Start
from millpond.model.events import ALL_TASKS, Confirmed, Ended, Event, NodeLost, Refused
from millpond.node.task.records import TaskId

SPANS: Final = "its tasks would lie in several clusters, as it was submitted when there was one: submit it again"


@dataclass(slots=True)
class _RunPlace:
    """One run; ``nodes``: of each of its tasks that holds something."""

    attempt: int
    cluster: str
    nodes: dict[int, str] = field(default_factory=dict)

    def on(self, node: str) -> list[int]:
        """Its tasks on a node."""
        return [task for task, place in self.nodes.items() if place == node]


class RunPlaces:
    """Follows decisions and events. Read from any thread, changed by one.

    Attributes:
        cluster_of_node: the cluster that each node is, or was last, in.
    """

    def __init__(self) -> None:
        self.cluster_of_node: dict[str, str] = {}
        self._runs: dict[str, _RunPlace] = {}
        self._starts: dict[int, Start] = {}

    def cluster_of(self, job: str) -> str | None:
        """Where the run of a job lies; None: nothing of it holds anything."""
        run = self._runs.get(job)
        return None if run is None else run.cluster

    def adopt(self, expected: Mapping[TaskId, str], unanswered: Iterable[Decision]) -> None:
        """Go on with what an earlier server had begun."""
        for task, node in expected.items():
            self._enter(task.job, task.attempt, self.cluster_of_node[node], {task.task: node})
        for decision in unanswered:
            self.route(decision)

    def route(self, decision: Decision) -> str | None:
        """The cluster that a decision is for; None: of a start no single one, of all others none any more."""
        if isinstance(decision, Prefetch):
            return self.cluster_of_node.get(decision.node)
        if not isinstance(decision, Start):
            return self.cluster_of(decision.job)
        nodes = {placed.task: placed.node for placed in decision.placements}
        clusters = {self.cluster_of_node[node] for node in nodes.values()}
        if decision.joins and (joined := self.cluster_of(decision.job)) is not None:
            clusters.add(joined)
        if len(clusters) != 1:
            return None
        (cluster,) = clusters
        self._starts[decision.id] = decision
        self._enter(decision.job, decision.attempt, cluster, nodes)
        return cluster

    def note(self, events: Sequence[Event]) -> None:
        """Follow what has happened."""
        for event in events:
            match event:
                case Confirmed():
                    self._starts.pop(event.decision, None)
                case Refused() if (start := self._starts.pop(event.decision, None)) is not None:
                    for placed in start.placements:
                        self._leave(start.job, start.attempt, placed.task)
                case Ended():
                    self._leave(event.job, event.attempt, event.task)
                case NodeLost():
                    lost = [(job, run, task) for job, run in self._runs.items() for task in run.on(event.node)]
                    for job, run, task in lost:
                        self._leave(job, run.attempt, task)
                case _:
                    pass

    def _enter(self, job: str, attempt: int, cluster: str, nodes: Mapping[int, str]) -> None:
        run = self._runs.get(job)
        if run is None or run.attempt != attempt:
            run = self._runs[job] = _RunPlace(attempt, cluster)
        run.nodes.update(nodes)

    def _leave(self, job: str, attempt: int, task: int) -> None:
        run = self._runs.get(job)
        if run is not None and run.attempt == attempt:
            run.nodes.pop(task, None)
            if task == ALL_TASKS or not run.nodes:
                del self._runs[job]
