"""Units in which bytes and spans of time are counted."""

from __future__ import annotations

from typing import Final

MIB: Final = 2**20
"""Bytes."""
HOUR_S: Final = 3_600.0
DAY_S: Final = 24 * HOUR_S
