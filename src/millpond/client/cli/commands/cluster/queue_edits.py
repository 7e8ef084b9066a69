"""``pond queue add``, ``set`` and ``delete``: queues defined while the server runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from millpond.client.cli.connection import with_client
from millpond.client.cli.printing.listing import Column, ListTable
from millpond.client.sdk import Client
from millpond.model.amounts import milli_text
from millpond.model.errors import InvalidInputError
from millpond.specs.api.pool.queues import QueueEditInfo, QueueRoom, QueueRoomChange
from millpond.specs.escaped_text import json_text
from millpond.specs.flow_text import flow_text

_queue = click.argument("queue")
_version = click.option("--version", type=int, help="Refuse if the queue has another version by now [default: any].")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would come of it, and change nothing.")
_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the answer."
)


def _fields(required: bool) -> Callable[..., Any]:
    return click.argument("fields", nargs=-1, required=required, metavar="FIELD=VALUE...")


def _room(title: str, number: Callable[[QueueRoom], int | None]) -> Column:
    """What queues may count on, before and after an edit where that is another."""

    def text(change: QueueRoomChange) -> str:
        before, after = (
            "-" if room is None or number(room) is None else milli_text(number(room) or 0)
            for room in (change.before, change.after)
        )
        return after if before == after else f"{before} -> {after}"

    return Column(title, text, right=True)


_ROOMS: ListTable[QueueRoomChange] = ListTable(
    (
        Column("QUEUE", lambda change: change.queue, gives_way=True),
        _room("GUARANTEE", lambda room: room.promised_gpu_milli),
        _room("LIMIT", lambda room: room.limit_gpu_milli),
        _room("BORROWED", lambda room: room.borrowed_gpu_milli),
        _room("LENT", lambda room: room.lent_gpu_milli),
        _room("FREE", lambda room: room.free_gpu_milli),
    )
)


@click.command("add")
@_queue
@_fields(required=False)
@click.option("--parent", metavar="QUEUE", help="The queue above it [default: root].")
@_dry_run
@_output
@with_client
def add(client: Client, queue: str, fields: tuple[str, ...], parent: str | None, dry_run: bool, output: str) -> None:
    """Define QUEUE, with fields as in the configuration file: guarantee=6 limit='{gpus: 12, cpus: 40}' weight=2."""
    given = fields_in(fields)
    if parent is not None:
        given = {"parent": parent, **given}
    show_edit(client.add_queue(queue, given, dry_run=dry_run), output)


@click.command("set")
@_queue
@_fields(required=True)
@_version
@_dry_run
@_output
@with_client
def change(
    client: Client, queue: str, fields: tuple[str, ...], version: int | None, dry_run: bool, output: str
) -> None:
    """Change fields of QUEUE, written as in the configuration file; FIELD= takes one back to its default.

    Running work goes on; what is beyond the guarantee then is borrowed.
    """
    given = fields_in(fields)
    edit = client.change_queue(queue, given, version=version, dry_run=dry_run)
    show_edit(edit, output)
    if dry_run and output != "json" and edit.before != edit.after:
        _show_differences(client, queue, given)


@click.command("delete")
@_queue
@_version
@_dry_run
@_output
@with_client
def delete(client: Client, queue: str, version: int | None, dry_run: bool, output: str) -> None:
    """Delete QUEUE, if nothing uses it: no job, no group, and no queue below it."""
    show_edit(client.delete_queue(queue, version=version, dry_run=dry_run), output)


def fields_in(texts: Sequence[str]) -> dict[str, Any]:
    """``guarantee=6`` and so on as fields by name; what is empty, or ``null``, is None.

    Raises:
        InvalidInputError: a text has no ``=``, a value is not YAML, or a field is named twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        if not equals or not name:
            raise InvalidInputError(f"{text!r} is not FIELD=VALUE", "write guarantee=6, or limit='{gpus: 12}'")
        if name in found:
            raise InvalidInputError(f"the field {name!r} is given twice", "keep one of them")
        found[name] = value_in(name, written)
    return found


def value_in(name: str, text: str) -> Any:
    """The value of one field, as the configuration file would have it; None where it is empty.

    Raises:
        InvalidInputError: it is not YAML, or several values.
    """
    from millpond.specs.errors import SpecError
    from millpond.specs.source_positions import read_documents

    try:
        fields = read_documents(f"value: {text}")[0].value
    except SpecError as error:
        [problem, *_] = error.problems
        raise InvalidInputError(f"{name}={text}: {problem.message}", "write it as in the configuration") from error
    if list(fields) != ["value"]:
        raise InvalidInputError(f"{name}={text!r}: several values", "write a list: [a, b]")
    return fields["value"]


def _show_differences(client: Client, queue: str, fields: dict[str, Any]) -> None:
    """Play the jobs without and with a change, and print who starts sooner, later, or is ended more often."""
    from millpond.client.cli.printing.differences import draw_differences

    settings = [{"queue": queue, "field": name, "value": value} for name, value in fields.items()]
    try:
        draw_differences(client.what_if({"set": settings}))
    except InvalidInputError as error:
        click.echo(f"not played: {error.cause}")


def show_edit(edit: QueueEditInfo, output: str) -> None:
    """Print what was done, or would be: each field before and after, and what it means for what runs."""
    if output == "json":
        click.echo(json_text(edit))
        return
    before, after = edit.before or {}, edit.after or {}
    would = "would be " if edit.dry_run else ""
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if edit.after is None:
        click.echo(f"{edit.queue}: {would}deleted")
    elif edit.before is None:
        click.echo(f"{edit.queue}: {would}added")
    elif not names:
        click.echo(f"{edit.queue}: it is so already")
    else:
        click.echo(f"{edit.queue}: {would}changed")
    width = max(map(len, names), default=0)
    for name in names:
        click.echo(f"  {name:<{width}}  {flow_text(before.get(name))} -> {flow_text(after.get(name))}")
    for effect in edit.effects:
        click.echo(effect)
    if edit.rooms:
        _ROOMS.show(edit.rooms, wide=False)
    if edit.dry_run:
        click.echo("nothing was changed")
    elif edit.after is not None:
        click.echo(f"version {edit.version}")
