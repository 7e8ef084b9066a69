"""``pond get-output`` and ``pond output ls``: what a job left in its output folder."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.command_suggestions import NamingGroup
from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.amounts import count_text
from millpond.specs import quantities
from millpond.specs.api.jobs.files import OutputFile, OutputList

_TABLE: ListTable[OutputFile] = ListTable(
    (
        Column("FILE", lambda file: file.path, gives_way=True),
        Column("SIZE", lambda file: quantities.size_text(file.size), right=True),
        Column("AGE", lambda file: formats.age(file.modified_at), right=True),
    )
)

_attempt_option = click.option(
    "--attempt", type=click.IntRange(min=1), help="The run of this number [default: the last]."
)


@click.command("get-output")
@job_argument("job")
@click.argument("path", default="", metavar="[PATH]")
@click.option("-o", "--into", type=PathParameter(), metavar="DIR", help="Where to [default: ./JOB].")
@_attempt_option
@with_client
def get_output(client: Client, job: str, path: str, into: Path | None, attempt: int | None) -> None:
    """Fetch the files that JOB left in its output folder ($MILLPOND_OUTPUT), or the one file or folder PATH of it;
    prints where each is."""
    found = client.files.outputs(client.find(job).id, attempt, path)
    places = client.files.fetch(found, into or Path(found.job), path)
    for place in places:
        click.echo(place)
    if missing := _missing(found):
        say(missing)
    elif not places:
        say(f"{found.job} has left nothing in its output folder")


@click.group("output", cls=NamingGroup, named="ls")
def group() -> None:
    """List the output files of JOB; `pond get-output` downloads them."""


@group.command("ls")
@job_argument("job")
@_attempt_option
@lists(job="job")
def list_files(client: Client, job: str, attempt: int | None) -> Listing:
    """List the output files of JOB."""
    found = client.files.outputs(job, attempt)
    missing = _missing(found)
    empty = missing or f"{found.job} has left nothing in its output folder"
    return Listing.of(found, found.files, _TABLE, empty, missing)


def _missing(found: OutputList) -> str:
    """What is not listed, so not fetched, and what to do; empty when all is."""
    said = []
    if found.truncated:
        said.append(
            f"there are more files than the {len(found.files)} that a list can hold: "
            f"`pond get-output {found.job} PATH` fetches a folder, or one file"
        )
    if found.left_out:
        files = count_text(found.left_out, "file")
        said.append(
            f"{files} left out, whose names cannot be printed or are too long: rename them in the job, or pack them"
        )
    if found.no_files:
        entries = "link or pipe" if found.no_files == 1 else "links or pipes"
        said.append(f"{found.no_files} {entries} left out: files alone are fetched; copy or pack them in the job")
    return "; ".join(said)
