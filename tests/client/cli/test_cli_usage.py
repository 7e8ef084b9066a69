"""``pond usage``: spans of time, and what the lists look like."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

from millpond.client.cli.commands.cluster import usage
from millpond.model.errors import InvalidInputError
from millpond.specs.api.reports.usage import RateGap, UsageList, UsageRow, WaitFigure, WaitReport, WaitRow
from millpond.specs.calendar_spans import month_span

ROW = UsageRow(name="ada", model="A100", jobs=3, gpu_hours=1.5, cpu_hours=12.0, memory_gib_hours=48.0, cost=3.0)

WAIT = WaitRow(
    name="vision",
    cards="3-4",
    jobs=3,
    started=2,
    gave_up=1,
    waiting=0,
    unknown=0,
    p50=WaitFigure(seconds=90.0),
    p95=WaitFigure(seconds=7200.0, at_least=True),
)


class Served:
    """A server that answers every question about usage alike."""

    def __init__(self, rows, currency=""):
        self.rows, self.currency, self.asked = rows, currency, ()
        self.extra = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def usage(self, by, since, until):
        self.asked = (by, since, until)
        return UsageList(by=by, since=since, until=until or 0.0, currency=self.currency, rows=self.rows, **self.extra)

    def waits(self, by, since, until):
        self.asked = (by, since, until)
        return WaitReport(by=by, since=since, until=until or 0.0, rows=[WAIT], total=WAIT)


def printed(monkeypatch, served, *arguments):
    monkeypatch.setattr(usage, "connect", lambda state_dir: served)
    done = CliRunner().invoke(usage.command, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def test_a_month_ends_where_the_next_begins():
    first, following = month_span("2026-12")
    assert time.localtime(first)[:5] == (2026, 12, 1, 0, 0)
    assert time.localtime(following)[:5] == (2027, 1, 1, 0, 0)


@pytest.mark.parametrize(
    "arguments",
    [["--month", "November"], ["--since", "yesterday"], ["--month", "2026-11", "--since", "2026-11-01"],
     ["--since", "2026-11-02", "--until", "2026-11-01"]],
)  # fmt: skip
def test_a_span_that_is_none_is_refused_with_the_form_to_use(monkeypatch, arguments):
    served = Served([])
    with pytest.raises(InvalidInputError) as raised:
        printed(monkeypatch, served, *arguments)
    assert raised.value.remedy
    assert served.asked == ()


def test_the_table_shows_costs_where_there_are_prices(monkeypatch):
    assert "EUR" in printed(monkeypatch, Served([ROW], "EUR"))
    assert printed(monkeypatch, Served([ROW], "EUR")).splitlines()[1].split() == [
        "ada", "A100", "3", "1.500", "unknown", "-", "12.000", "unknown", "3.00",
    ]  # fmt: skip
    assert "3.00" not in printed(monkeypatch, Served([ROW]))


def test_csv_has_the_group_as_its_first_column_and_says_the_model_once(monkeypatch):
    lines = printed(monkeypatch, Served([ROW]), "-o", "csv").splitlines()
    assert lines[0].startswith("user,model,jobs,gpu_hours,cpu_hours,memory_gib_hours,cost,measured_gpu_hours")
    assert lines[1:] == ["ada,A100,3,1.5,12.0,48.0,3.0,0.0,0.0,0.0,0.0,,0.0,,0.0,,0.0"]
    by_model = printed(monkeypatch, Served([replace(ROW, name="A100")]), "--by", "model", "-o", "csv")
    assert by_model.splitlines()[0].startswith("model,jobs,gpu_hours,cpu_hours,memory_gib_hours,cost,")


def test_a_name_that_a_spreadsheet_would_take_for_a_formula_is_text_in_csv(monkeypatch):
    lines = printed(monkeypatch, Served([replace(ROW, name="=1+cmd|' /C calc'!A0")]), "-o", "csv").splitlines()
    assert lines[1].startswith("'=1+cmd")


def test_idle_hours_that_nobody_measured_are_unknown_and_not_none(monkeypatch):
    measured = replace(ROW, measured_gpu_hours=1.2, idle_gpu_hours=0.3, busy_gpu_hours=0.6)
    assert printed(monkeypatch, Served([measured])).splitlines()[1].split()[4:7] == ["0.300", "50", "%"]
    assert "unknown" in printed(monkeypatch, Served([ROW]))


def test_energy_is_unknown_partial_or_known_and_says_what_was_declared_and_what_has_no_price(monkeypatch):
    known = replace(ROW, energy_gpu_hours=1.5, energy_kwh=0.4, declared_kwh=0.1, energy_cost=0.1, priced_kwh=0.3)
    served = Served([known, replace(known, name="eve", energy_gpu_hours=0.5), ROW])
    served.extra = {"energy_currency": "EUR", "total": known, "gaps": [RateGap(of="price", since=0.0, until=60.0)]}
    lines = printed(monkeypatch, served, "-o", "wide").splitlines()
    assert lines[0].split()[-8:] == ["KWH", "EUR", "OF", "KWH", "CO2", "KG", "GIB", "HOURS"]
    assert lines[1].split()[7:11] == ["0.400", "≥", "0.10", "unknown"]
    assert lines[2].split()[7:11] == ["≥", "0.400", "≥", "0.10"]
    assert lines[3].split()[7:10] == ["unknown", "unknown", "unknown"]
    assert lines[5] == "0.100 kWh follow from the declared power of cards that report none"
    assert lines[6].startswith("no price of energy is known from 19")


def test_waits_say_where_a_job_that_did_not_start_would_have_waited_longer(monkeypatch):
    served = Served([])
    lines = printed(monkeypatch, served, "--waits").splitlines()
    assert served.asked[0] == "group"
    assert lines[0].split()[:4] == ["GROUP", "CARDS", "JOBS", "P50"]
    assert lines[1].split() == ["vision", "3-4", "3", "1m30s", "≥", "2h00m", "2", "1", "0", "0"]
    assert (
        printed(monkeypatch, served, "--waits", "-o", "csv").splitlines()[1] == "vision,3-4,3,2,1,0,0,90.0,0,7200.0,1"
    )
    with pytest.raises(InvalidInputError, match="--waits with --by model"):
        printed(monkeypatch, served, "--waits", "--by", "model")


def test_no_cards_compute_for_longer_than_they_were_measured(monkeypatch):
    rounded = replace(ROW, measured_gpu_hours=0.051, busy_gpu_hours=0.052)
    assert " 100 %" in printed(monkeypatch, Served([rounded]))
