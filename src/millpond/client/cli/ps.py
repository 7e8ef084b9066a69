"""``pond ps``: jobs at a glance."""

from __future__ import annotations

import time
from pathlib import Path

import click

from millpond.client.cli import arrays, wording
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.client.sdk.client import ENDED, MOST_JOBS
from millpond.model.states import JobState
from millpond.specs.job_bodies import JobInfo, JobList

_NARROW = (
    Column("ID"),
    Column("STATE"),
    Column("GPUS", right=True),
    Column("AGE", right=True),
    Column("RAN", right=True),
    Column("WHERE", gives_way=True),
)
_WIDE = (
    *_NARROW[:-1],
    Column("USER"),
    Column("QUEUE"),
    Column("PRIORITY"),
    Column("KIND"),
    Column("RUN", right=True),
    Column("PREEMPTED", right=True),
    Column("EXIT", right=True),
    Column("HOLD", right=True),
    _NARROW[-1],
)
_STATES = [state.value for state in JobState]


@click.command("ps")
@click.option("-a", "--all", "ended", is_flag=True, help="Show ended jobs too.")
@click.option("--limit", type=click.IntRange(1, MOST_JOBS), default=200, show_default=True, help="Newest jobs to show.")
@click.option("--members", "array", metavar="ARRAY", help="The members of ARRAY by their index, ended ones too.")
@click.option(
    "--state",
    type=click.Choice(_STATES),
    metavar="STATE",
    help=f"Only those in this state: {', '.join(_STATES[:-1])} or {_STATES[-1]}.",
)
@listing_options
@asks_server
def command(
    ended: bool, limit: int, array: str | None, state: str | None, output: str, watch: bool, state_dir: Path | None
) -> None:
    """List jobs, newest first. An array is one line; --members lists what it is made of."""
    with connect(state_dir) as client:
        members_of = "" if array is None else client.find(array).id

        def look() -> Listing:
            everything = ended or bool(members_of)
            found = client.jobs(ended=everything and not state, limit=limit, members_of=members_of, state=state or "")
            return Listing(found, [job.id for job in found.jobs], lambda wide: _draw(found, wide, everything))

        show_listing(look, output, watch)


def _draw(found: JobList, wide: bool, ended: bool) -> None:
    if not found.jobs:
        click.echo("no jobs" if ended else "no jobs wait or run (`pond ps -a` shows ended ones)", err=True)
        return
    now = time.time()
    show(_WIDE if wide else _NARROW, [_row(job, now, wide) for job in found.jobs], fitted=not wide)
    if found.truncated:
        which = "first" if any(job.parent for job in found.jobs) else "newest"
        click.echo(f"only the {which} {wording.count(len(found.jobs), 'job')}; --limit shows more", err=True)


def _row(job: JobInfo, now: float, wide: bool) -> list[str]:
    head = [job.id, job.state, job.gpus, wording.span(now - job.submitted_at), _ran(job, now)]
    if not wide:
        return [*head, _where(job)]
    code = "" if job.exit_code is None else str(job.exit_code)
    return [
        *head,
        *(job.user, job.queue, job.priority, job.kind, str(job.attempt), str(job.preemptions), code),
        "" if job.requests_wait_until is None else wording.span(max(job.requests_wait_until - now, 0.0)),
        _where(job),
    ]


def _ran(job: JobInfo, now: float) -> str:
    """For how long the present or last run has been at work."""
    ran_s = job.ran_s(now)
    return "" if ran_s is None else wording.span(ran_s)


def nodes_of(job: JobInfo) -> list[str]:
    """The machines of its tasks: of those that have not ended, where there are any."""
    there = [task.node for task in job.tasks if task.node and task.state not in ENDED]
    return list(dict.fromkeys(there or [task.node for task in job.tasks if task.node]))


def _where(job: JobInfo) -> str:
    """The machines it runs on, or why it waits, or how it ended; of an array, how far it is."""
    if job.array is not None:
        return arrays.where(job)
    if job.state == "failed":
        told = [task for task in job.tasks if task.detail]
        detail = next((task.detail for task in sorted(told, key=lambda task: not task.exit_code)), "")
        return detail or f"exit code {job.exit_code}"
    if job.reason:
        return job.reason
    nodes = ", ".join(nodes_of(job))
    if job.suspension and job.state == "suspended":
        return f"{nodes}, {job.suspension}"
    return f"{nodes} (unsandboxed)" if job.unsandboxed else nodes
