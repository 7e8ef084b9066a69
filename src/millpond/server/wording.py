"""Instants, spans and numbers in words, for sentences that the server writes for people."""

from __future__ import annotations

import datetime

from millpond.model.amounts import decimal_text


def local_time(instant: float) -> str:
    """An instant on this machine's clock: ``2026-11-22 08:00``."""
    return f"{datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone():%Y-%m-%d %H:%M}"


def lasting(seconds: float) -> str:
    """A span of time: ``1 minute``, ``90 seconds``, ``2 hours``."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{decimal_text(seconds / length)} {unit}{'s' * (seconds != length)}"
    return f"{decimal_text(seconds)} second{'s' * (seconds != 1)}"


def counted(number: int, what: str) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{number} {what}{'s' * (number != 1)}"
