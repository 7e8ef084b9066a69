"""``pond audit``: who changed what, and who was refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial

import click

from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.accounts.accounts import AuditInfo, AuditList
from millpond.specs.errors import BadValueError

_TABLE: ListTable[AuditInfo] = ListTable(
    (
        Column("WHEN (UTC)", lambda entry: datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")),
        Column("WHO", lambda entry: entry.user),
        Column("FROM", lambda entry: entry.address, wide=True),
        Column("VERB", lambda entry: entry.verb),
        Column("OBJECT", lambda entry: f"{entry.kind} {entry.object}".strip(), whole=True),
        Column(
            "CHANGE",
            lambda entry: f"{entry.before} -> {entry.after}" if entry.before else entry.after,
            wraps=True,
        ),
        Column("ANSWER", lambda entry: str(entry.status), right=True),
    )
)


def _instant(_context: click.Context, _option: click.Parameter, text: str | None) -> float:
    """Seconds since 1970: so long ago, or the beginning of a day (UTC)."""
    if text is None:
        return 0.0
    try:
        given = datetime.fromisoformat(text)
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass  # then it is a length of time
    try:
        return max(time.time() - quantities.seconds(text), 0.0)
    except BadValueError as error:
        raise InvalidInputError(
            f"--since {text!r} is no length of time and no date", "write 2d, 12h or 2026-01-31"
        ) from error


@click.command("audit")
@click.option("--by", default="", metavar="USER", help="Only what this user did.")
@click.option(
    "--since",
    callback=_instant,
    metavar="TIME",
    help="Only the last so long (such as 2d), or since a date (2026-01-31).",
)
@click.option("--object", "about", default="", metavar="NAME", help="Only about this job, user, group or token.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Newest entries to show.")
@lists()
def command(client: Client, by: str, since: float, about: str, limit: int) -> Listing:
    """List changes and refused requests, newest first. For admins, and for the leads of a group about their group."""
    entries = client.accounts.audit(by, since, about, limit)
    return Listing(AuditList(entries=entries), [entry.object for entry in entries], partial(_TABLE.show, entries))
