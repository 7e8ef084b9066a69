"""``pond open``: the portal in a browser, logged in by a link that works once."""

from __future__ import annotations

import webbrowser

import click

from millpond.client.cli.commands.accounts.login import has_browser
from millpond.client.cli.connection import job_argument, with_client
from millpond.client.sdk import Client


@click.command("open")
@job_argument("job", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the address, and open nothing.")
@with_client
def command(client: Client, job: str | None, only_print: bool) -> None:
    """Open the portal in a browser, at the page of JOB or at the overview.

    Where no browser can open, the address is printed. It logs one browser in, once, within ten minutes.
    """
    link = client.accounts.portal_link(client.find(job).id if job else "")
    if only_print or not has_browser() or not webbrowser.open(link.url):
        click.echo(link.url)
