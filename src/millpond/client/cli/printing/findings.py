"""What a look at a machine or a cluster found, as a table for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from millpond.client.cli.error_output import wrapped

if TYPE_CHECKING:
    from millpond.server.operations.findings import Finding


def print_findings(findings: Sequence[Finding], output: str) -> int:
    """Print them; returns the exit code: 1 where something is broken."""
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
    return int(any(finding.grade == "broken" for finding in findings))


def _say(head: str, text: str) -> None:
    """Wrapped to the terminal, the words beside the head."""
    lines = wrapped(text, get_terminal_size().columns - len(head))
    click.echo(head + f"\n{' ' * len(head)}".join(lines))
