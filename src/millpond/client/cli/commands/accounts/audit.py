"""``pond audit``: who changed what, and who was refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.accounts import AuditInfo, AuditList
from millpond.specs.errors import BadValueError

_COLUMNS = (
    Column("WHEN (UTC)"),
    Column("WHO"),
    Column("FROM"),
    Column("VERB"),
    Column("OBJECT", whole=True),
    Column("CHANGE", gives_way=True),
    Column("ANSWER", right=True),
)


@click.command("audit")
@click.option("--by", default="", metavar="USER", help="Only what this user did.")
@click.option("--since", metavar="TIME", help="Only the last so long (such as 2d), or since a date (2026-01-31).")
@click.option("--object", "about", default="", metavar="NAME", help="Only about this job, user, group or token.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Newest entries to show.")
@listing_options
@asks_server
def command(
    by: str, since: str | None, about: str, limit: int, output: str, watch: bool, state_dir: Path | None
) -> None:
    """List changes and refused requests, newest first. For admins, and for the leads of a group about their group."""
    start = 0.0 if since is None else _instant(since, time.time())
    with connect(state_dir) as client:

        def look() -> Listing:
            entries = client.accounts.audit(by, start, about, limit)
            rows = [_row(entry) for entry in entries]
            names = [entry.object for entry in entries]
            return Listing(AuditList(entries=entries), names, lambda wide: show(_COLUMNS, rows, fitted=not wide))

        show_listing(look, output, watch)


def _instant(text: str, now: float) -> float:
    """Seconds since 1970: so long ago, or the beginning of a day (UTC)."""
    try:
        given = datetime.fromisoformat(text)
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass  # then it is a length of time
    try:
        return max(now - quantities.seconds(text), 0.0)
    except BadValueError as error:
        raise InvalidInputError(
            f"--since {text!r} is no length of time and no date", "write 2d, 12h or 2026-01-31"
        ) from error


def _row(entry: AuditInfo) -> list[str]:
    at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    change = f"{entry.before} -> {entry.after}" if entry.before else entry.after
    return [
        at,
        entry.user,
        entry.address,
        entry.verb,
        f"{entry.kind} {entry.object}".strip(),
        change,
        str(entry.status),
    ]
