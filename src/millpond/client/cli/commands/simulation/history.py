"""``pond history export``: the server's own jobs as a trace that ``pond replay`` and ``pond compare`` play."""

from __future__ import annotations

import csv
import io
import shlex
import time
from collections import Counter
from pathlib import Path

import click

from millpond.client.cli.commands.simulation.simulation_options import require_writable, write_text
from millpond.client.cli.connection import connect, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.time_options import parse_date, parse_past
from millpond.model.amounts import count_text
from millpond.model.errors import NotFoundError
from millpond.specs.api.reports.history import TraceRow


@click.group("history")
def group() -> None:
    """The jobs that this server ran, as traces."""


@group.command("export")
@click.argument("file")
@click.option("--since", metavar="DATE", help="Submitted since then, such as 2026-11-01, or of late, such as 7d.")
@click.option("--until", metavar="DATE", help="Submitted before this day, or this instant.")
@state_dir_option
def export(file: str, since: str | None, until: str | None, state_dir: Path | None) -> None:
    """Write the jobs that have ended to FILE (- is standard output) as a native trace.

    \b
    pond history export jobs.csv --since 2026-11-01
    pond compare --format native --jobs jobs.csv --cluster 4x8
    """
    require_writable(file)
    begin = 0.0 if since is None else parse_past(since, "--since", time.time())
    end = None if until is None else parse_date(until, "--until")
    rows: list[TraceRow] = []
    left_out: Counter[str] = Counter()
    cluster = ""
    with connect(state_dir) as client:
        for page in client.history(begin, end):
            rows += page.rows
            left_out.update(page.left_out)
            cluster = page.cluster
    missing = "; ".join(f"{number} {reason}" for reason, number in left_out.items())
    if not rows:
        remark = f" (left out: {missing})" if missing else ""
        raise NotFoundError(f"no job that ended is there to be written{remark}", "see `pond ps --all`")
    write_text(file, trace_text(rows))
    say(f"{count_text(len(rows), 'job')} in {file}" + (f"; left out: {missing}" if missing else ""))
    if file != "-":
        command = f"pond replay --format native --jobs {shlex.quote(file)} --cluster {cluster or 'NxG'}"
        say(f"play them with `{command}`")


def trace_text(rows: list[TraceRow]) -> str:
    """The rows as a file, on a clock that begins with the first submission."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(TraceRow.model_fields), lineterminator="\n")
    writer.writeheader()
    begin = min(row.submit_s for row in rows)
    for row in rows:
        times = {"submit_s": f"{row.submit_s - begin:.3f}", "duration_s": f"{row.duration_s:.3f}"}
        writer.writerow({**row.model_dump(), **times})
    return text.getvalue()
