"""Nodes of the simulated world that are switched off while nobody needs them, by the planner of the server.

Hooks work at once and never fail: a node is gone when it is switched off, and joins ``boot_s`` after it is switched on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from millpond.forecasting.rises import SpareForecast, forecast_spare
from millpond.forecasting.series import LoadSeries
from millpond.model.events import Event, NodeJoined, NodeLost, NodePowerChanged
from millpond.model.hardware.node_power import NodePowerState, PowerSavingRule
from millpond.model.hardware.nodes import Node
from millpond.model.units import DAY_S, HOUR_S
from millpond.scheduling.nodes.power_overview import PowerOverview
from millpond.scheduling.nodes.power_planner import PowerPlanner

LOOK_EVERY_S: Final = 60.0
"""A server looks more often; a node that is needed boots so much later here at the most."""
_FORECAST_EVERY_S: Final = HOUR_S
_HISTORY_S: Final = 15 * DAY_S


class SimulatedNodePower:
    """Looks after the nodes, as often as its owner passes on the clock.

    Args:
        rules: by pool; nodes of others are never switched.
        overview: of the scheduler.
        handle: takes what happens.
        begin: when the clock begins, in seconds.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        rules: Mapping[str, PowerSavingRule],
        overview: Callable[[], PowerOverview],
        handle: Callable[[Event], None],
        begin: float,
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._configured = rules
        self._overview = overview
        self._handle = handle
        self._planner = PowerPlanner()
        self._booting: list[tuple[float, str]] = []
        self._next_look = begin
        self._next_forecast = begin
        self._demands: dict[str, list[int]] = {pool: [] for pool in rules}
        self._rules = dict(rules)

    def next_at(self) -> float:
        """When the next node joins, or the nodes are looked at."""
        return min(self._next_look, self._booting[0][0]) if self._booting else self._next_look

    def let_join(self, now: float) -> bool:
        """Nodes that have booted join; whether there are any."""
        before = len(self._booting)
        while self._booting and self._booting[0][0] <= now:
            self._handle(NodeJoined(now, self._nodes[heapq.heappop(self._booting)[1]]))
        return len(self._booting) < before

    def look(self, now: float) -> None:
        """Switch the nodes that it is time for. What could start now has started: else it would lose its nodes."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        overview = self._overview()
        self._follow_demand(now, overview)
        for step in self._planner.plan(now, overview.nodes, overview.wanted, self._rules):
            self._switch(now, step.node, step.why, on=step.on)

    def _switch(self, now: float, name: str, why: str, *, on: bool) -> None:
        if on:
            ready_at = now + self._configured[self._nodes[name].pool].boot_s
            self._handle(NodePowerChanged(now, name, NodePowerState.BOOTING, why, ready_at))
            heapq.heappush(self._booting, (ready_at, name))
            return
        self._handle(NodePowerChanged(now, name, NodePowerState.DRAINING, why))
        self._handle(NodePowerChanged(now, name, NodePowerState.OFF))
        self._handle(NodeLost(now, name))

    def _follow_demand(self, now: float, overview: PowerOverview) -> None:
        """Keep how many nodes are needed, and forecast the spare ones where a rule wants that."""
        for pool, demand in overview.demands(self._configured).items():
            self._demands[pool].append(demand)
        if now < self._next_forecast:
            return
        self._next_forecast = now + _FORECAST_EVERY_S
        for pool, rule in self._configured.items():
            if rule.cover is not None:
                behind = self._demands[pool][-int(_HISTORY_S / LOOK_EVERY_S) :]
                series = LoadSeries(now - len(behind) * LOOK_EVERY_S, LOOK_EVERY_S, np.array(behind, dtype=float))
                found = forecast_spare(series, rule.boot_s, rule.cover, rule.spare)
                self._rules[pool] = replace(rule, spare=found.nodes) if isinstance(found, SpareForecast) else rule
