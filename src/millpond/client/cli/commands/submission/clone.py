"""``pond clone``: a job once more, with changes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.arrays import MOST_MEMBERS
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.job_spec import document_again, read_jobs
from millpond.specs.job.members import only_members


@click.command("clone")
@job_argument("job")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field, such as gpus=2, env.A=b.")
@click.option("--failed", is_flag=True, help="Of an array, the members that failed alone.")
@state_dir_option
def command(job: str, changes: tuple[str, ...], failed: bool, state_dir: Path | None) -> None:
    """Submit JOB again, as it was submitted first, and print the new id."""
    parsed = [FieldEdit.parse(change) for change in changes]
    with connect(state_dir) as client:
        found = client.find(job)
        stored = client.document(found.id)
        document = document_again(stored)
        if stored.get("stdin"):
            say(f"{found.id} read standard input, which is not repeated")
        if failed:
            document = only_members(document, _failed(client, found))
        for spec in read_jobs(json.dumps(document), found.id, changes=parsed):
            for warning in spec.warnings:
                say(warning)
            click.echo(client.submit(spec.document).id)


def _failed(client: Client, array: JobInfo) -> list[int]:
    """The indices of the members that failed.

    Raises:
        ConflictError: it is no array, or none of it failed.
    """
    if array.array is None:
        raise ConflictError(f"{array.id} is not an array", "leave --failed out")
    found = client.jobs(members_of=array.id, state="failed", limit=MOST_MEMBERS).jobs
    if not found:
        raise ConflictError(f"no member of {array.id} has failed", f"see how it stands: pond get {array.id}")
    return [member.index for member in found if member.index is not None]
