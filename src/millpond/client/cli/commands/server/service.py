"""``pond service``: the server as a service of systemd, so that it comes back with the machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import state_dir_option
from millpond.client.sdk import default_state_dir


@click.group("service", cls=SuggestingGroup)
def command() -> None:
    """Run the server as a service of systemd."""


@command.command("install", context_settings={"ignore_unknown_options": True})
@click.option(
    "--user/--system", "for_user", default=None, help="Your own services or the machine's [default: by root]."
)
@click.option("--print", "only_print", is_flag=True, help="Show the units; write nothing.")
@click.option("--replace", is_flag=True, help="Overwrite units that say something else.")
@state_dir_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF pond up]...")
def install(
    for_user: bool | None, only_print: bool, replace: bool, state_dir: Path | None, arguments: tuple[str, ...]
) -> None:
    """Write the systemd units that run the server with these options, such as --port 7433 --config FILE."""
    from millpond.server.operations.unit import require_systemd, unit_folder, unit_texts, write_units
    from millpond.server.startup.command_line import parse_options, words_of

    for_user = os.geteuid() != 0 if for_user is None else for_user
    served = ["--state-dir", str(state_dir or default_state_dir()), *arguments]
    options = parse_options(served).absolute()  # what the server would refuse is refused here
    texts = unit_texts([*words_of(options)], options.state_dir, for_user=for_user)
    folder = unit_folder(for_user=for_user)
    if only_print:
        click.echo("\n".join(f"# {folder / name}\n{text}" for name, text in texts.items()), nl=False)
        return
    require_systemd()
    write_units(folder, texts, replace=replace)
    control = "systemctl --user" if for_user else "systemctl"
    click.echo(f"wrote {' and '.join(texts)} to {folder}; go on with:")
    click.echo(f"  {control} daemon-reload && {control} enable --now millpond")
    if for_user:
        click.echo("  loginctl enable-linger    # so that it runs while nobody is logged in")
