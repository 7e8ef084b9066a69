"""Numbers as people read them: spans of time, amounts of memory, shares of cards."""

from __future__ import annotations


def span(seconds: float) -> str:
    """A length of time in at most two units: ``5s``, ``2m10s``, ``3h05m``, ``2d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{second:02}s"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minute:02}m"
    days, hour = divmod(hours, 24)
    return f"{days}d{hour:02}h"


def gib(mebibytes: int) -> str:
    """Memory in GiB, without needless zeros."""
    return f"{mebibytes / 1024:.1f}".removesuffix(".0")


def thousandth(milli: int) -> str:
    """Milli-units as the unit: 250 is ``0.25``."""
    return f"{milli / 1000:.2f}".rstrip("0").rstrip(".")


def count(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(count: int) -> str:
    """An amount of bytes: ``512 B``, ``1.5 KiB``, ``20.0 GiB``."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"
