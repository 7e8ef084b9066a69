"""Empty nodes that stay on by a forecast: what the server learns and keeps, and what people see of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from api_world import Api

from millpond.model.hardware.node_power import PowerSavingRule
from millpond.server.monitoring.time_series.load_history import NODE_DEMAND, LoadHistory
from millpond.server.operations.spare_nodes import SpareNodes

pytestmark = pytest.mark.usefixtures("saved_daily")

DAY_S = 86_400.0
BEGIN = 20_000 * DAY_S
RULE = PowerSavingRule(spare=2, cover=0.98)


def live(spares: SpareNodes, days: float, begin: float = BEGIN, rule: PowerSavingRule = RULE) -> int:
    """A pool where a gang of six comes each quarter of an hour, looked at each minute; the spare at the end."""
    found = 0
    for minute in range(int(days * 1_440)):
        demand = 10 if minute % 15 < 5 else 4
        found = spares.rules(begin + minute * 60.0, {"default": rule}, {"default": demand})["default"].spare
    return found


@pytest.mark.long
def test_the_fixed_spare_holds_until_a_forecast_has_shown_its_worth(api: Api) -> None:
    spares = SpareNodes(api.store.time_series)
    assert live(spares, 2.9) == 2
    (info,) = spares.latest
    assert info.no_forecast == "the history is too short: 2.9 of 3 days"
    assert live(spares, 0.3, BEGIN + 2.9 * DAY_S) == 6
    (info,) = spares.latest
    assert (info.spare, info.tested_days, info.no_forecast) == (6, 1, "")
    assert info.skill is not None
    assert info.skill > 0.5


def test_what_was_learnt_is_there_after_a_restart_and_minutes_without_a_server_are_a_gap(api: Api) -> None:
    first = SpareNodes(api.store.time_series)
    live(first, 3.5)
    end = BEGIN + 3.5 * DAY_S
    first.save(end)
    assert live(SpareNodes(api.store.time_series), 0.01, end + 7_200.0) == 6
    history = LoadHistory(api.store.time_series, NODE_DEMAND)
    missing = np.isnan(history.series("default", end + 60.0).values)
    assert missing[-2:].tolist() == [False, True]


def test_history_is_kept_for_a_fortnight(api: Api) -> None:
    history = LoadHistory(api.store.time_series, NODE_DEMAND)
    for day in range(40):
        history.note(BEGIN + day * DAY_S, {"default": 1})
    kept = api.store.time_series.between("node-demand", int(DAY_S), 0.0, BEGIN + 50 * DAY_S)
    assert [row.at for row in kept] == [BEGIN + day * DAY_S for day in range(25, 40)]


@pytest.mark.long
def test_a_clock_that_is_set_a_year_forward_for_a_while_takes_no_history(api: Api) -> None:
    store = api.store.time_series
    live(SpareNodes(store), 3.5)
    end = BEGIN + 3.5 * DAY_S
    LoadHistory(store, NODE_DEMAND).note(end + 365 * DAY_S, {"default": 4})
    history = LoadHistory(store, NODE_DEMAND)
    history.note(end + 366 * DAY_S, {"default": 4})
    history.note(end, {"default": 7})
    for each in (history, LoadHistory(store, NODE_DEMAND)):
        values = each.series("default", end + 60.0).values
        assert values[-1] == 7.0
        assert (~np.isnan(values)).sum() > 3 * 1_440


def test_a_rule_without_a_part_to_cover_learns_nothing(api: Api) -> None:
    spares = SpareNodes(api.store.time_series)
    assert live(spares, 4.0, rule=replace(RULE, cover=None)) == 2
    (info,) = spares.latest
    assert (info.cover, info.no_forecast) == (None, "")
    spares.save(BEGIN + 4 * DAY_S)
    assert api.store.time_series.between("node-demand", int(DAY_S), 0.0, BEGIN + 5 * DAY_S) == []


def test_people_see_the_spare_with_what_its_forecast_is_worth(api: Api) -> None:
    spares = SpareNodes(api.store.time_series)
    api.service.machines.spares = lambda: list(spares.latest)
    assert api.client.get("/api/v1/nodes").json()["spares"] == []
    live(spares, 3.5)
    (info,) = api.client.get("/api/v1/nodes").json()["spares"]
    assert (info["pool"], info["spare"], info["cover"], info["tested_days"]) == ("default", 6, 0.98, 1)
