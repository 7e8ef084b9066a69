"""``pond migrate``: other cards for running jobs."""

from __future__ import annotations

from functools import partial

import click

from millpond.client.cli.connection import act_on, job_argument, with_client
from millpond.client.sdk import Client


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
def command(client: Client, jobs: tuple[str, ...], to: tuple[str, ...], restart: bool) -> int:
    """Move each JOB to other cards, wherever there is room or to those of --to.

    It is live-migrated, as it runs, where its node can bring its memory back on other cards of the same model; else it
    is restart-migrated: it gets its notice, ends, and starts there. Work that does not save itself on notice
    (checkpoint in the job file) is restarted with --restart only.
    """
    return act_on(client, jobs, partial(Client.migrate, to=to, restart=restart), lambda job: job.migration or job.state)
