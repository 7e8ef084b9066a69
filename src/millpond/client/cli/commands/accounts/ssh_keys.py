"""``pond ssh-key``: public keys by which one comes into one's jobs with SSH."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import connect, state_dir_option, with_client
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.api.accounts.ssh import LONGEST_KEY, SshKeyInfo, SshKeyList

_TABLE: ListTable[SshKeyInfo] = ListTable(
    (
        Column("ID", lambda key: key.id),
        Column("USER", lambda key: key.user),
        Column("KIND", lambda key: key.kind),
        Column("USED", lambda key: formats.used(key.used_at), right=True),
        Column("FINGERPRINT", lambda key: key.fingerprint),
        Column("NAME", lambda key: key.name, gives_way=True),
    ),
)
_USUAL_FILES = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")


@click.group("ssh-key", cls=SuggestingGroup)
def group() -> None:
    """Public keys for SSH: add, list, remove."""


@group.command("add")
@click.argument("file", required=False, type=PathParameter())
@click.option("--name", default="", help="What it is called in lists [default: its comment].")
@click.option("--user", help="For whom [default: oneself].")
@state_dir_option
def add(file: Path | None, name: str, user: str | None, state_dir: Path | None) -> None:
    """Register the public key in FILE (- is standard input) [default: the usual one in ~/.ssh]."""
    text = _text_of(file or _usual_file())
    with connect(state_dir) as client:
        made = client.ssh.add_key(text, name, user)
    click.echo(f"{made.id}: {made.fingerprint} stands for {made.user}")


@group.command("ls")
@lists()
def ls(client: Client) -> Listing:
    """List the keys that you may see, newest first."""
    keys = client.ssh.keys()
    return Listing.of(SshKeyList(keys=keys), keys, _TABLE, empty="no keys; `pond ssh-key add FILE` registers one")


@group.command("rm")
@click.argument("key_ids", nargs=-1, required=True, metavar="ID...")
@with_client
def rm(client: Client, key_ids: tuple[str, ...]) -> None:
    """Remove keys; they give no access any more."""
    for key_id in key_ids:
        removed = client.ssh.remove_key(key_id)
        click.echo(f"{removed.id}: removed")


def _usual_file() -> Path:
    folder = Path.home() / ".ssh"
    found = next((folder / name for name in _USUAL_FILES if (folder / name).exists()), None)
    if found is None:
        raise InvalidInputError(f"there is no key in {folder}", "make one with ssh-keygen -t ed25519, or name a file")
    return found


def _text_of(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.read(LONGEST_KEY + 1)
        with file.open(encoding="utf-8") as stream:
            return stream.read(LONGEST_KEY + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UnavailableError(f"cannot read {file} ({reason})", "name the file that ends in .pub") from error
