"""``pond clone``: a job once more, with changes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from millpond.client.cli.complaints import say
from millpond.client.cli.connection import asks_server, connect
from millpond.specs.changing import Change
from millpond.specs.job import read_jobs


@click.command("clone")
@click.argument("job")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field, such as gpus=2, env.A=b.")
@asks_server
def command(job: str, changes: tuple[str, ...], state_dir: Path | None) -> None:
    """Hand in JOB once more, as it was handed in first; prints the new id."""
    parsed = [Change.parse(change) for change in changes]
    with connect(state_dir) as client:
        found = client.find(job)
        document = client.document(found.id)
        document.pop("idempotency_key", None)  # with it, it would be the same job
        for spec in read_jobs(json.dumps(document), found.id, changes=parsed):
            for warning in spec.warnings:
                say(warning)
            click.echo(client.submit(spec.document).id)
