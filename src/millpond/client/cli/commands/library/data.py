"""``pond data``: named datasets with versions."""

from __future__ import annotations

import re
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import asks_server, connect, with_client
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Listing, lists
from millpond.client.cli.printing.tables import Column, ListTable
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.files import DatasetInfo, DatasetList

_TABLE: ListTable[DatasetInfo] = ListTable(
    (
        Column("DATASET", lambda item: item.reference),
        Column("FILES", lambda item: str(item.files), right=True),
        Column("SIZE", lambda item: quantities.size_text(item.size), right=True),
        Column("AGE", lambda item: formats.age(item.created_at), right=True),
        Column("BY", lambda item: item.user),
        Column("FOR", lambda item: formats.seen_by(item.visibility, item.group)),
        Column("CHECKSUM", lambda item: item.digest, gives_way=True),
    ),
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
@with_client
def put(client: Client, name: str, path: Path, visibility: str | None) -> None:
    """Send the folder PATH as the next version of NAME; prints how a job names it.

    Only files that no earlier version has are sent. An unchanged folder is the version it was.
    """
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
    click.echo(f"{found.reference}: {formats.count(found.files, 'file')} in {place}")


@group.command("ls")
@lists()
def list_all(client: Client) -> Listing:
    """List the datasets that you may read, latest version first."""
    found = client.files.datasets()
    empty = "no datasets; `pond data put NAME FOLDER` makes one"
    return Listing.of(DatasetList(datasets=found), found, _TABLE, empty)


@group.command("share")
@click.argument("name")
@click.argument("visibility", type=VISIBILITY)
@with_client
def share(client: Client, name: str, visibility: str) -> None:
    """Change who can read all versions of NAME: private, group or everyone."""
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
