"""Recurring hours open and close when the clock of their place says so, through the changes of that clock too."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import InvalidInputError
from millpond.model.windows import MINUTES_A_DAY, Window, closes_at, is_open, next_change, opens_at, spans

BERLIN = "Europe/Berlin"
NIGHT = Window(20 * 60, 8 * 60, (), BERLIN)
DAY_S = 86_400.0
ZONES = ("UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia")

MINUTES = st.integers(0, MINUTES_A_DAY - 1)
DAYS = st.lists(st.integers(0, 6), unique=True, max_size=7).map(lambda days: tuple(sorted(days)))
WINDOWS = st.builds(Window, MINUTES, MINUTES, DAYS, st.sampled_from(ZONES))
INSTANTS = st.floats(0, 2.5e9, allow_nan=False).map(round).map(float)


def berlin(*when: int) -> float:
    return datetime(*when, tzinfo=ZoneInfo(BERLIN)).timestamp()  # type: ignore[arg-type,misc]


def test_a_window_over_midnight_is_open_at_night() -> None:
    assert is_open((NIGHT,), berlin(2026, 11, 21, 20, 0))
    assert is_open((NIGHT,), berlin(2026, 11, 22, 7, 59))
    assert not is_open((NIGHT,), berlin(2026, 11, 22, 8, 0))
    assert opens_at((NIGHT,), berlin(2026, 11, 22, 12, 0)) == berlin(2026, 11, 22, 20, 0)
    assert closes_at((NIGHT,), berlin(2026, 11, 21, 23, 0)) == berlin(2026, 11, 22, 8, 0)


@pytest.mark.parametrize(
    ("evening", "hours"), [((2026, 3, 28, 20, 0), 11), ((2026, 10, 24, 20, 0), 13), ((2026, 6, 1, 20, 0), 12)]
)
def test_a_night_lasts_as_long_as_the_clock_makes_it(evening: tuple[int, ...], hours: int) -> None:
    begin = berlin(*evening)
    assert closes_at((NIGHT,), begin) == begin + hours * 3_600


def test_an_hour_that_is_skipped_in_spring_comes_all_the_same() -> None:
    skipped = Window(2 * 60 + 30, 4 * 60, (), BERLIN)
    assert opens_at((skipped,), berlin(2026, 3, 29, 0, 0)) == berlin(2026, 3, 29, 3, 30)


NIGHTS = (
    (BERLIN, date(2026, 3, 29)),
    (BERLIN, date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("America/Sao_Paulo", date(2018, 11, 4)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Asia/Kolkata", date(2026, 3, 29)),
)
"""Days on which clocks are put forward or back, one that a place had not at all, and one of a clock that stays."""


@pytest.mark.parametrize(
    ("zone", "hours", "begin", "end"),
    [
        (BERLIN, (120, 180), "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"),
        (BERLIN, (150, 210), "2026-03-29T03:30+02:00", "2026-03-29T04:30+02:00"),
        (BERLIN, (150, 360), "2026-03-29T03:30+02:00", "2026-03-29T06:00+02:00"),
        (BERLIN, (120, 180), "2026-10-25T02:00+02:00", "2026-10-25T03:00+01:00"),
        (BERLIN, (120, 150), "2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00"),
        ("America/New_York", (120, 180), "2026-03-08T03:00-04:00", "2026-03-08T04:00-04:00"),
        ("America/New_York", (60, 120), "2026-11-01T01:00-04:00", "2026-11-01T02:00-05:00"),
        ("America/Sao_Paulo", (0, 60), "2018-11-04T01:00-02:00", "2018-11-04T02:00-02:00"),
        ("Australia/Lord_Howe", (120, 150), "2026-10-04T02:30+11:00", "2026-10-04T03:00+11:00"),
        ("Australia/Lord_Howe", (90, 120), "2026-04-05T01:30+11:00", "2026-04-05T02:00+10:30"),
        ("Pacific/Apia", (540, 1_020), "2011-12-31T09:00+14:00", "2011-12-31T17:00+14:00"),
        ("Asia/Kolkata", (120, 180), "2026-03-29T02:00+05:30", "2026-03-29T03:00+05:30"),
    ],
)
def test_hours_on_a_night_when_the_clock_changes(zone: str, hours: tuple[int, int], begin: str, end: str) -> None:
    window = Window(*hours, (), zone)
    opens, closes = datetime.fromisoformat(begin).timestamp(), datetime.fromisoformat(end).timestamp()
    assert opens_at((window,), opens - 1_800.0) == opens
    assert closes_at((window,), opens) == closes


@pytest.mark.parametrize(("zone", "night"), NIGHTS)
def test_every_window_opens_once_on_each_of_its_days_also_where_the_clock_changes(zone: str, night: date) -> None:
    around = datetime(night.year, night.month, night.day, 12, tzinfo=UTC)
    for minute in range(0, MINUTES_A_DAY, 15):
        for length in (1, 15, 30, 60, 75, 240, MINUTES_A_DAY):
            window = Window(minute, (minute + length) % MINUTES_A_DAY, (night.weekday(),), zone)
            found = spans(window, *((around + timedelta(days=days)).timestamp() for days in (-3, 3)))
            assert len(found) == 1, window
            assert 0.0 < found[0][1] - found[0][0] <= (length + 60) * 60.0, window


def test_a_window_that_opens_on_friday_lasts_into_saturday() -> None:
    friday = Window(20 * 60, 8 * 60, (4,), "UTC")
    assert is_open((friday,), datetime(2026, 11, 21, 7, tzinfo=ZoneInfo("UTC")).timestamp())
    assert not is_open((friday,), datetime(2026, 11, 21, 21, tzinfo=ZoneInfo("UTC")).timestamp())


def test_windows_that_follow_each_other_leave_no_gap() -> None:
    day = Window(8 * 60, 20 * 60, (), BERLIN)
    assert closes_at((NIGHT, day), berlin(2026, 1, 1, 9, 0)) is None
    assert closes_at((Window(0, MINUTES_A_DAY),), 0.0) is None


def test_one_that_is_always_open_leaves_no_gap_beside_one_whose_midnight_is_another() -> None:
    always, other = Window(0, 0, (), "America/New_York"), Window(5 * 60 + 1, 0, (), "UTC")
    assert closes_at((always, other), 0.0) is None


@pytest.mark.parametrize(("begin", "days", "zone"), [(-1, (), "UTC"), (0, (7,), "UTC"), (0, (), "Mars/Olympus")])
def test_what_is_no_window_is_refused(begin: int, days: tuple[int, ...], zone: str) -> None:
    with pytest.raises(InvalidInputError):
        Window(begin, 60, days, zone)


@given(windows=st.lists(WINDOWS, min_size=1, max_size=3).map(tuple), instant=INSTANTS)
def test_between_two_changes_nothing_changes(windows: tuple[Window, ...], instant: float) -> None:
    change = next_change(windows, instant)
    now = is_open(windows, instant)
    if change is None:
        assert now
        change = instant + 8 * DAY_S
    else:
        assert instant < change <= instant + 9 * DAY_S
        assert is_open(windows, change) is not now
        assert is_open(windows, change - 1.0) is now or change - instant < 1.0
    assert is_open(windows, (instant + change) / 2) is now


@given(window=WINDOWS, instant=INSTANTS)
def test_windows_open_when_their_clock_shows_the_hour(window: Window, instant: float) -> None:
    opens = opens_at((window,), instant)
    assert is_open((window,), opens)
    if opens > instant:
        shown = datetime.fromtimestamp(opens, ZoneInfo(window.time_zone))
        skipped = datetime.fromtimestamp(opens - 7_200, ZoneInfo(window.time_zone)).utcoffset() != shown.utcoffset()
        assert skipped or shown.hour * 60 + shown.minute == window.begin_minute
        assert skipped or not window.days or shown.weekday() in window.days
