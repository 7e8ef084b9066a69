"""What would become of a job if it were submitted now: the real scheduler, on a copy, in a child process.

The copy is a snapshot of the core. The child submits the job, has one cycle decided and returns what concerns the job;
nothing of it reaches the real core.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any, Final

from millpond.forecasting.durations import Forecast
from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision, Start, Stop, Suspend
from millpond.model.events import DurationPredicted, JobSubmitted
from millpond.model.workloads import Job
from millpond.node.devices.nvidia import VENDOR as NVIDIA
from millpond.scheduling.scheduler import Scheduler
from millpond.server.jobs.what_if.child import answer_parent, ask_child
from millpond.server.views.reasons import deadline_info, reason_info
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.reasons import PlanInfo, PlannedTask, PlannedVictim, QuotaInfo

PLANNED_WITHIN_S: Final = 30.0


async def plan_apart(snapshot: str, job: Job, now: float, forecast: Forecast | None = None) -> PlanInfo:
    """The plan for a job, made in a child process.

    Args:
        snapshot: of the scheduler, as JSON.
        forecast: how long the job should run.

    Raises:
        UnavailableError: it took too long, or the child could not be run.
    """
    told = None if forecast is None else [forecast.expected_s, forecast.cautious_s]
    rest = json.dumps({"job": to_plain(job), "forecast": told, "now": now})
    request = f'{{"snapshot": {snapshot}, {rest[1:]}'
    answer = await ask_child(__name__, request, PLANNED_WITHIN_S, "submit the job without a plan")
    return from_json(PlanInfo, answer)


def plan(scheduler: Scheduler, job: Job, now: float, forecast: Forecast | None = None) -> PlanInfo:
    """Submit a job and return what becomes of it at once; the scheduler is a copy and is changed."""
    models = next((role.request.models for role in job.roles if role.request.devices), ())
    before = scheduler.queue_view(job.queue, models)
    scheduler.handle(JobSubmitted(now, job))
    if forecast is not None:
        scheduler.handle(DurationPredicted(now, job.id, forecast.expected_s, forecast.cautious_s))
    decisions = scheduler.decide(now)
    while scheduler.is_unfinished:
        decisions += scheduler.decide(now)
    start = next((item for item in decisions if isinstance(item, Start) and item.job == job.id), None)
    victims = [victim for item in decisions if (victim := _victim(scheduler, item, job.id)) is not None]
    counted_milli = 0 if job.is_background else job.gpu_milli
    outlook = scheduler.deadline_outlook(job.id, now)
    record = scheduler.jobs[job.id]
    return PlanInfo(
        starts_now=start is not None,
        tasks=_tasks(start),
        victims=victims,
        reason=None if start is not None else reason_info("", record.state, scheduler.explain(job.id, now)),
        borrowed_gpu_milli=_borrowed(before.unpromised_milli, counted_milli),
        unenforced=_unenforced(scheduler, start),
        deadline=None if outlook is None else deadline_info(outlook),
        quota=QuotaInfo(
            queue=job.queue,
            gpu_milli_now=before.used_milli,
            gpu_milli_after=before.used_milli + counted_milli - _given_back(scheduler, victims, job.queue),
            limit_gpu_milli=before.limit_milli,
        ),
    )


def _unenforced(scheduler: Scheduler, start: Start | None) -> str:
    """Why nothing can keep it to its part of a card there; what a machine lacks for it shows at the start."""
    uses = (use for view in scheduler.node_views() for use in view.devices)
    real = {use.device.uuid: use.device for use in uses if not use.device.fake}
    for placed in start.placements if start is not None else ():
        granted = ((grant, real[grant.device]) for grant in placed.grants if grant.device in real)
        cut = (device for grant, device in granted if grant.is_part_of(device))
        vendor = next((device.vendor for device in cut if device.vendor != NVIDIA), "")
        if vendor:
            return f"nothing does so on {vendor} cards unless the kernel bounds their memory (dmem)"
    return ""


def _borrowed(unpromised_milli: int | None, asked_milli: int) -> int:
    """How much of what is asked goes beyond the guarantee."""
    return 0 if unpromised_milli is None else min(asked_milli, max(0, unpromised_milli + asked_milli))


def _given_back(scheduler: Scheduler, victims: list[PlannedVictim], queue: str) -> int:
    """What the same queue gets back from jobs that are preempted for this one."""
    gone = [scheduler.jobs[victim.job] for victim in victims if victim.how == "preempt"]
    return sum(record.gpu_milli for record in gone if record.queue == queue)


def _tasks(start: Start | None) -> list[PlannedTask]:
    placements = start.placements if start is not None else ()
    return [
        PlannedTask(
            task=placed.task,
            role=placed.role,
            node=placed.node,
            devices=[grant.device for grant in placed.grants],
            gpu_milli=sum(grant.compute_milli for grant in placed.grants),
        )
        for placed in placements
    ]


def _victim(scheduler: Scheduler, decision: Decision, job: str) -> PlannedVictim | None:
    """The job that a decision takes room from for this one."""
    match decision:
        case Stop(for_job=successor) if successor == job:
            how = "preempt"
        case Suspend(for_job=successor) if successor == job:
            how = "suspend"
        case _:
            return None
    harmed = scheduler.jobs[decision.job].job
    return PlannedVictim(job=decision.job, user=harmed.user, how=how, cause=decision.cause.value)


def _answer(request: dict[str, Any]) -> str:
    job = from_plain(request["job"])
    assert isinstance(job, Job)
    forecast = None if request["forecast"] is None else Forecast(*request["forecast"])
    return json.dumps(asdict(plan(Scheduler.restore(request["snapshot"]), job, request["now"], forecast)))


if __name__ == "__main__":
    sys.exit(answer_parent(_answer))
