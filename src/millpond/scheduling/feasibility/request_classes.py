"""What a job asks for, worked out once for all jobs that ask for the same: few kinds of jobs come, and many of each."""

from __future__ import annotations

from millpond.model.resources import Amount
from millpond.model.workloads import Job
from millpond.scheduling.placement.shapes import Shape


class RequestClass:
    """What alike jobs ask for.

    Attributes:
        number: names the kind among all demands of one scheduler.
        elastic: whether they can run with fewer or more tasks than they want.
        gpu_milli: guaranteed compute of all tasks.
        amount: what all tasks together count for in quotas.
        shapes, shapes_at: what one task of each role asks of a node, kept by ``Vocabulary.shapes_of``.
    """

    __slots__ = ("amount", "elastic", "gpu_milli", "number", "pool", "roles", "shapes", "shapes_at")

    def __init__(self, job: Job, number: int) -> None:
        self.number = number
        self.roles = job.roles
        self.pool = job.pool
        self.elastic = job.elastic
        self.gpu_milli = job.gpu_milli
        self.amount = Amount(
            self.gpu_milli,
            sum(role.desired * role.request.cpu_milli for role in job.roles),
            sum(role.desired * role.request.memory_mib for role in job.roles),
        )
        self.shapes: tuple[Shape, ...] = ()
        self.shapes_at = -1


class RequestClasses:
    """All demands that a scheduler has met."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[object, RequestClass] = {}

    def of(self, job: Job) -> RequestClass:
        """The demand of a job; jobs whose tasks ask for the same, in one pool, and lie together alike, share it."""
        alike = (job.roles, job.pool, job.together, job.together_required)
        demand = self._known.get(alike)
        if demand is None:
            demand = self._known[alike] = RequestClass(job, len(self._known))
        return demand
