"""``pond template``: which ready job files there are, and what is in them."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.tables import Column, show
from millpond.specs.templates import all_templates, find_template, own_folder

_COLUMNS = (Column("NAME"), Column("KIND"), Column("WHOSE"), Column("ABOUT", gives_way=True))


@click.group("template")
def command() -> None:
    """Ready job files: `pond apply --template NAME` submits one."""


@command.command("ls")
@click.option("-o", "--output", type=click.Choice(["table", "name"]), default="table", help="Form of the list.")
def list_templates(output: str) -> None:
    """List templates; your own lie in ~/.config/millpond/templates."""
    templates = all_templates()
    if output == "name":
        for template in templates:
            click.echo(template.name)
        return
    rows = [
        [template.name, template.job(Path.cwd()).file.kind, "yours" if template.own else "", template.header.about]
        for template in templates
    ]
    show(_COLUMNS, rows)
    click.echo(f"your own: {own_folder()}", err=True)


@command.command("show")
@click.argument("name", metavar="NAME")
def show_template(name: str) -> None:
    """Print a template: a good start for one of your own."""
    click.echo(find_template(name).text, nl=False)
