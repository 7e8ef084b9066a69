"""``pond doctor``: what works on this machine, what does not, and what would mend it."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import state_dir_option
from millpond.client.cli.printing.findings import print_findings
from millpond.client.sdk import default_state_dir


@click.command("doctor")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For people or programs.")
@state_dir_option
def command(output: str, state_dir: Path | None) -> int:
    """Check this machine: what works, what does not, and the remedy.

    Exits with 1 when a server cannot run here, or the one that does takes no
    requests.
    """
    from millpond.server.operations.diagnosis import diagnose

    return print_findings(diagnose(state_dir or default_state_dir()), output)
