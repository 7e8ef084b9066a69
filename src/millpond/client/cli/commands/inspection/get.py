"""``pond get``: everything about one job, and how far it has come."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from millpond.client.cli.commands.control.rollout import lines_of
from millpond.client.cli.commands.inspection.ps import places_text
from millpond.client.cli.commands.inspection.why import facts_of
from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.error_output import complain
from millpond.client.cli.follow import exit_code_of
from millpond.client.cli.printing import array_tables, formats
from millpond.client.cli.printing.last_lines import drawn, last_lines
from millpond.client.cli.printing.listing import show
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import ENDED
from millpond.model.amounts import count_text
from millpond.model.errors import InvalidInputError, NotAllowedError
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo
from millpond.specs.api.jobs.trials import TrialList
from millpond.specs.api.services import ServiceInfo
from millpond.specs.escaped_text import json_text, yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccount:
    """Everything about one job; printed in the form of the API's bodies.

    Attributes:
        document: the job file that it was submitted with; null where it is damaged, or not for this user.
        reason: why it waits or runs, or how it ended.
        events: its history, oldest first.
        service: what stands behind its address; null where it is no service.
        trials: of a sweep, the best first.
        last_lines: of what the task wrote that a failed job failed by.
    """

    job: JobInfo
    document: dict[str, Any] | None
    reason: ReasonInfo
    events: list[EventInfo]
    service: ServiceInfo | None = None
    trials: TrialList | None = None
    last_lines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LifeStep:
    """One station of a job's life, and what there is to say about it."""

    name: str
    text: str
    is_done: bool = True


@click.command("get")
@job_argument("job")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Form of the answer."
)
@with_client
def command(client: Client, job: str, output: str) -> None:
    """Show the details of JOB; with -o json or yaml, its job file, state and history."""
    name = client.find(job).id
    info = client.job(name)
    account = JobAccount(
        job=info,
        document=None if output == "table" else _document(client, name),
        reason=client.why(name),
        events=client.events(name),
        trials=client.trials(name, info.array.count) if info.array is not None and info.array.sweep else None,
        service=client.services.info(name) if info.kind == "service" else None,
        last_lines=last_lines(client, info),
    )
    match output:
        case "json":
            click.echo(json_text(account))
        case "yaml":
            click.echo(yaml_text(account), nl=False)
        case _:
            for line in _account_lines(account, time.time(), client.address.url):
                click.echo(line)
            for line in account.last_lines:
                click.echo(drawn(line))
            if account.trials is not None:
                _show_trials(account.trials)


def _document(client: Client, job: str) -> dict[str, Any] | None:
    """Its job file; where it cannot be had, the reason on standard error, as the rest is worth showing without it."""
    try:
        return client.document(job)
    except (InvalidInputError, NotAllowedError) as error:
        complain(error)
        return None


def _show_trials(found: TrialList) -> None:
    """The first of the trials as a table."""
    click.echo()
    shown = found.trials[: array_tables.TRIALS_SHOWN]
    show(array_tables.trial_columns(found), [array_tables.trial_row(found, trial) for trial in shown])
    if len(found.trials) > len(shown):
        click.echo(f"and {len(found.trials) - len(shown)} more; -o json has all of them", err=True)


def _account_lines(account: JobAccount, now: float, server_url: str) -> Iterator[str]:
    """The job in a line, its steps up to the first that is not done, and what stands in its way."""
    job = account.job
    yield f"{job.id}: {job.state_text} ({job.kind} of {job.user or 'somebody'} in queue {job.queue}, GPUs: {job.gpus})"
    if job.name and not job.id.startswith(f"{job.name}-"):
        yield _line("", "name", job.name)
    for step in steps_of(job, now):
        yield _line("done" if step.is_done else "now", step.name, step.text)
        if not step.is_done:
            break
    for title, text in _facts(account, now, server_url):
        yield _line("", title, text)


def _facts(account: JobAccount, now: float, server_url: str) -> Iterator[tuple[str, str]]:
    """What else there is to say of a job, by title."""
    job = account.job
    if job.progress is not None:
        yield "steps", job.progress.text
    if job.power_cap_w:
        yield "power cap", f"{job.power_cap_w:.0f} W for each card"
    if job.shares_with:
        yield "shares", f"its cards with {job.shares_with}"
    if job.deadline is not None:
        yield "deadline", formats.deadline(job.deadline, now)
    if job.array is not None:
        yield from array_tables.members_text(job.array)
        if account.trials is not None and (best := array_tables.best_text(account.trials)):
            yield "best", best
    yield from _tasks(job, account.service)
    if job.network:
        yield "network", _NETWORKS[job.network]
    yield from (("isolation", text) for text in _confinement(job))
    if job.state in ("queued", "suspended"):
        yield from facts_of(account.reason, now)
    if job.requests_wait_until is not None:
        until = formats.instant_text(job.requests_wait_until, seconds=True)
        yield "held", f"requests wait for a replica, the first until {until}"
    if account.service is not None:
        yield from lines_of(account.service, server_url)


