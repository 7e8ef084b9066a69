"""``pond doctor``: what works on this machine, what does not, and what would mend it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size

import click

from millpond.client.cli.connection import state_dir_option
from millpond.client.cli.error_output import wrapped
from millpond.client.sdk import default_state_dir


@click.command("doctor")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For people or programs.")
@state_dir_option
def command(output: str, state_dir: Path | None) -> int:
    """Check this machine: what works, what does not, and the remedy.

    Exits with 1 when a server cannot run here.
    """
    from millpond.server.operations.diagnosis import diagnose
    from millpond.server.operations.findings import Grade

    findings = diagnose(state_dir or default_state_dir())
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        widest = max(len(finding.what) for finding in findings)
        grades = max(len(finding.grade) for finding in findings)
        for finding in findings:
            head = f"{finding.what:<{widest}}  {finding.grade:<{grades}}  "
            _say(head, finding.found)
            if finding.remedy:
                _say(" " * len(head), f"-> {finding.remedy}")
    return int(any(finding.grade is Grade.BROKEN for finding in findings))


def _say(head: str, text: str) -> None:
    """Wrapped to the terminal, the words beside the head."""
    lines = wrapped(text, get_terminal_size().columns - len(head))
    click.echo(head + f"\n{' ' * len(head)}".join(lines))
