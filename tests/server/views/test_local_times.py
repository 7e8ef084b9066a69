"""Instants in sentences of the server, which people in other time zones read too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.server.wording import local_time

WINTER, SUMMER = 1_763_985_600.0, 1_783_944_000.0
"""2025-11-24 and 2026-07-13, 12:00 UTC."""


@pytest.mark.parametrize(
    ("zone", "winter", "summer"),
    [
        ("UTC", "2025-11-24 12:00 UTC", "2026-07-13 12:00 UTC"),
        ("Europe/Berlin", "2025-11-24 13:00 UTC+01:00", "2026-07-13 14:00 UTC+02:00"),
        ("Asia/Kolkata", "2025-11-24 17:30 UTC+05:30", "2026-07-13 17:30 UTC+05:30"),
    ],
)
def test_an_instant_is_told_with_how_far_the_servers_clock_is_from_utc(
    zone: str, winter: str, summer: str, put_into_zone: Callable[[str], None]
) -> None:
    put_into_zone(zone)
    assert (local_time(WINTER), local_time(SUMMER)) == (winter, summer)
