"""``pond requeue`` and ``pond priority``: jobs start anew, or go before or behind others."""

from __future__ import annotations

import click

from millpond.client.cli.connection import act_on, for_each, job_argument, with_client
from millpond.client.sdk import Client
from millpond.model.workloads import Priority

_CLASSES = [each.name.lower() for each in Priority if each is not Priority.BACKGROUND]


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
