"""Names of templates for the shell to complete."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from millpond.specs.job.templates import all_templates


def complete_template(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The templates whose names begin so, with what they say of themselves; ``pond dev`` takes those of dev jobs."""
    found = (each for each in all_templates() if each.name.startswith(begun))
    return [
        CompletionItem(each.name, help=each.header.about)
        for each in found
        if context.info_name != "dev" or each.job(Path.cwd()).file.kind == "dev"
    ]
