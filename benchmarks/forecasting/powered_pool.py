"""A pool whose nodes are switched by the planner of the server, played on a series of nodes in demand by the minute.

Of a series of counts it is not known which node has the work: what comes goes to the first empty node that is on, what
ends leaves the last one. Nodes are looked at each minute, and the spare is forecast each hour from what lies behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from millpond.forecasting.rises import SpareForecast, forecast_spare
from millpond.forecasting.series import LoadSeries
from millpond.model.hardware.node_power import NodePower, NodePowerState, PowerSavingRule
from millpond.model.units import DAY_S
from millpond.scheduling.nodes.power_planner import PowerCandidate, PowerPlanner

WARM_UP_S: Final = DAY_S / 2
HISTORY_S: Final = 15 * DAY_S
_FORECAST_EVERY_S: Final = 3_600.0
STEP_MINUTES: Final = 10


@dataclass(frozen=True, slots=True)
class PowerScore:
    """What a rule came to.

    Attributes:
        off: part of the idle nodes that drew nothing, in percent.
        steps_short: steps of ten minutes with too few nodes, in percent.
        short_a_day: nodes that were missing, the most of each step, summed up over a day.
        woken_a_day: nodes that were switched on.
    """

    off: float
    steps_short: float
    short_a_day: float
    woken_a_day: float


class PoweredPool:
    """All nodes are on and empty as it begins."""

    def __init__(self, total: int, rule: PowerSavingRule) -> None:
        self.rule = rule
        self.spare = rule.spare
        self.woken = 0
        self._planner = PowerPlanner()
        self._ready_at: dict[str, float] = {}
        self._nodes = {name: PowerCandidate(name, "", True, True, None) for name in map("n{:03}".format, range(total))}

    def look(self, now: float, demand: int) -> tuple[int, int]:
        """One look; returns how many nodes were on before it, and how many draw power after it."""
        for name in [name for name, at in self._ready_at.items() if at <= now]:
            del self._ready_at[name]
            self._nodes[name] = PowerCandidate(name, "", True, True, None)
        on = [node for node in self._nodes.values() if node.takes_work]
        self._fill(on, demand)
        missing = max(0, demand - len(on))
        asleep = [node.name for node in self._nodes.values() if not node.takes_work]
        booting_first = sorted(asleep, key=lambda name: name not in self._ready_at)
        wanted = dict.fromkeys(booting_first[:missing], "a job")
        rules = {"": replace(self.rule, spare=self.spare)}
        for step in self._planner.plan(now, list(self._nodes.values()), wanted, rules):
            self._switch(now, step.node, step.on)
        drawing = sum(node.takes_work for node in self._nodes.values()) + len(self._ready_at)
        return len(on), drawing

    def _fill(self, on: list[PowerCandidate], demand: int) -> None:
        more = demand - sum(not node.is_empty for node in on)
        due = [node for node in on if node.is_empty][:more] if more > 0 else []
        if more < 0:
            due = [node for node in on if not node.is_empty][more:]
        for node in due:
            self._nodes[node.name] = replace(node, is_empty=more < 0)

    def _switch(self, now: float, name: str, on: bool) -> None:
        state = NodePowerState.BOOTING if on else NodePowerState.OFF
        if on:
            self.woken += 1
            self._ready_at[name] = now + self.rule.boot_s
        power = NodePower(state, now, is_gone=True)
        self._nodes[name] = PowerCandidate(name, "", True, False, power)


def play(demand: LoadSeries, total: int, window: tuple[float, float], rule: PowerSavingRule) -> PowerScore:
    """Play a rule in a window; in a gap of the series, demand stays as it was."""
    pool = PoweredPool(total, rule)
    step_s, history = demand.step_s, demand.steps_in(HISTORY_S)
    first, last = (int((edge - demand.begin) / step_s) for edge in window)
    rows: list[tuple[float, int, int]] = []
    before, needed = 0, 0
    for index in range(first - demand.steps_in(WARM_UP_S), last):
        now = demand.begin + index * step_s
        if rule.cover is not None and now % _FORECAST_EVERY_S == 0:
            behind = LoadSeries(now - history * step_s, step_s, demand.values[max(0, index - history) : index])
            found = forecast_spare(behind, rule.boot_s, rule.cover, rule.spare)
            pool.spare = found.nodes if isinstance(found, SpareForecast) else rule.spare
        value = demand.values[index]
        needed = needed if np.isnan(value) else min(total, int(value))
        on, drawing = pool.look(now, needed)
        if index == first:
            before = pool.woken
        if index >= first:
            rows.append((value, on, drawing))
    needs, on_then, drew = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return score(np.minimum(needs, total), on_then, drew, total, pool.woken - before)


def score(needs: np.ndarray, on: np.ndarray, drew: np.ndarray, total: int, woken: int, minutes: int = 1) -> PowerScore:
    """What was missing and what was off.

    Args:
        needs: nodes in demand, NaN where that is not known.
        drew: nodes that drew power.
        minutes: of each entry.
    """
    known = ~np.isnan(needs)
    days = len(needs) * minutes / 1_440
    short = np.where(known, np.maximum(0.0, needs - on), 0.0)
    by_step = short.reshape(-1, STEP_MINUTES // minutes).max(axis=1)
    off = 100.0 * float((total - drew)[known].sum() / (total - needs)[known].sum())
    return PowerScore(off, 100.0 * float((by_step > 0).mean()), float(by_step.sum()) / days, woken / days)
