"""``pond dev ssh-config``: entries for ``ssh``, by which editors too come into jobs."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.error_output import say
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import ENDED
from millpond.client.sdk.resources.ssh_config import (
    SshHostEntry,
    config_file,
    include,
    is_included,
    own_key,
    write_entries,
)
from millpond.client.sdk.transport.discovery import is_on_this_machine
from millpond.model.errors import ConflictError, UnavailableError
from millpond.specs.api.accounts.ssh import SshInfo
from millpond.specs.api.jobs.jobs import JobInfo

_EVERYWHERE = ("0.0.0.0", "::")


@click.command("ssh-config")
@job_argument("job", metavar="[JOB]", required=False)
@click.option("--include", "includes", is_flag=True, help="Have ~/.ssh/config include the entries.")
@with_client
def command(client: Client, job: str | None, includes: bool) -> None:
    """Write an entry for ssh, so that `ssh millpond-JOB` leads into JOB [default: all of one's jobs that go on].

    A key of its own is made for this and registered with the server.
    """
    gateway = client.ssh.gateway()
    if not gateway.host:
        remedy = "have an admin add a section to its configuration, such as ssh: {port: 7422}"
        raise UnavailableError(f"the server at {client.address.url} has no SSH gateway", remedy)
    host = _host(client.address.url, gateway)
    jobs = _jobs(client, job)
    client.ssh.add_key(own_key())
    folders = {name: folder_of(client, name) for name in jobs}
    entries = [SshHostEntry(name, host, gateway.port, gateway) for name in jobs]
    write_entries(gateway, entries, only=job is None)
    if includes:
        include()
    if is_included():
        ways = [f"ssh {entry.name}" for entry in entries]
        for entry in entries:
            say(f"in VS Code: {entry.vscode_link(folders[entry.job])}")
    else:
        ways = [f"ssh -F {config_file()} {entry.name}" for entry in entries]
        click.echo(f"`pond dev ssh-config --include` has ~/.ssh/config include {config_file()}", err=True)
    click.echo("\n".join(ways) if ways else "none of your jobs goes on")


def say_how_editors_open(client: Client, job: JobInfo) -> None:
    """Print what opens a job in VS Code, where the server has a gateway and the job goes on."""
    gateway = client.ssh.gateway()
    if not gateway.host or job.kind != "dev":
        return
    entry = SshHostEntry(job.id, gateway.host, gateway.port, gateway)
    if is_included() and entry.is_written():
        say(f"in VS Code: {entry.vscode_link(folder_of(client, job.id))}")
    else:
        say(f"`pond dev ssh-config --include {job.id}` prints a link for VS Code")


def folder_of(client: Client, job: str) -> str:
    """Where a job runs, by its file; empty where the server chose the place, or made a copy."""
    document = client.document(job)
    return "" if document.get("ship") else str(document.get("workdir") or "")


def _jobs(client: Client, job: str | None) -> list[str]:
    if job is None:
        user = client.accounts.whoami().user
        return sorted(info.id for info in client.jobs().jobs if info.user == user)
    info = client.find(job)
    if info.state in ENDED:
        raise ConflictError(f"job {info.id} is {info.state}", "start it once more with `pond clone`")
    return [info.id]


def _host(url: str, gateway: SshInfo) -> str:
    """The gateway's address as seen from here.

    Raises:
        UnavailableError: it listens on the server's own machine only, and this is another one.
    """
    server = urlsplit(url).hostname or ""
    if gateway.host in _EVERYWHERE:
        return server
    bracketed = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    if is_on_this_machine(f"ssh://{bracketed}") and not is_on_this_machine(url):
        remedy = "have an admin set its host in the configuration, such as ssh: {port: 7422, host: 0.0.0.0}"
        raise UnavailableError(f"the SSH gateway of {server} listens on its own machine only", remedy)
    return gateway.host
