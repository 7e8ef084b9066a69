"""Instants in words, for sentences that the server writes for people."""

from __future__ import annotations

import datetime


def local_time(instant: float) -> str:
    """An instant on this machine's clock: ``2026-11-22 08:00``."""
    return f"{datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone():%Y-%m-%d %H:%M}"
