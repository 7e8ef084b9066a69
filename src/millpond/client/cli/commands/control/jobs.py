"""``pond stop``, ``suspend``, ``resume``, ``requeue``, ``priority``, ``migrate``, ``resize`` and ``delete``."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final

import click

from millpond.client.cli.connection import (
    act_on,
    choosing_option,
    confirmed,
    connect,
    for_each,
    job_argument,
    require_attended,
    state_dir_option,
    with_client,
)
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import MOST_JOBS
from millpond.model.amounts import count_text
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.model.workloads import Priority
from millpond.specs.api.jobs.jobs import JobInfo

_NAMED_IN_QUESTION: Final = 5
_PATIENCE_S = 5.0
"""So long it is waited for a job to have left; moving much memory takes longer."""
_LOOK_EVERY_S = 0.05
_CLASSES = [each.name.lower() for each in Priority if each is not Priority.BACKGROUND]


@click.command("stop")
@job_argument("jobs", nargs=-1, metavar="[JOB...]")
@click.option("--all", "everything", is_flag=True, help="All jobs of yours that wait or run.")
@choosing_option("--name", help="All of these of this name; * stands for any letters, ? for one.")
@choosing_option("--queue", metavar="NAME", help="All of these in this queue.")
@choosing_option("--user", metavar="NAME", help="Those of this user instead of yours.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def stop(
    jobs: tuple[str, ...], everything: bool, name: str, queue: str, user: str, yes: bool, state_dir: Path | None
) -> int:
    """End each JOB, or all jobs that the options name: notice first, force after its grace period.

    The options ask first, and leave alone what one may not end.
    """
    chosen = everything or bool(name or queue or user)
    if chosen == bool(jobs):
        raise InvalidInputError(
            "which jobs are to end" if not jobs else "both jobs and options that choose jobs",
            "name jobs, or use --all, --name, --queue or --user",
        )
    if chosen:
        require_attended("add -y to end them", yes)
    with connect(state_dir) as client:
        if not chosen:
            return act_on(client, jobs, Client.stop)
        whose = user or client.accounts.whoami().user
        found = client.jobs(limit=MOST_JOBS, user=whose, queue=queue, name=name).jobs
        names = [job.id for job in found if job.state != "stopping"]
        if not names:
            click.echo("no such jobs wait or run", err=True)
            return 0
        some = ", ".join(names[:_NAMED_IN_QUESTION]) + (", …" if len(names) > _NAMED_IN_QUESTION else "")
        if not confirmed(f"End {count_text(len(names), 'job')} of {whose} ({some})?", yes):
            return 1
        return act_on(client, names, Client.stop)


@click.command("suspend")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--swap", is_flag=True, help="Move its device memory to host memory: its cards are free for others.")
@with_client
def suspend(client: Client, jobs: tuple[str, ...], swap: bool) -> int:
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


@click.command("requeue")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@with_client
def requeue(client: Client, jobs: tuple[str, ...]) -> int:
    """End the run of each JOB, with notice and grace, and let it wait for another; of an array, all runs.

    It keeps its id, and what it saved on notice. A suspended job need not be resumed. One that has ended is submitted
    again as it was, if it is yours: the line shows its new id.
    """

    def again(name: str) -> None:
        job = client.find(name)
        after = client.requeue(job.id)
        new = f"submitted again as {after.id}" if job.ended_at is not None else after.state
        click.echo(f"{job.id}: {new}")

    return for_each(jobs, again)


@click.command("priority")
@click.argument("priority", type=click.Choice(_CLASSES), metavar="CLASS")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@with_client
def priority(client: Client, priority: str, jobs: tuple[str, ...]) -> int:
    """Give each JOB that waits or runs the class of priority CLASS: low, normal, high or critical.

    The class decides who goes first, and who leaves for whom. The queue has to allow it, as at submission. An array
    has it with all its members, also those that follow.
    """
    return act_on(
        client, jobs, lambda _, job: client.set_priority(job, priority), lambda job: f"priority {job.priority}"
    )


@click.command("migrate")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option(
    "--to",
    multiple=True,
    metavar="NODE[/CARD]",
    help="A card, such as gpu-1/3 or a UUID; as many as the job has. Or a node: any of its cards.",
)
@click.option("--restart", is_flag=True, help="It may start anew, though it loses what it has not saved.")
@with_client
def migrate(client: Client, jobs: tuple[str, ...], to: tuple[str, ...], restart: bool) -> int:
    """Move each JOB to other cards, wherever there is room or to those of --to.

    It is live-migrated, as it runs, where its node can bring its memory back on other cards of the same model; else it
    is restart-migrated: it gets its notice, ends, and starts there. Work that does not save itself on notice
    (checkpoint in the job file) is restarted with --restart only.
    """
    return act_on(client, jobs, partial(Client.migrate, to=to, restart=restart), lambda job: job.migration or job.state)


def _size(_context: click.Context, _argument: click.Parameter, text: str) -> tuple[str, int]:
    """A role, empty where none is named, and a number of tasks."""
    role, _, count = text.rpartition("=")
    if not count.isdecimal():
        raise InvalidInputError(f"{text!r} is not a number of tasks", "write for example 4, or worker=4")
    return role, int(count)


@click.command("resize")
@job_argument("job")
@click.argument("size", metavar="[ROLE=]TASKS", callback=_size)
@with_client
def resize(client: Client, job: str, size: tuple[str, int]) -> None:
    """Change the number of tasks of an elastic JOB, to 4 or worker=4, within the bounds of its job file.

    Tasks that are too many get notice and their grace period; missing ones start beside the others. 0 ends all replicas
    of a service that may go without. Of an array, all members that wait or run get that many tasks.
    """
    role, tasks = size
    resized = client.resize(client.find(job).id, tasks, role)
    who = role or "it"
    if resized.array is not None:
        who = f"{role} of each member that waits or runs" if role else "each member that waits or runs"
    click.echo(f"{resized.id}: {who} is to have {count_text(tasks, 'task')}")


@click.command("delete")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def delete(jobs: tuple[str, ...], yes: bool, state_dir: Path | None) -> int:
    """Delete each JOB, which must have ended, with its history, logs and output. Its usage is kept."""
    require_attended("add -y to delete them", yes)
    with connect(state_dir) as client:
        names: list[str] = []
        code = for_each(jobs, lambda job: names.append(client.find(job, unambiguous=True).id))
        question = f"Delete {', '.join(names)}: {count_text(len(names), 'job')} and all that they wrote?"
        if not names or not confirmed(question, yes):
            return code or 1
        return for_each(names, lambda job: click.echo(f"{client.delete(job).id}: deleted")) or code
