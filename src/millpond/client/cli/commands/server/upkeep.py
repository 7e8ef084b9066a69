"""``pond doctor``, ``verify`` and ``compile``: the machine, the log of a server, and the scheduler are looked after."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.printing.findings import print_findings
from millpond.client.sdk import default_state_dir
from millpond.model.amounts import count_text


@click.command("doctor")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For people or programs.")
@state_dir_option
def doctor(output: str, state_dir: Path | None) -> int:
    """Check this machine: what works, what does not, and the remedy.

    Exits with 1 when a server cannot run here, or the one that does takes no
    requests.
    """
    from millpond.server.operations.diagnosis import diagnose
    from millpond.server.startup.options import store_of

    directory = state_dir or default_state_dir()
    return print_findings(diagnose(directory, lambda: store_of(directory, "")), output)


@click.command("verify")
@click.option(
    "--store",
    metavar="URL",
    default="",
    help="PostgreSQL database of the server; none: SQLite [default: as at its last start].",
)
@state_dir_option
def verify(store: str, state_dir: Path | None) -> int:
    """Check the log of a server that is down: decide again, and compare.

    Exits with 1 at a difference. That is a defect if this version wrote the log, and to be expected if another one did.
    """
    from millpond.server.operations.verification import verify_state
    from millpond.server.startup.options import store_of
    from millpond.server.version import VERSION

    directory = state_dir or default_state_dir()
    found = verify_state(directory, store_of(directory, store))
    for difference in found.differences:
        click.echo(difference)
    others = ", ".join(version for version in found.versions if version != VERSION)
    if found.differences:
        why = f"version {others} wrote it, and may decide otherwise" if others else "this is a defect of Millpond"
        click.echo(f"the log does not lead to the stored decisions: {why}")
        return 1
    click.echo(f"the log leads to the stored decisions: {count_text(found.decisions, 'decision')} taken again alike")
    return 0


@click.command("compile")
def compile_scheduler() -> None:
    """Compile the scheduler, which decides alike then and twice as fast.

    Takes some minutes, and is kept in ~/.cache/millpond for this version. Servers and replays of this user that start
    from now on use it. MILLPOND_CORE=interpreted leaves it aside.
    """
    from millpond.compilation.building import build
    from millpond.compilation.sources import folder

    if not folder().is_dir():
        say("compiling; this takes some minutes")
    click.echo(f"the compiled scheduler is in {build()}")
