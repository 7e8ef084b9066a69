"""Instants as people type them."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from millpond.client.cli.time_options import future, parse_date, parse_future, parse_past
from millpond.model.errors import InvalidInputError

NOON = 1_763_985_600.0
"""2025-11-24 12:00 UTC."""
HOUR = 3600.0


@pytest.mark.parametrize(
    ("text", "hours"), [("14:30", 2.5), ("9:00", 21.0), ("12:00", 24.0), ("2h", 2.0), ("now", 0.0)]
)
def test_a_time_of_day_to_come_is_the_next_one(text: str, hours: float) -> None:
    assert parse_future(text, "--from", NOON) == NOON + hours * HOUR


@pytest.mark.parametrize(("text", "hours"), [("14:30", -21.5), ("9:00", -3.0), ("12:00", -24.0), ("2h", -2.0)])
def test_a_time_of_day_in_the_past_is_the_last_one(text: str, hours: float) -> None:
    assert parse_past(text, "--since", NOON) == NOON + hours * HOUR


@pytest.mark.parametrize("text", ["24:00", "14:60", "14:3", "noon"])
def test_what_is_no_instant_is_refused_with_a_way_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--from") as refused:
        parse_future(text, "--from", NOON)
    assert "14:30" in refused.value.remedy


def test_an_hour_that_the_clock_skips_is_still_to_come(put_into_zone: Callable[[str], None]) -> None:
    put_into_zone("Europe/Berlin")
    before = 1_774_742_400.0  # 2026-03-29 01:00 in Berlin, an hour before its clocks are put forward
    assert before < parse_future("02:30", "--from", before) <= before + 3 * HOUR


@pytest.mark.parametrize("options", [["--from", "22:00", "--until", "6:00"], ["--until", "6:00", "--from", "22:00"]])
def test_a_time_of_day_that_ends_something_is_the_next_one_after_its_begin(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOON - 8 * HOUR)  # 04:00: the next 06:00 is before 22:00

    @click.command
    @click.option("--from", "begin", is_eager=True, callback=future)
    @click.option("--until", callback=future)
    def span(begin: float, until: float) -> None:
        click.echo(f"{(begin - NOON) / HOUR} {(until - NOON) / HOUR}")

    assert CliRunner().invoke(span, options).output == "10.0 18.0\n"


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59"])
def test_a_date_that_the_clock_of_this_machine_cannot_show_is_refused_as_none(
    text: str, put_into_zone: Callable[[str], None]
) -> None:
    put_into_zone("America/New_York")
    with pytest.raises(InvalidInputError, match="is not a date"):
        parse_date(text, "--until")
