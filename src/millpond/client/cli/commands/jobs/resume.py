"""``pond resume``: let suspended jobs go on."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.bulk_actions import act_on
from millpond.client.cli.connection import asks_server
from millpond.client.cli.job_completion import job_argument
from millpond.client.sdk import Client
from millpond.specs.api.jobs import JobInfo


@click.command("resume")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@asks_server
def command(jobs: tuple[str, ...], state_dir: Path | None) -> int:
    """Let each suspended JOB go on, as soon as there is room on its devices; of an array, all suspended members."""
    return act_on(jobs, state_dir, Client.resume, _tell)


def _tell(job: JobInfo) -> str:
    if job.state == "suspended":
        return "to go on, as soon as its devices are free and its queue admits it"
    return job.state
