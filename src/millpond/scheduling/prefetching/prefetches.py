"""What is fetched to nodes before work starts there, and where that was tried: once for each job and node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millpond.model.decisions import Decision, Prefetch
from millpond.scheduling.records import JobRecord


class Prefetches:
    """Those of one state.

    Attributes:
        under_way: by node, the fetch that is not answered.
        tried: by job, the nodes to which anything was fetched for it.
    """

    def __init__(self) -> None:
        self.under_way: dict[str, Prefetch] = {}
        self.tried: dict[str, list[str]] = {}

    def begin(self, fetch: Prefetch) -> None:
        """Something is fetched to a node from now on."""
        self.under_way[fetch.node] = fetch
        self.tried.setdefault(fetch.job, []).append(fetch.node)

    def end(self, node: str) -> Prefetch | None:
        """Nothing is any more; returns what was."""
        return self.under_way.pop(node, None)

    def answered(self, fetch: Prefetch) -> None:
        """The engine has fetched it, or could not."""
        present = self.under_way.get(fetch.node)
        if present is not None and present.id == fetch.id:
            del self.under_way[fetch.node]

    def forget_ended(self, jobs: Mapping[str, JobRecord]) -> None:
        """Know nothing more of jobs that have ended, or are none any more."""
        for job in [job for job in self.tried if job not in jobs or jobs[job].state.ended]:
            del self.tried[job]

    def nodes_for(self, job: str) -> list[str]:
        """The nodes to which something is being fetched for a job."""
        return sorted(node for node, fetch in self.under_way.items() if fetch.job == job)

    def copy_from(self, other: Prefetches) -> None:
        """Know the same."""
        self.under_way = dict(other.under_way)
        self.tried = {job: list(nodes) for job, nodes in other.tried.items()}

    def restore(self, tried: Mapping[str, Iterable[str]], pending: Iterable[Decision]) -> None:
        """What was tried, and which decisions wait for an answer."""
        self.tried = {job: list(nodes) for job, nodes in tried.items()}
        self.under_way = {each.node: each for each in pending if isinstance(each, Prefetch) and each.contents}
