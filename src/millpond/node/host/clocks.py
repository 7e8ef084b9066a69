"""Clocks as arguments: what has to know the time is given one, so that tests can move it."""

from __future__ import annotations

from collections.abc import Callable

WallClock = Callable[[], float]
"""Seconds since 1970; it can be set, also back."""
MonotonicClock = Callable[[], float]
"""Seconds since whatever instant; it cannot be set."""
