"""What forecasts are worth on public series: nodes switched off by the rises that are forecast, beside two peers.

*Power-off.* Nodes of Philly in use, 420 in all. The server's planner switches them with the spare that is forecast from
the minutes before (docs/forecasts.md). A node takes five minutes to boot and draws power meanwhile. The peers are
rebuilt as published, in steps of ten minutes: what they wake is there in the next step, and draws nothing before. Each
row says

- *off*: which part of the nodes that nobody needed drew no power,
- *short*: how many nodes were missing, the most of each ten minutes, summed up over a day, and *steps*: in how many of
  these ten minutes any were missing,
- *woken*: how many nodes were switched on in a day.

Chosen on 3 to 16 November: of a part of 0.95, 0.98 and 0.99, and 1, 2 and 3 hours of idle time, what leaves most nodes
off with at most 50 woken a day, and 0.39 of the nodes short that CES has there. Judged on 17 to 30 November.
``--choose`` prints all nine.

    python benchmarks/forecasts.py --traces DIR [--choose] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from load_series import instant, philly_nodes
from millpond.forecasting.series import LoadSeries
from millpond.model.hardware.node_power import PowerSavingRule
from power_off_peers import ces, ces_forecast, time_out
from powered_pool import PowerScore, play, score
from reporting import Table, command_line, emit, note, program

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
CES_FITTED_UNTIL = "2017-11-01"
TIME_OUTS = ((36, 10), (6, 20))
"""Steps of idleness, and spare nodes."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a rule came to in a window."""

    window: str
    rule: str
    result: PowerScore


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
    parser.add_argument("--choose", action="store_true", help="play all rules that were chosen from")
    options = parser.parse_args(arguments)
    demand = philly_nodes(options.traces)
    rows = list(power_off(demand, CHOSEN_ON, CHOICES if options.choose else (RULE,)))
    rows += power_off(demand, JUDGED_ON, (RULE,))
    table = Table("window", "rule", "off %", "short/day", "steps %", "woken/day", "", texts=2)
    for row in rows:
        is_judged = row.window.startswith(JUDGED_ON[0]) and row.rule == describe(RULE)
        figures = (f"{row.result.off:.1f}", f"{row.result.short_a_day:.2f}", f"{row.result.steps_short:.2f}")
        table.add(
            row.window, row.rule, *figures, f"{row.result.woken_a_day:.0f}", verdict(row.result) if is_judged else ""
        )
    asked = f"asked: {LEAST_OFF:g} % off, at most {MOST_SHORT:g} short and {MOST_WOKEN:g} woken a day"
    emit({"power_off": [asdict(row) for row in rows]}, options.json, [table, asked])


if __name__ == "__main__":
    main()
