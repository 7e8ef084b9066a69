"""``pond suspend`` and ``pond resume``: halt jobs where they are, or move them off their cards, and let them go on."""

from __future__ import annotations

import time
from functools import partial

import click

from millpond.client.cli.connection import act_on, job_argument, with_client
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, UnavailableError
from millpond.specs.api.jobs.jobs import JobInfo

_PATIENCE_S = 5.0
"""So long it is waited for a job to have left; moving much memory takes longer."""
_LOOK_EVERY_S = 0.05


@click.command("suspend")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--swap", is_flag=True, help="Move its device memory to host memory: its cards are free for others.")
@with_client
def command(client: Client, jobs: tuple[str, ...], swap: bool) -> int:
    """Halt each JOB where it is; of an array, all members that run.

    Its processes and its memory stay, on the card too; its share of compute is free for others until `pond resume`.
    """
    return act_on(client, jobs, partial(leave, swap=swap), _suspended)


def leave(client: Client, job_id: str, *, swap: bool) -> JobInfo:
    """Suspend a job, and see that it has left.

    Raises:
        ConflictError: it cannot be suspended, or could not leave.
    """
    job = client.suspend(job_id, swap=swap)
    give_up = time.monotonic() + _PATIENCE_S
    while job.leaving and time.monotonic() < give_up:
        time.sleep(_LOOK_EVERY_S)
        try:
            job = client.job(job_id)
        except UnavailableError:
            break  # it was asked, and the server that comes up next sees to it
    if job.state == "running" and job.suspension:
        remedy = "it runs on; without --swap it is halted where it is" if swap else "it runs on"
        raise ConflictError(f"job {job.id!r} {job.suspension}", remedy)
    if swap and job.suspension.startswith("frozen"):
        raise ConflictError(f"job {job.id!r} is {job.suspension}", "it is halted, and keeps its cards")
    return job


def _suspended(job: JobInfo) -> str:
    if job.array is not None:
        return "its running members are being suspended"
    return f"being suspended, {job.suspension}" if job.leaving else job.state


@click.command("resume")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@with_client
def resume(client: Client, jobs: tuple[str, ...]) -> int:
    """Let each suspended JOB go on, as soon as there is room on its devices; of an array, all suspended members."""
    return act_on(client, jobs, Client.resume, _resumed)


def _resumed(job: JobInfo) -> str:
    if job.array is not None:
        return "its suspended members are to go on"
    if job.state == "suspended":
        return "to go on, as soon as its devices are free and its queue admits it"
    return job.state
