"""What may have been meant by an unknown command or option, and groups of commands that say so.

They list each command with its whole first sentence.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import click

from millpond.specs.foreign_words import own_field

_NO_LIMIT = 10_000
_LISTING_WORDS: Final = ("list", "ls", "status")
FOREIGN_WORDS: Final = {
    **dict.fromkeys(("list", "ls", "jobs", "squeue", "qstat", "sacct", "status"), ("ps", "ls", "show")),
    **dict.fromkeys(("describe", "inspect", "show", "info", "scontrol"), ("get", "show", "ls")),
    **dict.fromkeys(("rm", "remove", "del", "delete"), ("delete", "rm", "disable")),
    **dict.fromkeys(("cancel", "kill", "scancel", "qdel", "terminate"), ("stop", "undo")),
    **dict.fromkeys(("create", "new"), ("submit", "add", "put", "create")),
    **dict.fromkeys(("sbatch", "qsub", "batch"), ("submit",)),
    **dict.fromkeys(("srun", "start", "launch"), ("run",)),
    **dict.fromkeys(("salloc", "notebook", "jupyter"), ("dev",)),
    **dict.fromkeys(("sinfo", "node", "cluster"), ("nodes",)),
    **dict.fromkeys(("log", "tail", "output-log"), ("logs",)),
    **dict.fromkeys(("shell", "bash", "ssh", "sh"), ("attach",)),
    **dict.fromkeys(("port-forward", "proxy"), ("forward",)),
    **dict.fromkeys(("cp", "download", "fetch", "pull"), ("get-output", "get")),
    **dict.fromkeys(("upload", "push"), ("put",)),
    **dict.fromkeys(("nvidia-smi", "smi", "gpus", "gpu"), ("top",)),
    "event": ("events",),
    **dict.fromkeys(("pause", "hold", "freeze"), ("suspend",)),
    **dict.fromkeys(("unpause", "release", "continue"), ("resume",)),
    **dict.fromkeys(("scale",), ("resize",)),
    **dict.fromkeys(("explain", "reason"), ("why",)),
    **dict.fromkeys(("queues", "partition", "partitions", "quota"), ("queue",)),
    **dict.fromkeys(("limit", "limits"), ("whoami",)),
    **dict.fromkeys(("rerun", "retry", "restart", "resubmit"), ("requeue",)),
    **dict.fromkeys(("nice", "renice", "qalter", "promote"), ("priority",)),
    **dict.fromkeys(("account", "accounts", "users"), ("user",)),
    **{word: (f"nodes {word}",) for word in ("cordon", "drain", "uncordon")},
}
"""Words of other tools (kubectl, docker, Slurm and its kin), each with our own, the first that a group has."""
_FOREIGN_OPTIONS: Final = {
    **dict.fromkeys(("-p", "-A"), "--queue"),
    "-t": "--time-limit",
    "-m": "--memory",
    "-G": "--gpus",
    "-N": "--tasks",
    "-c": "--cpus",
    "-J": "--name",
    "-D": "--workdir",
    "-C": "--gpu-model",
    **dict.fromkeys(("--me", "-u"), "--user"),
    "--states": "--state",
    **dict.fromkeys(("--lines", "-n"), "--tail"),
    "--force": "--yes",
    **dict.fromkeys(("--test-only", "--plan", "--check", "--validate"), "--dry-run"),
}
"""Options of other tools, each with our own; those with the names of their fields are in ``specs.foreign_words``."""
_OF_OTHER_COMMANDS: Final = {("submit", "--dry-run"): "`pond apply --dry-run`"}
"""By a command and an option of ours that it does not have, which other command has it."""
_FOREIGN_FORMS: Final = {
    "--json": "json",
    "--yaml": "yaml",
    **dict.fromkeys(("-q", "--quiet", "--noheader"), "name"),
    **dict.fromkeys(("--wide", "--long", "-l"), "wide"),
}
_OPTIONS_NAMED: Final = 2


def meant_option(error: click.NoSuchOption) -> str:
    """What may have been meant by an option that a command does not have; empty: nothing is like it."""
    command = None if error.ctx is None else error.ctx.command
    options = [] if command is None else command.params
    own = {name for option in options for name in option.opts}
    field = own_field(error.option_name)
    meant = _FOREIGN_OPTIONS.get(error.option_name) or (f"--{field.replace('_', '-')}" if field else error.option_name)
    form = _FOREIGN_FORMS.get(error.option_name)
    if form is not None and any("-o" in each.opts and form in getattr(each.type, "choices", ()) for each in options):
        return f"-o {form}"
    for name in (meant, meant.removesuffix("s")):
        if name in own:
            return name
    if command is not None and (elsewhere := _OF_OTHER_COMMANDS.get((str(command.name), meant))):
        return elsewhere
    if any("--set" in option.opts and option.metavar == "FIELD=VALUE" for option in options):
        from millpond.specs.job.job_file import JobFile

        field = meant.lstrip("-").replace("-", "_")
        if field in JobFile.model_fields:
            return f"--set {field}=…"
    near = get_close_matches(error.option_name, error.possibilities or (), _OPTIONS_NAMED, 0.0)
    return " or ".join(near)


class SuggestingGroup(click.Group):
    """A group that says what a command it does not have may have been meant to be."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            near = self.meant(name, known)
            hint = self.way_on(ctx.command_path, name)
            if near:
                hint = f"did you mean `{ctx.command_path} {near[0]}`?"
            raise click.UsageError(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def way_on(self, path: str, name: str) -> str:
        """What is said of an unknown command that is like no other."""
        return f"`{path} --help` lists the commands"

    def meant(self, name: str, known: list[str], likeness: float = 0.5) -> list[str]:
        """Commands that an unknown word may mean, the likeliest first.

        Args:
            likeness: of 0 to 1, how like a command a word has to be that no other tool knows.
        """
        near = [own for own in FOREIGN_WORDS.get(name, ()) if own.split()[0] in known]
        if near:
            return near
        if name in FOREIGN_WORDS:  # `delete` is no slip of the pen for `decline`
            return [own for own in known if own.startswith(name)][:1]
        return get_close_matches(name, known, n=1, cutoff=likeness)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, but a sentence that is too long goes on in the next line instead of ending in dots."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(_NO_LIMIT)) for name, each in commands if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


_TYPO_LIKENESS: Final = 0.8
"""How like a command a word is that is not taken for a name."""


class NamingGroup(SuggestingGroup):
    """A group in which a name may stand where a command could: it is for one command, such as that which shows it.

    Without a command it lists what has these names.

    Args:
        named: that command's name.
    """

    def __init__(self, *arguments: Any, named: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._named = named

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        is_word = name.startswith("-") or name in FOREIGN_WORDS
        if name in known or is_word or self.meant(name, known, _TYPO_LIKENESS):
            return super().resolve_command(ctx, args)
        return self._named, self.get_command(ctx, self._named), args

    def way_on(self, path: str, name: str) -> str:
        return f"`{path}` alone lists them" if name in _LISTING_WORDS else super().way_on(path, name)
