"""``pond config``: the server's configuration file, before a server reads it, and the policies that hold in it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing import formats
from millpond.client.sdk import Client
from millpond.model.amounts import count_text
from millpond.model.hardware.nodes import DEFAULT_POOL


@click.group("config", cls=SuggestingGroup)
def command() -> None:
    """The server's configuration file, and the policies that hold."""


@command.command("check")
@click.argument("file", type=PathParameter())
def check(file: Path) -> None:
    """Check FILE as `pond up --config FILE` would; every fault with its line and column."""
    from millpond.server.auth.oidc.id_tokens import jose
    from millpond.server.http.tls import open_encryption
    from millpond.server.runtime.queue_settings.hardware_checks import promised_beyond
    from millpond.server.sessions.ssh.listener import require_asyncssh
    from millpond.specs.config.cluster import load_cluster
    from millpond.specs.errors import SpecError

    config = load_cluster(file)
    if beyond := promised_beyond(config):
        raise SpecError(beyond, "more would be promised than there is")
    parts = (
        count_text(len({DEFAULT_POOL, *(pool.name for pool in config.pools)}), "pool"),
        count_text(len(config.queues), "queue"),
        count_text(len(config.nodes), "pretended node"),
    )
    encryption = open_encryption(config.listening)
    if config.oidc is not None:
        jose()
    if config.ssh is not None:
        require_asyncssh()
    click.echo(f"{file} is good: {', '.join(parts)}")
    if encryption is not None:
        ends_at = datetime.fromtimestamp(encryption.certificate.ends_at, UTC)
        click.echo(f"the certificate is valid until {ends_at:%Y-%m-%d}")
    if config.oidc is not None:
        click.echo(f"people log in at {config.oidc.issuer}, which sends them back to {config.oidc.callback}")


@command.command("policies")
@with_client
def policies(client: Client) -> int:
    """Show which policies hold, what the server chose at night by its own past, and why; for admins."""
    info = client.adaptation()
    click.echo(info.policies)
    if info.changed_at is not None:
        verb = "back from" if info.rolled_back else "chosen instead of"
        until = "" if info.trial_until is None else f", on trial until {formats.instant_text(info.trial_until)}"
        click.echo(f"{verb} {info.other} on {formats.instant_text(info.changed_at)}{until}")
    if info.looked_at is not None:
        click.echo(f"last night, {formats.instant_text(info.looked_at)}: {info.result}")
    if info.next_at is None:
        click.echo("the server chooses none by itself: its configuration has no section `adapt`")
    else:
        click.echo(f"next: {formats.instant_text(info.next_at)}")
    return 0


@command.command("from-hived")
@click.argument("file", type=PathParameter())
def from_hived(file: Path) -> None:
    """Print what FILE, a configuration of HiveD, guarantees its virtual clusters as `queues` of Millpond's.

    It is refused, with the line, where they are owed more than there is at any level. Cells that hardware of several
    kinds has alike are named on standard error, as a queue may get any of these.
    """
    import yaml

    from millpond.specs.config.files import text_of
    from millpond.specs.config.hived import as_queues, cells_of_several_kinds, read_hived

    hived = read_hived(text_of(file), str(file))
    queues = as_queues(hived)
    for queue, cells, kinds in cells_of_several_kinds(hived):
        say(f"{queue} may get its cells `{cells}` of any of {', '.join(kinds)}: pin machines where it matters")
    click.echo(yaml.safe_dump({"queues": queues}, sort_keys=False, default_flow_style=None).rstrip())
