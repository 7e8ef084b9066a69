"""``pond schema``: what job files and the configuration may hold, for editors and for reading."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("kind", type=click.Choice(["job", "config", "codes"]))
@click.option("--markdown", is_flag=True, help="The reference as a page of Markdown.")
def command(kind: str, markdown: bool) -> None:
    """Print the JSON Schema of job files or of the configuration, or the codes of reasons and errors.

    Editors with the YAML language server complete and check a file whose first line is
    `# yaml-language-server: $schema=FILE`, FILE being what this command prints.
    """
    if kind == "codes":
        from millpond.specs.reference_codes import codes, codes_page

        click.echo(codes_page(), nl=False) if markdown else click.echo(json.dumps(codes(), indent=2))
        return
    from millpond.specs.reference import REFERENCES, page_of, schema_of

    reference = REFERENCES[kind]
    click.echo(page_of(reference), nl=False) if markdown else click.echo(json.dumps(schema_of(reference), indent=2))
