"""The options ``--ordering`` and ``--placement``: one for all kinds of jobs, or one for each."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from millpond.model.errors import InvalidInputError
from millpond.model.policies import ORDERINGS, PLACEMENTS, orderings_of, placements_of


class PolicyChoice(click.ParamType[str]):
    """A name of a policy, or such as ``service=spread,train=fgd``."""

    names: tuple[str, ...] = ()
    check: Callable[[str], object]

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Short, as there are many names: a wrong one is answered with all of them."""
        return "NAME|KIND=NAME,…"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same text, checked."""
        try:
            type(self).check(value)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(each) for each in self.names if each.startswith(incomplete)]


class OrderingChoice(PolicyChoice):
    """Who is next."""

    name = "ordering"
    names = ORDERINGS
    check = staticmethod(orderings_of)


class PlacementChoice(PolicyChoice):
    """Where it goes."""

    name = "placement"
    names = PLACEMENTS
    check = staticmethod(placements_of)
