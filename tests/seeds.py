"""Seeds of random worlds: a few for every run of the tests, many for the long ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few_then_many(few: Iterable[Any], many: Iterable[Any]) -> list[Any]:
    """For ``parametrize``: the quick tests get the first, the long ones the others. Tuples are for several names."""
    values = (each if isinstance(each, tuple) else (each,) for each in many)
    return [*few, *(pytest.param(*each, marks=pytest.mark.long) for each in values)]
