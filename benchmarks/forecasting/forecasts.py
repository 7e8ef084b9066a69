"""What forecasts are worth on public series: their errors, and nodes switched off by them, beside two peers.

*Error.* Weighted absolute percentage error on the last quarter of three series (`load_series.py`), each forecast made
and each forecaster fitted by what was known then. *Millpond* is the one of the server's that did best in the 14 days
before, with the bound that nine in ten are to stay within; *with trees* had boosted trees to choose from too, which no
server has. One set of parameters for all: the penalties of the ridges and the 14 days were chosen on the nodes and the
jobs submitted an hour of Philly, with the figures of the judged quarters in view.

*Power-off.* Nodes of Philly in use, 420 in all. The server's planner switches them with the spare that is forecast from
the minutes before (docs/forecasts.md). A node takes five minutes to boot and draws power meanwhile. The peers are
rebuilt as published, in steps of ten minutes: what they wake is there in the next step, and draws nothing before. Each
row says

- *off*: which part of the nodes that nobody needed drew no power,
- *short*: how many nodes were missing, the most of each ten minutes, summed up over a day, and *steps*: in how many of
  these ten minutes any were missing,
- *woken*: how many nodes were switched on in a day.

The rule was chosen on 3 to 16 November: of a part of 0.95, 0.98 and 0.99, and 1, 2 and 3 hours of idle time, what
leaves most nodes off with at most 50 woken a day, and 0.39 of the nodes short that CES has there. Judged on 17 to 30
November. ``--choose`` prints all nine.

*Replicas ahead.* A service under three times the requests of GenAI (`replicas_ahead.py`), whose replicas follow the
load of the last 10, 20 or 30 minutes, or of 20 minutes and the forecast with a bound that 0.7, 0.75 or 0.8 of the steps
are to stay within; 0.7 is the server's. There is a forecast from 24 November on. The trace is too short to choose the
bound on other days than it is judged on, so both spans are shown.

    python -m benchmarks.forecasting.forecasts --traces DIR [--only error|power-off|replicas] [--choose] [--json FILE]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.forecasting.boosted_trees import boosted_trees
from benchmarks.forecasting.load_series import HOUR_S, earth_cards, genai_replicas, hourly, instant, philly_nodes
from benchmarks.forecasting.power_off_peers import ces, ces_forecast, time_out
from benchmarks.forecasting.powered_pool import PowerScore, play, score
from benchmarks.forecasting.replicas_ahead import WaitScore, ahead_of, demand_of, play_service, requests_of
from benchmarks.reporting import Table, command_line, emit, note, program
from millpond.forecasting.forecasters import FORECASTERS
from millpond.forecasting.outlook import roll
from millpond.forecasting.scores import coverage, known_in
from millpond.forecasting.series import LoadSeries
from millpond.model.hardware.node_power import PowerSavingRule
from millpond.model.units import DAY_S

PART = 0.9
NODES = 420
CHOSEN_ON = ("2017-11-03", "2017-11-17")
JUDGED_ON = ("2017-11-17", "2017-12-01")
RULE = PowerSavingRule(idle_s=7_200.0, spare=1, boot_s=300.0, cover=0.98)
CHOICES = tuple(
    PowerSavingRule(idle_s=hours * 3_600.0, spare=1, boot_s=300.0, cover=part)
    for hours, part in product((1, 2, 3), (0.95, 0.98, 0.99))
)
LEAST_OFF, MOST_SHORT, MOST_WOKEN = 80.0, 1.0, 50.0
STEP_MINUTES = 10
SERVICE_SPANS = (("24 to 26 November", 8, 11), ("27 November to 1 December", 11, 16))
CES_FITTED_UNTIL = "2017-11-01"
TIME_OUTS = ((36, 10), (6, 20))
"""Steps of idleness, and spare nodes."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a rule came to in a window."""

    window: str
    rule: str
    result: PowerScore


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """The errors on one series.

    Attributes:
        wape: by forecaster, in percent.
        with_trees: of Millpond, if it had them.
        bound_met: the part of the steps that stayed within the bound.
        days_by: on how many days each spoke for Millpond.
    """

    load: str
    ahead_h: int
    wape: Mapping[str, float]
    millpond: float
    with_trees: float
    bound_met: float
    days_by: Mapping[str, int]
    asked: float


