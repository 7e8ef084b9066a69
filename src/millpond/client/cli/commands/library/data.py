"""``pond data``: named datasets with versions."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.error_output import say
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.files import DatasetInfo, DatasetList

_COLUMNS = (
    Column("DATASET"),
    Column("FILES", right=True),
    Column("SIZE", right=True),
    Column("AGE", right=True),
    Column("BY"),
    Column("FOR"),
    Column("CHECKSUM", gives_way=True),
)
VISIBILITY = click.Choice(["private", "group", "everyone"])
_DATASET = re.compile(r"(?:dataset/)?([^@/]+)(?:@([1-9][0-9]{0,8}))?")
_VERSION = re.compile(r"(?:dataset/)?([^@/]+)@([1-9][0-9]{0,8})")


@click.group("data", cls=SuggestingGroup)
def group() -> None:
    """Named datasets: each version is kept as it was put, and jobs read it as dataset/NAME@VERSION."""


@group.command("put")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--visibility", type=VISIBILITY, help="Who sees it [default: as it was, or group].")
@asks_server
def put(name: str, path: Path, visibility: str | None, state_dir: Path | None) -> None:
    """Send the folder PATH as the next version of NAME; prints how a job names it.

    Only files that no earlier version has are sent. An unchanged folder is the version it was.
    """
    with connect(state_dir) as client:
        click.echo(client.files.put_dataset(name, path, visibility).reference)


@group.command("get")
@click.argument("dataset", metavar="NAME[@VERSION]")
@click.option("-o", "--into", type=click.Path(path_type=Path), metavar="DIR", help="Where to [default: ./NAME].")
@asks_server
def get(dataset: str, into: Path | None, state_dir: Path | None) -> None:
    """Fetch the files of a dataset, of its latest version unless one is named; prints which that is, and where."""
    match = _DATASET.fullmatch(dataset)
    if match is None:
        raise InvalidInputError(f"{dataset!r} names no dataset", "write NAME or NAME@VERSION, as pond data ls shows it")
    name, version = match.groups()
    place = into or Path(name)
    with connect(state_dir) as client:
        found = client.files.get_dataset(name, place, None if version is None else int(version))
    click.echo(f"{found.reference}: {wording.count(found.files, 'file')} in {place}")


@group.command("ls")
@listing_options
@asks_server
def list_all(output: str, watch: bool, state_dir: Path | None) -> None:
    """List the datasets that you may read, latest version first."""
    with connect(state_dir) as client:

        def look() -> Listing:
            found = client.files.datasets()
            names = [item.reference for item in found]
            return Listing(DatasetList(datasets=found), names, lambda wide: _draw(found, wide))

        show_listing(look, output, watch)


def _draw(found: list[DatasetInfo], wide: bool) -> None:
    if not found:
        say("no datasets; `pond data put NAME FOLDER` makes one")
        return
    now = time.time()
    rows = [
        [
            item.reference,
            str(item.files),
            quantities.size_text(item.size),
            wording.span(now - item.created_at),
            item.user,
            wording.seen_by(item.visibility, item.group),
            item.digest,
        ]
        for item in found
    ]
    show(_COLUMNS, rows, fitted=not wide)


@group.command("share")
@click.argument("name")
@click.argument("visibility", type=VISIBILITY)
@asks_server
def share(name: str, visibility: str, state_dir: Path | None) -> None:
    """Change who can read all versions of NAME: private, group or everyone."""
    with connect(state_dir) as client:
        found = client.files.share_dataset(name, visibility)
    click.echo(f"{found.name}: {found.visibility}")


@group.command("rm")
@click.argument("version", metavar="NAME@VERSION")
@asks_server
def remove(version: str, state_dir: Path | None) -> None:
    """Remove a version that no unfinished job reads; its number is not used again."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise InvalidInputError(f"{version!r} names no version", "write NAME@VERSION, as pond data ls shows it")
    with connect(state_dir) as client:
        click.echo(f"removed {client.files.remove_dataset(match.group(1), int(match.group(2))).reference}")
