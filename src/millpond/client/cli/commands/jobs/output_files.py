"""``pond get-output`` and ``pond output ls``: what a job left in its output folder."""

from __future__ import annotations

import time
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.error_output import say
from millpond.client.cli.job_completion import job_argument
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.specs import quantities
from millpond.specs.api.files import OutputList

_COLUMNS = (Column("FILE", gives_way=True), Column("SIZE", right=True), Column("AGE", right=True))

_attempt_option = click.option(
    "--attempt", type=click.IntRange(min=1), help="The run of this number [default: the last]."
)


@click.command("get-output")
@job_argument("job")
@click.argument("path", default="", metavar="[PATH]")
@click.option("-o", "--into", type=click.Path(path_type=Path), metavar="DIR", help="Where to [default: ./JOB].")
@_attempt_option
@asks_server
def get_output(job: str, path: str, into: Path | None, attempt: int | None, state_dir: Path | None) -> None:
    """Fetch the files that JOB left in its output folder ($MILLPOND_OUTPUT), or the one file or folder PATH of it;
    prints where each is."""
    with connect(state_dir) as client:
        found = client.find(job)
        places = client.files.get_output(found.id, into or Path(found.id), attempt, path)
    for place in places:
        click.echo(place)
    if not places:
        say(f"{found.id} has left nothing in its output folder")


@click.group("output", cls=SuggestingGroup)
def group() -> None:
    """Output files of jobs; `pond get-output` downloads them."""


@group.command("ls")
@job_argument("job")
@_attempt_option
@listing_options
@asks_server
def list_files(job: str, attempt: int | None, output: str, watch: bool, state_dir: Path | None) -> None:
    """List the output files of JOB."""
    with connect(state_dir) as client:
        found = client.find(job).id

        def look() -> Listing:
            listed = client.files.outputs(found, attempt)
            return Listing(listed, [file.path for file in listed.files], lambda wide: _draw(listed, wide))

        show_listing(look, output, watch)


def _draw(listed: OutputList, wide: bool) -> None:
    if not listed.files:
        say(f"{listed.job} has left nothing in its output folder")
        return
    now = time.time()
    rows = [[file.path, quantities.size_text(file.size), wording.span(now - file.modified_at)] for file in listed.files]
    show(_COLUMNS, rows, fitted=not wide)
    if listed.truncated:
        say("there are more files than a list can hold")
