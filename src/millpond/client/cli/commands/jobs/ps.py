"""``pond ps``: jobs at a glance."""

from __future__ import annotations

import time
from difflib import get_close_matches
from pathlib import Path
from typing import Unpack

import click

from millpond.client.cli import array_tables, timestamps, wording
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.client.sdk.client import ENDED, MOST_JOBS, Only
from millpond.model.states import JobState
from millpond.specs.api.jobs import JobInfo, JobList

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
    Column("NAME"),
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


def _states(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    """States with commas between them."""
    states = tuple(state.strip() for state in text.split(",")) if text else ()
    for state in states:
        if state not in _STATES:
            near = get_close_matches(state, _STATES, n=1)
            raise click.BadParameter(f"{state!r} is no state" + (f"; did you mean {near[0]}?" if near else ""))
    return states


@click.command("ps")
@click.option("-a", "--all", "ended", is_flag=True, help="Show ended jobs too.")
@click.option("--limit", type=click.IntRange(1, MOST_JOBS), default=200, show_default=True, help="Newest jobs to show.")
@click.option("--members", "array", metavar="ARRAY", help="The members of ARRAY by their index, ended ones too.")
@click.option(
    "--state",
    "states",
    callback=_states,
    default="",
    metavar="STATE,...",
    help=f"Only those in one of these states: {', '.join(_STATES[:-1])} or {_STATES[-1]}.",
)
@click.option("--user", default="", metavar="NAME", help="Only this user's.")
@click.option("--queue", default="", metavar="NAME", help="Only those in this queue.")
@click.option("--name", default="", help="Only those of this name.")
@listing_options
@asks_server
def command(
    ended: bool,
    limit: int,
    array: str | None,
    states: tuple[str, ...],
    output: str,
    watch: bool,
    state_dir: Path | None,
    **only: Unpack[Only],
) -> None:
    """List jobs, newest first. An array is one line; --members lists what it is made of."""
    with connect(state_dir) as client:
        members_of = "" if array is None else client.find(array).id

        def look() -> Listing:
            everything = (ended or bool(members_of)) and not states
            found = client.jobs(ended=everything, limit=limit, members_of=members_of, state=states, **only)
            names = [job.id for job in found.jobs]
            return Listing(found, names, lambda wide: _draw(found, wide, none))

        none = "no such jobs" if states or any(only.values()) else "no jobs"
        none += "" if ended or members_of or states else " wait or run (`pond ps -a` shows ended ones)"
        show_listing(look, output, watch)


def _draw(found: JobList, wide: bool, none: str) -> None:
    if not found.jobs:
        click.echo(none, err=True)
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
        *(job.name, job.user, job.queue, job.priority, job.kind, str(job.attempt), str(job.preemptions), code),
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
        return array_tables.where(job)
    if job.state == "failed":
        task = job.culprit
        return f"exit code {job.exit_code}" if task is None else f"{job.naming(task)}{task.detail}"
    if job.is_kept and job.kept_until is not None:
        return f"failed ({job.blamed or f'exit code {job.exit_code}'}), kept until {timestamps.told(job.kept_until)}"
    if job.reason:
        return job.reason
    nodes = ", ".join(nodes_of(job))
    if job.suspension and job.state == "suspended":
        return f"{nodes}, {job.suspension}"
    return f"{nodes} (unsandboxed)" if job.unsandboxed else nodes