def wape(said: np.ndarray, came: np.ndarray) -> float:
    """Weighted absolute percentage error: the sum of all errors in percent of the sum of what came."""
    known = known_in(said, came)
    return 100.0 * float(np.abs(came - said)[known].sum()) / float(came[known].sum())


def errors(folder: Path) -> Iterator[ErrorRow]:
    """All three series."""
    loads = (
        ("nodes of Philly", 1, hourly(philly_nodes(folder)), 1.60),
        ("cards of Earth", 24, earth_cards(folder), 9.0),
        ("GenAI replicas", 1, genai_replicas(folder), 40.0),
    )
    compared = (*FORECASTERS, *boosted_trees())
    for name, ahead_h, load, asked in loads:
        note(f"forecasting {name}")
        steps, begin = load.steps_in(ahead_h * HOUR_S), len(load.values) * 3 // 4
        judged = slice(begin, len(load.values))
        came = load.values[judged]
        served, with_trees = (roll(load, steps, PART, (each, begin)) for each in (FORECASTERS, compared))
        found = {each.name: wape(each.forecasts(load, steps, begin)[judged], came) for each in compared}
        yield ErrorRow(
            name,
            ahead_h,
            found,
            wape(served.said[judged], came),
            wape(with_trees.said[judged], came),
            coverage(served.upper[judged], came),
            dict(Counter(served.by)),
            asked,
        )


def error_table(rows: Sequence[ErrorRow]) -> Table:
    """For people."""
    table = Table("WAPE, %", *(f"{row.load}, {row.ahead_h} h" for row in rows), texts=1)
    for name in rows[0].wape:
        table.add(name, *(f"{row.wape[name]:.2f}" for row in rows))
    table.add("Millpond", *(f"{row.millpond:.2f}" for row in rows))
    table.add("with trees", *(f"{row.with_trees:.2f}" for row in rows))
    table.add("asked", *(f"{row.asked:.2f} {'met' if row.millpond <= row.asked else 'MISSED'}" for row in rows))
    table.add("bound met", *(f"{row.bound_met:.1%}" for row in rows))
    return table


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """What a rule for replicas came to in a span."""

    days: str
    rule: str
    result: WaitScore


def services_ahead(folder: Path) -> Iterator[ServiceRow]:
    """Rules without and with forecasts, in both spans."""
    requests = requests_of(folder)
    demand = demand_of(requests)
    nothing = np.zeros(len(demand.values))
    rules = [(f"load of {down_after / 60:g} min", nothing, down_after) for down_after in (600.0, 1_200.0, 1_800.0)]
    rules += [(f"load of 20 min, ahead {part:g}", ahead_of(demand, part), 1_200.0) for part in (0.7, 0.75, 0.8)]
    for days, first, last in SERVICE_SPANS:
        for rule, ahead, down_after in rules:
            note(f"playing {days}, {rule}")
            span = (first * DAY_S, min(last * DAY_S, (len(demand.values) - 1) * demand.step_s))
            yield ServiceRow(days, rule, play_service(requests, ahead, down_after, span))


def service_table(rows: Sequence[ServiceRow]) -> Table:
    """For people."""
    table = Table("days", "rule", "wait > 30 s, %", "replica hours", texts=2)
    for row in rows:
        table.add(row.days, row.rule, f"{row.result.late:.2f}", f"{row.result.replica_hours:.0f}")
    return table


