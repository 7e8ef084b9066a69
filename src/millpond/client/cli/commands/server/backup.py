"""``pond backup`` and ``pond restore``: a state directory as one file, and back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millpond.client.cli.connection import state_dir_option
from millpond.client.cli.error_output import echo_wrapped
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.terminal.interrupts import with_termination
from millpond.client.cli.terminal.secret_input import SecretInput, from_stdin
from millpond.client.sdk import default_state_dir
from millpond.model.amounts import count_text
from millpond.model.errors import InvalidInputError
from millpond.specs.quantities import size_text

if TYPE_CHECKING:
    from millpond.server.auth.vault.keys import KeySource

_CIPHERS = ("aes-256-gcm", "sm4-gcm")

_key_file = click.option(
    "--key-file", type=PathParameter(), help="File of at least 32 random bytes, readable by you alone."
)


@click.command("backup")
@click.argument("file", type=PathParameter())
@click.option("--only-database", is_flag=True, help="Leave out what jobs wrote.")
@click.option("--encrypt", is_flag=True, help="Encrypt it, by a passphrase or --key-file.")
@_key_file
@click.option("--cipher", type=click.Choice(_CIPHERS), default=_CIPHERS[0], show_default=True, help="With --encrypt.")
@from_stdin
@state_dir_option
def backup(
    file: Path,
    only_database: bool,
    encrypt: bool,
    key_file: Path | None,
    cipher: str,
    stdin: bool,
    state_dir: Path | None,
) -> None:
    """Write the server's state to FILE; the server may run meanwhile."""
    from millpond.server.auth.vault.ciphers import Cipher, require_ciphers
    from millpond.server.operations.backup import Lock, back_up, require_source_and_target

    if str(file) == "-":
        raise InvalidInputError(
            "a backup gets its name once it is whole: it cannot go to standard output", "name a file"
        )
    lock, directory = None, state_dir or default_state_dir()
    if encrypt:
        require_ciphers(Cipher(cipher))
        require_source_and_target(directory, file)
        lock = Lock(_key(key_file, stdin, new=True), Cipher(cipher))
    elif key_file is not None:
        raise InvalidInputError("--key-file without --encrypt", "add --encrypt")
    with with_termination():
        summary = back_up(directory, file, time.time(), jobs=not only_database, lock=lock)
    how = f", encrypted with {cipher}" if encrypt else ""
    click.echo(f"{count_text(summary.files, 'file')}, {size_text(summary.size_bytes)} in {file}{how}")
    if summary.left_out:
        left_out = count_text(summary.left_out, "file")
        why = "which cannot be read, lie too deep in folders, or have holes of more than 64 GiB"
        echo_wrapped(f"{left_out} of jobs left out, {why}", err=True)


@click.command("restore")
@click.argument("file", type=PathParameter())
@_key_file
@from_stdin
@state_dir_option
def restore(file: Path, key_file: Path | None, stdin: bool, state_dir: Path | None) -> None:
    """Restore FILE into an empty state directory, for `pond up` to go on from there.

    Asks for the passphrase of an encrypted one.
    """
    from millpond.server.operations.backup import needed_key_of, require_empty
    from millpond.server.operations.backup import restore as put_back

    directory = state_dir or default_state_dir()
    require_empty(directory)
    needed = needed_key_of(file)
    if needed == "file" and key_file is None:
        raise InvalidInputError(f"{file} is encrypted by a key file", "name it with --key-file")
    key = _key(key_file, stdin) if needed else None
    with with_termination():
        summary = put_back(file, directory, key)
    click.echo(f"{count_text(summary.files, 'file')} of Millpond {summary.version} in {directory}")
    echo_wrapped(f"`pond up --state-dir {directory}` shows it; with --take-over it goes on in place of the original")


def _key(key_file: Path | None, stdin: bool, new: bool = False) -> KeySource:
    """The key, from its file or by asking for a passphrase."""
    from millpond.server.auth.vault.keys import KeySource, check_passphrase, key_in

    if key_file is not None:
        return KeySource(file=key_in(key_file))
    secrets = SecretInput(stdin)
    return KeySource(passphrase=check_passphrase(secrets.ask_new("passphrase")) if new else secrets.ask("passphrase"))
