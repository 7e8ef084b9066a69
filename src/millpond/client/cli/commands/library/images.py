"""``pond image``: the catalogue of images that jobs run in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.commands.library.data import VISIBILITY
from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.client.sdk.transport.connection import given
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.jobs.images import ImageInfo, ImageList
from millpond.specs.job.images import catalogued


def _nodes(image: ImageInfo) -> str:
    having = [node for node, state in image.nodes.items() if state == "present"]
    return "all machines" if len(having) == len(image.nodes) and len(having) > 1 else ", ".join(having)


_TABLE: ListTable[ImageInfo] = ListTable(
    (
        Column("IMAGE", lambda image: image.reference),
        Column("SIZE", lambda image: quantities.size_text(image.size), right=True),
        Column("AGE", lambda image: formats.age(image.created_at), right=True),
        Column("BY", lambda image: image.user),
        Column("FOR", lambda image: formats.seen_by(image.visibility, image.group)),
        Column("ON", _nodes, gives_way=True),
        Column("ABOUT", lambda image: image.description, gives_way=True),
        Column("FROM", lambda image: image.origin, gives_way=True, wide=True),
        Column("DIGEST", lambda image: image.digest, gives_way=True, wide=True),
        Column("EXACTLY", lambda image: image.exact, gives_way=True, wide=True),
    ),
)


def _parts(_context: click.Context, _argument: click.Parameter, image: str) -> tuple[str, str]:
    parts = catalogued(image)
    if parts is None:
        raise InvalidInputError(
            f"{image!r} cannot be the name of an image of the catalogue",
            "write NAME:TAG, the name of small letters, digits, '.', '_' and '-'",
        )
    return parts


_image = click.argument("image", metavar="NAME:TAG", callback=_parts)
_LOGIN = click.option("--login", metavar="SECRET", help="The secret that says USER:PASSWORD for the registry.")


@click.group("image", cls=SuggestingGroup)
def group() -> None:
    """Images that jobs run in (`image: NAME:TAG`): the catalogue, and what fills it."""


def _with_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say something about an image."""
    seen = click.option("--visibility", type=VISIBILITY, help="Who sees it [default: as it was, or group].")
    about = click.option("--description", help="A few words about it.")
    return seen(about(command))


@group.command("ls")
@lists()
def list_all(client: Client) -> Listing:
    """List the images that you may use, and the nodes that have them."""
    found = client.images.list()
    empty = "no images; `pond image add NAME:TAG REFERENCE` puts one there"
    return Listing.of(ImageList(images=found), found, _TABLE, empty)


@group.command("add")
@_image
@click.argument("reference")
@_LOGIN
@_with_words
@with_client
def add(client: Client, image: tuple[str, str], reference: str, **words: str | None) -> None:
    """Fetch the image REFERENCE of a registry and put it into the catalogue as NAME:TAG.

    A job keeps to what NAME:TAG was when it was submitted. A registry that asks who one is gets to hear it from a
    secret: `pond secret set SECRET` keeps it.
    """
    _print_image(client.images.add(*image, reference, say, **given(**words)))


@group.command("build")
@_image
@click.argument("folder", type=PathParameter(), default=".")
@click.option("-f", "--file", help="What says how, in the folder [default: Containerfile or Dockerfile].")
@_with_words
@with_client
def build(client: Client, image: tuple[str, str], folder: Path, **words: str | None) -> None:
    """Send FOLDER, build an image from it on the server's machine, and follow that. Ctrl-C ends it."""
    _print_image(client.images.build(*image, folder, say, **given(**words)))


@group.command("save")
@job_argument("job")
@_image
@click.option("-t", "--task", type=click.IntRange(min=0), default=0, show_default=True, help="Which task of it.")
@_with_words
@with_client
def save(client: Client, job: str, image: tuple[str, str], task: int, **words: str | None) -> None:
    """Make an image of what a job's container has become: while it runs, or within an hour after its end."""
    _print_image(client.images.save(*image, client.find(job).id, say, task=task, **given(**words)))


@group.command("pull")
@_image
@with_client
def pull(client: Client, image: tuple[str, str]) -> None:
    """Pull an image to the nodes before a job needs it."""
    _print_image(client.images.pull(*image, say))


@group.command("push")
@_image
@click.argument("reference", metavar="REGISTRY/REPOSITORY:TAG")
@_LOGIN
@with_client
def push(client: Client, image: tuple[str, str], reference: str, login: str | None) -> None:
    """Send an image of the catalogue to a registry, and print by what exact reference that has it now.

    Whose image it is may do so, leads of its group, and admins. Without --login no credentials are sent.
    """
    click.echo(client.images.push(*image, reference, say, login).exact)


@group.command("change")
@_image
@_with_words
@with_client
def change(client: Client, image: tuple[str, str], **words: str | None) -> None:
    """Change the description or the visibility of an image."""
    _print_image(client.images.change(*image, **given(**words)))


@group.command("rm")
@_image
@with_client
def remove(client: Client, image: tuple[str, str]) -> None:
    """Remove an image from the catalogue."""
    click.echo(f"removed {client.images.remove(*image).reference}")


def _print_image(image: ImageInfo) -> None:
    click.echo(f"{image.reference} {image.digest}")