def _tasks(job: JobInfo, service: ServiceInfo | None) -> Iterator[tuple[str, str]]:
    """How the tasks of each role are, where there are several; of a service, how many of them take requests."""
    if service is not None and service.scaling is None and job.state not in ENDED:
        yield "replicas", f"{service.ready} of {service.replicas} ready"
    roles = dict.fromkeys(task.role for task in job.tasks)
    if len(job.tasks) < 2:
        return
    yield "tasks", count_text(len(job.tasks), "task")
    for role in roles:
        # A task that was ended as its job needed it no more (a daemon) counts as succeeded, and says so itself.
        states = [(task.state == "succeeded" and task.detail) or task.state for task in job.tasks if task.role == role]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        nodes = ", ".join(dict.fromkeys(task.node for task in job.tasks if task.role == role and task.node))
        yield f"  {role}", counts + (f" on {nodes}" if nodes else "")


_NETWORKS = {"host": "the machine's", "private": "private, shared by its tasks alone"}
_HOLDS = {
    "gate": "the gate",
    "mps": "NVIDIA's multi-process service",
    "mig": "the card itself (MIG)",
    "dmem": "the kernel, which bounds its device memory and not its time (dmem)",
}


_SHORTEST_HOLD_S = 1.0
"""A job that can start sooner was not held back."""


def _confinement(job: JobInfo) -> Iterator[str]:
    """How its present or last run is kept apart from others, and kept to what it asked for."""
    if job.unsandboxed:
        yield "unsandboxed: it can see files and processes of others"
    if job.limited_by == "process":
        yield "nothing keeps its processes together to its CPUs and memory"
    if job.held_by == "nothing":
        yield f"nothing keeps it to its part of the card: {job.hold_reason}"
    elif job.held_by:
        beside = job.memory_by_kernel and job.held_by != "dmem"
        by_kernel = ", and its device memory by the kernel too (dmem)" if beside else ""
        yield f"kept to its part of the card by {_HOLDS[job.held_by]}{by_kernel}"


def steps_of(job: JobInfo, now: float) -> Iterator[LifeStep]:
    """The stations of a job's life up to the present one."""
    yield LifeStep("submitted", formats.instant_text(job.submitted_at, seconds=True))
    if job.eligible_at is not None and job.eligible_at - job.submitted_at >= _SHORTEST_HOLD_S:
        held = f"held back for {formats.span(job.eligible_at - job.submitted_at)}"
        yield LifeStep("eligible", f"{formats.instant_text(job.eligible_at, seconds=True)}, {held}")
    yield _placed(job, now)
    yield _started(job)
    yield _ended(job) if job.state in ENDED else LifeStep(job.state, _present(job, now), is_done=False)


def _placed(job: JobInfo, now: float) -> LifeStep:
    """Whether it has, or had, a place to run."""
    if job.array is not None and (job.first_started_at is not None or job.state in ENDED):
        return LifeStep("placed", "each member by itself")
    nodes = places_text(job)
    if job.attempt == 0 and job.state in ENDED:
        return LifeStep("placed", "never")
    if job.attempt == 0 or job.state == "queued":
        earlier = f" after {count_text(job.attempt, 'run')}" if job.attempt else ""
        return LifeStep("queued", f"submitted {formats.span(now - job.submitted_at)} ago{earlier}", is_done=False)
    return LifeStep("placed", f"on {nodes}" + (f", run {job.attempt}" if job.attempt > 1 else ""))


def _started(job: JobInfo) -> LifeStep:
    """Whether its processes run, or ran."""
    at = job.started_at or job.first_started_at
    if at is None:
        is_over = job.state in ENDED
        return LifeStep("started", "never" if is_over else "its processes are being started", is_done=is_over)
    waited = f"{formats.span((job.first_started_at or at) - job.submitted_at)} after its submission"
    which = f"the first run {waited}" if job.attempt > 1 else waited
    return LifeStep("started", f"{formats.instant_text(at, seconds=True)}, {which}")


def _present(job: JobInfo, now: float) -> str:
    ran_s = job.ran_s(now)
    since = "" if ran_s is None else f" for {formats.span(ran_s)}"
    moved = f", {job.migration}" if job.migration else ""
    suspend_refused = f"; it {job.suspension}" if job.suspension else ""
    if job.is_kept:
        return f"failed with {job.blamed or f'exit code {job.exit_code}'}; {formats.kept(job)}"
    known = {
        "running": f"runs{since}{moved}{suspend_refused}{formats.limit_end(job)}",
        "suspended": job.suspension or "halted where it is",
        "unknown": job.reason,
    }
    return known.get(job.state, "asked to end")


def _ended(job: JobInfo) -> LifeStep:
    at = "" if job.ended_at is None else f"{formats.instant_text(job.ended_at, seconds=True)}, "
    started = job.started_at or job.first_started_at
    ran = "" if started is None or job.ended_at is None else f", {formats.span(job.ended_at - started)} after its start"
    # What was not kept of a task that did well; where there are several, they are listed.
    said = job.blamed or (job.tasks[0].detail if job.state == "succeeded" and len(job.tasks) == 1 else "")
    detail = f": {said}" if said else ""
    code = "it never ran" if job.state == "failed" and started is None else f"exit code {exit_code_of(job)}"
    return LifeStep(job.state, f"{at}{code}{ran}{detail}")


def _line(mark: str, name: str, text: str) -> str:
    head = f"  {mark:<4}  {name:<9}  "
    return textwrap.fill(text, 80, initial_indent=head, subsequent_indent=" " * len(head))
