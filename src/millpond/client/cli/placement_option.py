"""The option ``--placement``: one for all kinds of jobs, or one for each."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from millpond.model.errors import InvalidInputError
from millpond.scheduling.settings import PLACEMENTS, placements_of


class PlacementChoice(click.ParamType[str]):
    """A name of a placement, or such as ``service=spread,train=fgd``."""

    name = "placement"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Short, as there are many names: a wrong one is answered with all of them."""
        return "NAME|KIND=NAME,…"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same text, checked."""
        try:
            placements_of(value)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(each) for each in PLACEMENTS if each.startswith(incomplete)]
