"""Values of options, for ``pond`` and for the program of the server."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from millpond.model.errors import InvalidInputError
from millpond.model.policies import ORDERINGS, PLACEMENTS, orderings_of, placements_of


class FiniteNumber(click.FloatRange):
    """A finite number, within the bounds, of which one is given at least: ``nan`` is refused by no bound."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            click.BadParameter: it is none, is not finite or is out of bounds.
        """
        with contextlib.suppress(TypeError, ValueError):
            if not math.isfinite(float(value)):
                self.fail(f"{value} is not a finite number", param, ctx)
        return float(super().convert(value, param, ctx))


class PolicyChoice(click.ParamType):  # type: ignore[type-arg]  # a generic from click 8.4 on
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
