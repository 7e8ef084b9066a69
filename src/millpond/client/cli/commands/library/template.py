"""``pond template``: which ready job files there are, and what is in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.error_output import say
from millpond.client.cli.printing.listing import Column, Listing, ListTable, listing_options, show_listing
from millpond.client.cli.template_completion import complete_template
from millpond.specs.job.templates import all_templates, find_template, own_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInfo:
    """A ready job file of this machine.

    Attributes:
        own: it is the user's, not Millpond's.
        needs: what must be installed for it.
        source: where it lies.
    """

    name: str
    kind: str
    own: bool
    about: str
    needs: list[str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateList:
    """All of them by name."""

    templates: list[TemplateInfo]


_TABLE: ListTable[TemplateInfo] = ListTable(
    (
        Column("NAME", lambda template: template.name),
        Column("KIND", lambda template: template.kind),
        Column("WHOSE", lambda template: "yours" if template.own else "", unless_all=""),
        Column("ABOUT", lambda template: template.about, wraps=True),
        Column("NEEDS", lambda template: ", ".join(template.needs), wide=True),
        Column("SOURCE", lambda template: template.source, wide=True),
    )
)


@click.group("template", cls=SuggestingGroup)
def command() -> None:
    """Ready job files: `pond apply --template NAME` submits one."""


@command.command("ls")
@listing_options()
def list_templates(output: str, watch: bool) -> None:
    """List templates; your own lie in ~/.config/millpond/templates."""

    def look() -> Listing:
        templates = [
            TemplateInfo(
                name=each.name,
                kind=each.job(Path.cwd()).file.kind,
                own=each.own,
                about=each.header.about,
                needs=[need.name for need in each.header.needs],
                source=each.source,
            )
            for each in all_templates(say)
        ]
        names = [each.name for each in templates]
        return Listing(TemplateList(templates=templates), names, lambda wide: _draw(templates, wide))

    show_listing(look, output, watch)


@command.command("show")
@click.argument("name", metavar="NAME", shell_complete=complete_template)
def show_template(name: str) -> None:
    """Print a template: a good start for one of your own."""
    click.echo(find_template(name, say).text, nl=False)


def _draw(templates: list[TemplateInfo], wide: bool) -> None:
    _TABLE.show(templates, wide)
    click.echo(f"your own: {own_folder()}", err=True)
