"""Numbers of options: neither ``nan``, which no bound refuses, nor without end."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import click


class FiniteNumber(click.FloatRange):
    """A finite number, within the bounds, of which one is given at least."""

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
