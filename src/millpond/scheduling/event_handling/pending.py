"""Decisions that wait for the engine's answer, found by what is asked about them without a look at all of them.

A cycle may suspend thousands of jobs, and of each of them it is asked whether it is on its way off its devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, ValuesView
from typing import TypeVar

from millpond.model.decisions import Decision, Migrate, Suspend, SuspendMode

Key = TypeVar("Key", bound=Hashable)


class PendingDecisions:
    """By id, and by the job, the job that gets the room, and the nodes whose host memory they may fill."""

    __slots__ = ("_by_id", "_by_job", "_by_node", "_by_successor", "_nodes")

    def __init__(self) -> None:
        self._by_id: dict[int, Decision] = {}
        self._by_job: dict[str, dict[int, Decision]] = {}
        self._by_successor: dict[str, dict[int, Decision]] = {}
        self._by_node: dict[str, dict[int, Decision]] = {}
        self._nodes: dict[int, Sequence[str]] = {}

    def add(self, decision: Decision, nodes: Sequence[str] = ()) -> None:
        """Wait for the answer to a decision.

        Args:
            nodes: names of the nodes that the job is on, if the decision ``moves_memory``.
        """
        number = decision.id
        self._by_id[number] = decision
        self._by_job.setdefault(decision.job, {})[number] = decision
        if type(decision) is Suspend and decision.for_job:
            self._by_successor.setdefault(decision.for_job, {})[number] = decision
        if nodes:
            self._nodes[number] = nodes
            for node in nodes:
                self._by_node.setdefault(node, {})[number] = decision

    def pop(self, number: int) -> Decision | None:
        """Wait for it no longer; None if it was not waited for."""
        decision = self._by_id.pop(number, None)
        if decision is not None:
            _drop(self._by_job, decision.job, number)
            if type(decision) is Suspend and decision.for_job:
                _drop(self._by_successor, decision.for_job, number)
            for node in self._nodes.pop(number, ()):
                _drop(self._by_node, node, number)
        return decision

    def get(self, number: int) -> Decision | None:
        """The decision of a number; None if it is not waited for."""
        return self._by_id.get(number)

    def values(self) -> ValuesView[Decision]:
        """All of them, in order of their ids."""
        return self._by_id.values()

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def of(self, job: str) -> list[Decision]:
        """Those about a job."""
        return list(self._by_job.get(job, {}).values())

    def suspensions_for(self, successor: str) -> Iterable[Decision]:
        """Suspensions that make room for a job."""
        return self._by_successor.get(successor, {}).values()

    @property
    def move_memory(self) -> bool:
        """Whether any of them moves device memory to host memory."""
        return bool(self._by_node)

    def moving_memory(self, node: str) -> Iterable[Decision]:
        """Those that move device memory of a node to its host memory."""
        return self._by_node.get(node, {}).values()

    def copy(self) -> PendingDecisions:
        """An independent copy."""
        twin = PendingDecisions()
        for decision in self._by_id.values():
            twin.add(decision, self._nodes.get(decision.id, ()))
        return twin


def moves_memory(decision: Decision) -> bool:
    """Whether device memory comes to host memory by it, for as long as it takes or longer."""
    return type(decision) is Migrate or (type(decision) is Suspend and decision.mode is SuspendMode.SWAP)


def _drop(index: dict[Key, dict[int, Decision]], key: Key, number: int) -> None:
    found = index[key]
    del found[number]
    if not found:
        del index[key]
