"""``pond compile``: the scheduler as machine code."""

from __future__ import annotations

import click

from millpond.client.cli.error_output import say


@click.command("compile")
def command() -> None:
    """Compile the scheduler, which decides alike then and twice as fast.

    Takes some minutes, and is kept in ~/.cache/millpond for this version. Servers and replays of this user that start
    from now on use it. MILLPOND_CORE=interpreted leaves it aside.
    """
    from millpond.compilation.building import build
    from millpond.compilation.sources import folder

    if not folder().is_dir():
        say("compiling; this takes some minutes")
    click.echo(f"the compiled scheduler is in {build()}")
