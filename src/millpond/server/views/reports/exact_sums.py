"""Round amounts so that the shown amounts add up to the shown sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_TIE: Final = 1e-6
"""Halves are rounded up, however the amounts behind them were added up."""


def rounded_together(amounts: Sequence[float], digits: int) -> tuple[list[float], float]:
    """Amounts of one sign rounded to so many digits behind the point, and their sum, alike.

    Each is rounded down or up; up are those that lose most otherwise (the method of largest remainders), so that
    the rounded amounts add up to the rounded sum.
    """
    scale = 10**digits
    units = [amount * scale + _TIE for amount in amounts]
    total = math.floor(math.fsum(amounts) * scale + 0.5 + _TIE)
    floors = [math.floor(each) for each in units]
    missing = total - sum(floors)
    by_loss = sorted(range(len(units)), key=lambda index: floors[index] - units[index])
    for index in by_loss[:missing]:
        floors[index] += 1
    return [each / scale for each in floors], total / scale
