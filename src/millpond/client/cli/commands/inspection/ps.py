"""``pond ps``: jobs at a glance."""

from __future__ import annotations

import time
from difflib import get_close_matches
from typing import Unpack

import click
from click.shell_completion import CompletionItem

from millpond.client.cli.connection import choosing_option, not_empty
from millpond.client.cli.printing import array_tables, formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import ENDED, MOST_JOBS, Only
from millpond.model.amounts import count_text, pace_text
from millpond.model.states import JobState
from millpond.specs.api.jobs.jobs import JobInfo, JobList


def _ran(job: JobInfo) -> str:
    """For how long the present or last run has been at work."""
    ran_s = job.ran_s(time.time())
    return "" if ran_s is None else formats.span(ran_s)


def nodes_of(job: JobInfo) -> list[str]:
    """The machines of its tasks: of those that have not ended, where there are any."""
    there = [task.node for task in job.tasks if task.node and task.state not in ENDED]
    return list(dict.fromkeys(there or [task.node for task in job.tasks if task.node]))


def places_text(job: JobInfo) -> str:
    """These machines, and of several clusters theirs."""
    cluster = next((task.cluster for task in job.tasks if task.cluster), "")
    return ", ".join(nodes_of(job)) + (f" of {cluster}" if cluster else "")


def _where(job: JobInfo) -> str:
    """The machines it runs on, or why it waits, or how it ended; of an array, how far it is."""
    if job.array is not None:
        return array_tables.where(job)
    if job.state == "failed":
        return job.failure
    if job.stopped_early:
        return job.stopped_early
    if job.is_kept and job.kept_until is not None:
        return (
            f"failed ({job.blamed or f'exit code {job.exit_code}'}), kept until {formats.instant_text(job.kept_until)}"
        )
    if job.reason:
        return job.reason
    nodes = places_text(job)
    if job.suspension and job.state == "suspended":
        return f"{nodes}, {job.suspension}"
    return f"{nodes} (unsandboxed)" if job.unsandboxed else nodes


def _held(job: JobInfo) -> str:
    """For how long its requests may still wait."""
    until = job.requests_wait_until
    return "" if until is None else formats.span(max(until - time.time(), 0.0))


def _pace(job: JobInfo) -> str:
    """How fast a run makes steps."""
    rate = job.progress.steps_per_s if job.progress is not None and job.state == JobState.RUNNING else None
    return "" if rate is None else pace_text(rate)


def _pace_per_card(job: JobInfo) -> str:
    rate = job.progress.per_card if job.progress is not None and job.state == JobState.RUNNING else None
    return "" if rate is None else pace_text(rate)


def _deadline(job: JobInfo) -> str:
    """When it should have ended, and whether that is in doubt."""
    if job.deadline is None:
        return ""
    verdict = {"at-risk": " at risk", "missed": " missed", "met": " met"}.get(job.deadline.verdict, "")
    return formats.instant_text(job.deadline.at) + verdict


_TABLE: ListTable[JobInfo] = ListTable(
    (
        Column("ID", lambda job: job.id),
        Column("STATE", lambda job: job.state_text),
        Column("GPUS", lambda job: job.gpus, right=True),
        Column("AGE", lambda job: formats.age(job.submitted_at), right=True),
        Column("RAN", _ran, right=True),
        Column("STEPS", _pace, right=True, unless_all=""),
        Column("STEPS/CARD", _pace_per_card, right=True, wide=True),
        Column("DEADLINE", _deadline, unless_all=""),
        Column("NAME", lambda job: job.name, wide=True),
        Column("USER", lambda job: job.user, wide=True),
        Column("QUEUE", lambda job: job.queue, wide=True),
        Column("PRIORITY", lambda job: job.priority, wide=True),
        Column("KIND", lambda job: job.kind, wide=True),
        Column("RUN", lambda job: str(job.attempt), right=True, wide=True),
        Column("PREEMPTED", lambda job: str(job.preemptions), right=True, wide=True),
        Column("EXIT", lambda job: "" if job.exit_code is None else str(job.exit_code), right=True, wide=True),
        Column("HOLD", _held, right=True, wide=True),
        Column("WHERE", _where, gives_way=True),
    )
)
_STATES = [state.value for state in JobState]


def _states(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    """States with commas between them."""
    not_empty(context, option, text)
    states = tuple(state.strip() for state in text.split(",")) if text else ()
    for state in states:
        if state not in _STATES:
            near = get_close_matches(state, _STATES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_STATES)}"
            raise click.BadParameter(f"{state!r} is no state; {hint}")
    return states


def _complete_states(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """The state that is begun, behind those that are written out."""
    before, comma, last = begun.rpartition(",")
    return [CompletionItem(f"{before}{comma}{state}") for state in _STATES if state.startswith(last)]


@click.command("ps")
@click.option("-a", "--all", "ended", is_flag=True, help="Show ended jobs too.")
@click.option("--limit", type=click.IntRange(1, MOST_JOBS), default=200, show_default=True, help="Newest jobs to show.")
@click.option("--members", "array", metavar="ARRAY", help="The members of ARRAY by their index, ended ones too.")
@click.option(
    "--state",
    "states",
    callback=_states,
    shell_complete=_complete_states,
    default="",
    metavar="STATE,...",
    help=f"Only those in one of these states: {', '.join(_STATES[:-1])} or {_STATES[-1]}.",
)
@choosing_option("--user", metavar="NAME", help="Only this user's.")
@choosing_option("--queue", metavar="NAME", help="Only those in this queue.")
@choosing_option("--name", help="Only those of this name; * stands for any letters, ? for one.")
@lists(job="array")
def command(
    client: Client, ended: bool, limit: int, array: str | None, states: tuple[str, ...], **only: Unpack[Only]
) -> Listing:
    """List jobs, newest first. An array is one line; --members lists what it is made of."""
    everything = (ended or bool(array)) and not states
    found = client.jobs(ended=everything, limit=limit, members_of=array or "", state=states, **only)
    none = "no such jobs" if states or any(only.values()) else "no jobs"
    none += "" if ended or array or states else " wait or run (`pond ps -a` shows ended ones)"
    return Listing(found, [job.id for job in found.jobs], lambda wide: _draw(found, wide, none))


def _draw(found: JobList, wide: bool, none: str) -> None:
    if not found.jobs:
        click.echo(none, err=True)
        return
    _TABLE.show(found.jobs, wide)
    if found.truncated:
        which = "first" if any(job.parent for job in found.jobs) else "newest"
        click.echo(f"only the {which} {count_text(len(found.jobs), 'job')}; --limit shows more", err=True)
