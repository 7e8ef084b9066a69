"""``pond secret``: values for jobs and webhooks, never shown again."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import connect, state_dir_option, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.cli.terminal.secret_input import SecretInput
from millpond.client.sdk.client import Client
from millpond.client.sdk.resources.credentials import SERVER
from millpond.model.errors import InvalidInputError
from millpond.specs.api.accounts.accounts import SecretInfo, SecretList

_NAMED = 5
"""Jobs that a warning names at most."""


def _whose(kind: str, owner: str) -> str:
    return "the server" if kind == SERVER else f"{kind} {owner}"


_TABLE: ListTable[SecretInfo] = ListTable(
    (
        Column("NAME", lambda secret: secret.name),
        Column("OF", lambda secret: _whose(secret.kind, secret.owner)),
        Column("SET", lambda secret: formats.age(secret.at), right=True),
        Column("BY", lambda secret: secret.by, gives_way=True),
    ),
)


def _owner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Whose a secret is."""
    group_option = click.option("--group", "group_name", help="Of a group, for the jobs of all its members.")
    server_option = click.option("--server", "of_server", is_flag=True, help="Of the server, for its webhooks.")
    return group_option(server_option(command))


@click.group("secret", cls=SuggestingGroup)
def group() -> None:
    """Secrets: set, list, remove."""


@group.command("set")
@click.argument("name")
@_owner_options
@click.option("--stdin", "stdin", is_flag=True, help="Read the whole value from standard input.")
@state_dir_option
def set_(name: str, group_name: str | None, of_server: bool, stdin: bool, state_dir: Path | None) -> None:
    """Store a secret called NAME; job files name it under `secrets` and find it in the variable NAME."""
    from millpond.specs.validation import PATTERN_WORDS, VARIABLE

    if re.fullmatch(VARIABLE, name) is None:
        raise InvalidInputError(f"{name!r} is not a name of a variable", PATTERN_WORDS[VARIABLE])
    with connect(state_dir) as client:
        kind, owner = _owner(client, group_name, of_server)
        value = sys.stdin.read().removesuffix("\n") if stdin else SecretInput(False).ask("value")
        client.secrets.put(kind, owner, name, value)
    say(f"{name} is kept for {_whose(kind, owner)}")


@group.command("ls")
@lists()
def ls(client: Client) -> Listing:
    """List the secrets that your jobs can use, or that you may change."""
    found = client.secrets.all()
    return Listing.of(SecretList(secrets=found), found, _TABLE, empty="no secrets; `pond secret set NAME` keeps one")


@group.command("rm")
@click.argument("name")
@_owner_options
@with_client
def rm(client: Client, name: str, group_name: str | None, of_server: bool) -> None:
    """Remove a secret; running tasks keep it, and jobs that need it still are named."""
    kind, owner = _owner(client, group_name, of_server)
    sought = kind, owner, name
    jobs = [job for each in client.secrets.all() if (each.kind, each.owner, each.name) == sought for job in each.jobs]
    client.secrets.drop(kind, owner, name)
    click.echo(name)
    if jobs:
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        say(
            f"{', '.join(jobs[:_NAMED])}{more} have not ended and name it: they fail when they start without it\n"
            "set it again with `pond secret set`, or stop them"
        )


def _owner(client: Client, group_name: str | None, of_server: bool) -> tuple[str, str]:
    if group_name is not None and of_server:
        raise InvalidInputError("both --group and --server", "leave one of them out")
    if of_server:
        return SERVER, ""
    if group_name is not None:
        return "group", group_name
    return "user", client.accounts.whoami().user
