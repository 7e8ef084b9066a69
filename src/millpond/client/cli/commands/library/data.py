"""``pond data``: named datasets with versions."""

from __future__ import annotations

import re
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import with_client
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.amounts import count_text
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.jobs.files import DatasetInfo, DatasetList

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


def _dataset(_context: click.Context, _argument: click.Parameter, text: str) -> tuple[str, int | None]:
    match = _DATASET.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text!r} names no dataset", "write NAME or NAME@VERSION, as pond data ls shows it")
    name, version = match.groups()
    return name, None if version is None else int(version)


def _version(_context: click.Context, _argument: click.Parameter, text: str) -> tuple[str, int]:
    match = _DATASET.fullmatch(text)
    if match is None or match[2] is None:
        raise InvalidInputError(f"{text!r} names no version", "write NAME@VERSION, as pond data ls shows it")
    return match[1], int(match[2])


@click.group("data", cls=SuggestingGroup)
def group() -> None:
    """Named datasets: each version is kept as it was put, and jobs read it as dataset/NAME@VERSION."""


@group.command("put")
@click.argument("name")
@click.argument("path", type=PathParameter())
@click.option("--visibility", type=VISIBILITY, help="Who sees it [default: as it was, or group].")
@with_client
def put(client: Client, name: str, path: Path, visibility: str | None) -> None:
    """Send the folder PATH as the next version of NAME; prints how a job names it.

    Only files that no earlier version has are sent. An unchanged folder is the version it was.
    """
    click.echo(client.files.put_dataset(name, path, visibility).reference)


@group.command("get")
@click.argument("dataset", metavar="NAME[@VERSION]", callback=_dataset)
@click.option("-o", "--into", type=PathParameter(), metavar="DIR", help="Where to [default: ./NAME].")
@with_client
def get(client: Client, dataset: tuple[str, int | None], into: Path | None) -> None:
    """Fetch the files of a dataset, of its latest version unless one is named; prints which that is, and where."""
    name, version = dataset
    place = into or Path(name)
    found = client.files.get_dataset(name, place, version)
    click.echo(f"{found.reference}: {count_text(found.files, 'file')} in {place}")


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
@click.argument("version", metavar="NAME@VERSION", callback=_version)
@with_client
def remove(client: Client, version: tuple[str, int]) -> None:
    """Remove a version that no unfinished job reads; its number is not used again."""
    click.echo(f"removed {client.files.remove_dataset(*version).reference}")
