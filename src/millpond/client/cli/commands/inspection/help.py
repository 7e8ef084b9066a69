"""``pond help``: what each command does and takes; for programs as JSON, from the parser itself.

And ``pond completion``: the script by which a shell completes commands, options and jobs.
"""

from __future__ import annotations

import inspect
import json
from importlib.metadata import version
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from millpond.client.cli.command_table import SECTIONS
from millpond.model.errors import InvalidInputError

_HIDES_DEFAULT = (None, False, ())
VARIABLE = "_POND_COMPLETE"
"""Set by the shell's script when it asks ``pond`` what could be meant."""


def _commands(context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
    """The commands that may come next."""
    within: click.Command | None = context.find_root().command
    for word in context.params.get("words") or ():
        within = within.get_command(context, word) if isinstance(within, click.Group) else None
    names = within.list_commands(context) if isinstance(within, click.Group) else []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_commands)
@click.option("--json", "as_json", is_flag=True, help="All commands with their options, for programs.")
@click.pass_context
def command(context: click.Context, words: tuple[str, ...], as_json: bool) -> None:
    """Show the help of a command, as COMMAND --help does."""
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    if as_json:
        if words:
            raise InvalidInputError("--json with a command", "leave the command out: it lists all of them")
        click.echo(json.dumps(described(root.command), indent=2, ensure_ascii=False))
        return
    with click.Context(root.command, info_name="pond", **root.command.context_settings) as at:
        try:
            click.echo(_help_of(at, words))
        except click.UsageError as error:
            error.ctx = at  # what the help of `help` does not explain
            raise


def _help_of(context: click.Context, words: tuple[str, ...]) -> str:
    if not words:
        return context.command.get_help(context)
    group = context.command
    if not isinstance(group, click.Group):
        raise click.UsageError(f"{context.command_path!r} has no commands below it")
    name, found, rest = group.resolve_command(context, list(words))
    assert found is not None
    with click.Context(found, info_name=name, parent=context) as at:
        return _help_of(at, tuple(rest))


def described(root: click.Group) -> dict[str, Any]:
    """All commands as data: ``commands`` by their words, each with arguments, options and text."""
    context = click.Context(root, info_name="pond", **root.context_settings)
    commands: dict[str, Any] = {}
    for title, entries in SECTIONS.items():
        for name, entry in entries.items():
            found = root.get_command(context, name)
            assert found is not None
            for words, each in _all_below((name,), found):
                summary = entry.help if len(words) == 1 else each.get_short_help_str(200)
                commands[" ".join(words)] = {"section": title, "summary": summary, **_command(each)}
    return {"program": "pond", "version": version("millpond"), "commands": commands}


def _all_below(words: tuple[str, ...], found: click.Command) -> list[tuple[tuple[str, ...], click.Command]]:
    below = found.commands if isinstance(found, click.Group) else {}
    return [(words, found), *(pair for name, each in below.items() for pair in _all_below((*words, name), each))]


def _command(found: click.Command) -> dict[str, Any]:
    shown = [param for param in found.params if not getattr(param, "hidden", False)]
    return {
        "text": inspect.cleandoc(found.help or "").replace("\b\n", ""),
        "runs_alone": not isinstance(found, click.Group) or found.invoke_without_command,
        "arguments": [_parameter(each) for each in shown if isinstance(each, click.Argument)],
        "options": [_option(each) for each in shown if isinstance(each, click.Option)],
    }


def _parameter(param: click.Parameter) -> dict[str, Any]:
    kind: dict[str, Any] = {"name": param.human_readable_name, "required": param.required, "type": param.type.name}
    if isinstance(param.type, click.Choice):
        kind["choices"] = [str(choice) for choice in param.type.choices]
    if param.nargs != 1:
        kind["values"] = param.nargs if param.nargs > 0 else "any number"
    return kind


def _option(option: click.Option) -> dict[str, Any]:
    found = _parameter(option) | {"name": option.opts[-1], "names": [*option.opts, *option.secondary_opts]}
    found |= {"help": option.help or "", "is_flag": option.is_flag, "repeatable": option.multiple or option.count}
    default = option.default
    is_plain = isinstance(default, str | int | float | bool)
    return found | ({"default": default} if is_plain and default not in _HIDES_DEFAULT else {})


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
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
