"""The orderings of one scheduler: the cluster's, and those that queues and kinds of jobs have of their own.

Jobs of one queue that have the same ordering of their own are a *group*: ``turns`` has what that means for their order.
What concerns more than the jobs of a group is the cluster's to say: how queues and users share, what may be displaced,
what a reservation is for, and how long a job runs.
"""

from __future__ import annotations

from millpond.model.policies import learned_weights, orderings_of, own_orderings_of
from millpond.scheduling.ordering import named
from millpond.scheduling.ordering.base import Ordering
from millpond.scheduling.ordering.default import Default
from millpond.scheduling.ordering.learned import Learned
from millpond.scheduling.records import Group, JobRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queue_node import QueueNode

_BY_NAME: dict[str, type[Ordering]] = {
    "default": Default,
    "fifo": named.Fifo,
    "sjf": named.ShortestJobFirst,
    "srtf": named.ShortestRemainingTime,
    "srsf": named.SmallestRemainingService,
    "ssf": named.SmallestServiceFirst,
    "tiresias": named.Tiresias,
    "edf": named.EarliestDeadline,
    "fair": named.FairShare,
}


def make_ordering(name: str, settings: Settings) -> Ordering:
    """The ordering of this name."""
    if name in _BY_NAME:
        return _BY_NAME[name](settings)
    return Learned(settings, learned_weights(name))


class Orderings:
    """Who answers for which job.

    Attributes:
        base_name, base: the ordering of the cluster; it alone learns, and all others ask it how much longer jobs run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.base_name, self._by_kind = orderings_of(settings.ordering)
        self._own: dict[str, Ordering] = {}
        self.base = make_ordering(self.base_name, settings)

    def name_for(self, record: JobRecord, queue: QueueNode) -> str:
        """The name of the ordering of a job: of its queue, or the nearest above, for its kind; else the cluster's."""
        kind = record.job.kind
        for node in queue.path:
            if node.queue.ordering and (name := own_orderings_of(node.queue.ordering).get(kind)):
                return name
        return self._by_kind.get(kind, self.base_name)

    def group_of(self, record: JobRecord, queue: QueueNode) -> Group | None:
        """The group of a job; None where the cluster's ordering is its own.

        With an ordering under which the use of users goes first, each user's jobs are a group for themselves.
        """
        name = self.name_for(record, queue)
        if name == self.base_name:
            return None
        user = record.job.user if self.base.share_decides else ""
        return name, record.queue, user, record.job.pool, int(record.job.priority)

    def of(self, group: Group | None) -> Ordering:
        """The ordering of a group."""
        if group is None:
            return self.base
        found = self._own.get(group[0])
        if found is None:
            found = self._own[group[0]] = make_ordering(group[0], self._settings)
            found.time_left = self.base.time_left
        return found
