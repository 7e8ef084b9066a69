"""Whether a job may have its class of priority in its queue: asked when it is submitted, and when its class changes."""

from __future__ import annotations

from millpond.model.workloads import Job, Priority
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.tenancy.queues import QueueTree


def class_infeasibility(queues: QueueTree, job: Job) -> Infeasibility | None:
    """Why a job may not have its class in its queue; None if it may. What was accepted keeps its class."""
    closed = queues.closed_to(job.queue, job.priority)
    if closed is None:
        return None
    names = [priority.name.lower() for priority in Priority if queues.closed_to(job.queue, priority) is None]
    stated = ", ".join(Priority(number).name.lower() for number in closed.queue.priorities)
    return Infeasibility(
        f"the job has priority {job.priority.name.lower()}; jobs of queue {closed.queue.name!r} may have {stated}",
        f"use priority {' or '.join(names)}, or another queue" if names else "use another queue",
        "priority" if names else "queue",
        names[-1] if names else "",
    )
