"""Instants and spans in words, for sentences that the server writes for people."""

from __future__ import annotations

import datetime

from millpond.model.amounts import decimal_text


def local_time(instant: float) -> str:
    """An instant on this machine's clock, which its reader's may differ from: ``2026-11-22 08:00 UTC+01:00``."""
    moment = datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M} {datetime.timezone(moment.utcoffset() or datetime.timedelta())}"


def lasting(seconds: float) -> str:
    """A span of time: ``1 minute``, ``90 seconds``, ``2 hours``."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{decimal_text(seconds / length)} {unit}{'s' * (seconds != length)}"
    return f"{decimal_text(seconds)} second{'s' * (seconds != 1)}"


def rounded_span(seconds: float) -> str:
    """A length of time to two figures or so: ``40 s``, ``25 min``, ``3.5 h``, ``2.1 days``."""
    for unit, length in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= (2 if unit == "days" else 1) * length:
            number = seconds / length
            return f"{number:.0f} {unit}" if number >= 10 or unit == "min" else f"{number:.1f} {unit}"
    return f"{seconds:.0f} s"
