"""``pond schema``: what job files and the configuration may hold, for editors and for reading."""

from __future__ import annotations

import json

import click

from millpond.specs.documentation import reference_page


@click.command("schema")
@click.argument("kind", type=click.Choice(["job", "config", "codes"]))
@click.option("--markdown", is_flag=True, help="The reference as a page of Markdown.")
def command(kind: str, markdown: bool) -> None:
    """Print the JSON Schema of job files or of the configuration, or the codes of reasons and errors.

    Editors with the YAML language server complete and check a file whose first line is
    `# yaml-language-server: $schema=FILE`, FILE being what this command prints.
    """
    from millpond.specs.reference import REFERENCES, schema_of

    if markdown:
        page = "codes.md" if kind == "codes" else REFERENCES[kind].page
        click.echo(reference_page(page), nl=False)
        return
    if kind == "codes":
        from millpond.specs.reference_codes import codes

        found: object = codes()
    else:
        found = schema_of(REFERENCES[kind])
    click.echo(json.dumps(found, indent=2))