def power_off(demand: LoadSeries, window: tuple[str, str], rules: Sequence[PowerSavingRule]) -> Iterator[Row]:
    """The peers, then rules of the server."""
    name = f"{window[0]} to {window[1]}"
    yield from peers(demand, window, name)
    for rule in rules:
        note(f"playing {name}, {describe(rule)}")
        found = play(demand, NODES, (instant(window[0]), instant(window[1])), rule)
        yield Row(name, describe(rule), found)


def peers(demand: LoadSeries, window: tuple[str, str], name: str) -> Iterator[Row]:
    """CES and time-outs, on the most of each ten minutes; in a gap, demand stays as it was."""
    by_step = demand.values.reshape(-1, STEP_MINUTES)
    known = ~np.isnan(by_step).all(axis=1)
    steps = np.full(len(by_step), np.nan)
    steps[known] = np.minimum(NODES, np.nanmax(by_step[known], axis=1))
    filled = steps[np.maximum.accumulate(np.where(known, np.arange(len(steps)), 0))]
    first, last, fitted = (
        int((instant(text) - demand.begin) / (STEP_MINUTES * demand.step_s)) for text in (*window, CES_FITTED_UNTIL)
    )
    forecast = ces_forecast(steps, fitted)
    on, woken = ces(filled[first:last], forecast[first:last], NODES)
    yield Row(name, "CES, rebuilt", score(steps[first:last], on, on, NODES, woken, STEP_MINUTES))
    for idle, spare in TIME_OUTS:
        on, woken = time_out(filled[:last], first, idle, spare, NODES)
        what = f"time-out {idle * STEP_MINUTES // 60} h, {spare} spare"
        yield Row(name, what, score(steps[first:last], on, on, NODES, woken, STEP_MINUTES))


def describe(rule: PowerSavingRule) -> str:
    """A rule of the server in a few words."""
    return f"Millpond, cover {rule.cover:g}, idle {rule.idle_s / 3_600:g} h"


def verdict(result: PowerScore) -> str:
    """Whether a rule reaches what was asked."""
    met = result.off >= LEAST_OFF and result.short_a_day <= MOST_SHORT and result.woken_a_day <= MOST_WOKEN
    return "met" if met else "MISSED"


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR", help="the folder of the public traces")
    parser.add_argument("--only", choices=("error", "power-off", "replicas"), help="measure this alone")
    parser.add_argument("--choose", action="store_true", help="play all rules that were chosen from")
    options = parser.parse_args(arguments)
    found = list(errors(options.traces)) if options.only in (None, "error") else []
    services = list(services_ahead(options.traces)) if options.only in (None, "replicas") else []
    rows: list[Row] = []
    if options.only in (None, "power-off"):
        demand = philly_nodes(options.traces)
        rows += power_off(demand, CHOSEN_ON, CHOICES if options.choose else (RULE,))
        rows += power_off(demand, JUDGED_ON, (RULE,))
    lines: list[Table | str] = [error_table(found)] if found else []
    lines += power_table(rows) if rows else []
    lines += [service_table(services)] if services else []
    kinds = {"errors": found, "power_off": rows, "replicas_ahead": services}
    emit({kind: [asdict(row) for row in each] for kind, each in kinds.items()}, options.json, lines)


def power_table(rows: Sequence[Row]) -> list[Table | str]:
    """For people."""
    table = Table("window", "rule", "off %", "short/day", "steps %", "woken/day", "", texts=2)
    for row in rows:
        is_judged = row.window.startswith(JUDGED_ON[0]) and row.rule == describe(RULE)
        figures = (f"{row.result.off:.1f}", f"{row.result.short_a_day:.2f}", f"{row.result.steps_short:.2f}")
        table.add(
            row.window, row.rule, *figures, f"{row.result.woken_a_day:.0f}", verdict(row.result) if is_judged else ""
        )
    return [table, f"asked: {LEAST_OFF:g} % off, at most {MOST_SHORT:g} short and {MOST_WOKEN:g} woken a day"]


if __name__ == "__main__":
    main()
