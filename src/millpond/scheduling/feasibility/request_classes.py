"""What a job asks for, worked out once for all jobs that ask for the same: few kinds of jobs come, and many of each."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from millpond.model.resources import Amount, TaskRequest
from millpond.model.workloads import Job
from millpond.scheduling.placement.shapes import Shape


class RequestClass:
    """What alike jobs ask for; jobs of one scheduler that ask for the same share one object.

    Attributes:
        elastic: whether they can run with fewer or more tasks than they want.
        gpu_milli: guaranteed compute of all tasks.
        amount: what all tasks together count for in quotas.
        least_amount: the same of the fewest tasks that can start.
        shapes, shapes_at: what one task of each role asks of a node, kept by ``NameIndex.shapes_of``.
    """

    __slots__ = (
        "__weakref__", "amount", "elastic", "gpu_milli", "least_amount", "pool", "roles", "shapes", "shapes_at",
    )  # fmt: skip

    def __init__(self, job: Job) -> None:
        self.roles = job.roles
        self.pool = job.pool
        self.elastic = job.elastic
        self.gpu_milli = job.gpu_milli
        self.amount = amount_of((role.request, role.desired) for role in job.roles)
        self.least_amount = amount_of((role.request, role.minimum) for role in job.roles)
        self.shapes: tuple[Shape, ...] = ()
        self.shapes_at = -1


class RequestClasses:
    """All demands of the jobs that a scheduler knows; those of no job are dropped."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: WeakValueDictionary[object, RequestClass] = WeakValueDictionary()

    def of(self, job: Job) -> RequestClass:
        """The demand of a job; jobs whose tasks ask for the same, of like nodes and together alike, share it."""
        alike = (job.roles, job.pool, job.together, job.together_required, job.only_on, job.spacing, job.contents)
        demand = self._known.get(alike)
        if demand is None:
            demand = self._known[alike] = RequestClass(job)
        return demand


def amount_of(counts: Iterable[tuple[TaskRequest, int]]) -> Amount:
    """What so many tasks of each request count for."""
    parts = (
        Amount(
            n * request.gpu_milli,
            n * request.cpu_milli,
            n * request.memory_mib,
            card_mib=n * request.card_mib,
            card_share_milli=n * request.card_share_milli,
        )
        for request, n in counts
    )
    return sum(parts, Amount())
