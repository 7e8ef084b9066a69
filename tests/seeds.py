"""Seeds of random worlds: a few for every run of the tests, many for the long ones, most for the thorough ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few_then_many(few: Iterable[Any], many: Iterable[Any], most: Iterable[Any] = ()) -> list[Any]:
    """For ``parametrize``: the quick tests get the first, the long ones the next, and the thorough ones the others.

    Tuples are for several names.
    """
    return [*few, *_marked(many, pytest.mark.long), *_marked(most, pytest.mark.long, pytest.mark.thorough)]


def _marked(values: Iterable[Any], *marks: pytest.MarkDecorator) -> list[Any]:
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=marks) for each in values]
