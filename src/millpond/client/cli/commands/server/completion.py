"""``pond completion``: the script by which a shell completes ``pond``'s commands, options and jobs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_POND_COMPLETE"
"""Set by the shell's script when it asks ``pond`` what could be meant."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands, options and the names of jobs.

    \b
    bash: add to ~/.bashrc   eval "$(pond completion bash)"
    zsh:  add to ~/.zshrc    eval "$(pond completion zsh)"
    fish: pond completion fish > ~/.config/fish/completions/pond.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows each of these shells"
    root = context.find_root()
    click.echo(kind(root.command, {}, "pond", VARIABLE).source())
