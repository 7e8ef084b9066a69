"""Hours of days on the clock of a machine that is put forward and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from millpond.model.errors import InvalidInputError
from millpond.specs.calendar_spans import month_span, nearest_hour

HOUR_S = 3_600.0
PUT_FORWARD = 1_774_746_000.0
"""2026-03-29 03:00 in Berlin, where it would have been 02:00."""
PUT_BACK = 1_792_890_000.0
"""2026-10-25 02:00 in Berlin, where it would have been 03:00."""


@pytest.fixture(autouse=True)
def _clock_of_berlin(put_into_zone: Callable[[str], None]) -> None:
    put_into_zone("Europe/Berlin")


@pytest.mark.parametrize("hour", [0, 1, 2, 3, 23])
@pytest.mark.parametrize(
    ("zone", "changed_at"),
    [
        ("Europe/Berlin", PUT_FORWARD),
        ("Europe/Berlin", PUT_BACK),
        ("America/New_York", 1_772_953_200.0),
        ("America/New_York", 1_793_512_800.0),
        ("Australia/Lord_Howe", 1_791_041_400.0),
        ("Australia/Lord_Howe", 1_775_314_800.0),
        ("Asia/Kolkata", PUT_FORWARD),
    ],
)
def test_each_hour_comes_once_a_day_while_the_clock_is_put_forward_or_back(
    hour: int, zone: str, changed_at: float, put_into_zone: Callable[[str], None]
) -> None:
    put_into_zone(zone)
    moments = [changed_at + quarter * 900.0 + aside for quarter in range(-192, 192) for aside in (-30.0, 30.0)]
    passed = [nearest_hour(datetime.time(hour), moment, -1) for moment in moments]
    to_come = [nearest_hour(datetime.time(hour), moment, 1) for moment in moments]
    assert (passed, to_come) == (sorted(passed), sorted(to_come))
    days = {datetime.datetime.fromtimestamp(at, datetime.UTC).astimezone().date() for at in passed}
    assert len(set(passed)) == len(set(to_come)) == len(days)


def test_an_hour_that_is_shown_twice_has_passed_with_the_first() -> None:
    shown_first = PUT_BACK - HOUR_S
    assert nearest_hour(datetime.time(2), PUT_BACK + 60.0, -1) == shown_first
    assert nearest_hour(datetime.time(2), PUT_BACK - 60.0, -1) == shown_first


@pytest.mark.parametrize("text", ["2026-11-05", "2026-W10", "2026-11-01", "202611", "2026-1", "2026-13", "0001-01"])
def test_what_is_no_month_is_refused_and_no_part_of_one_is_taken_for_it(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a month"):
        month_span(text)
