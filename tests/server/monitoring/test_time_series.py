"""The pool's own history: what is kept of a minute, how it grows coarser, what is bounded, and who reads what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from api_world import Api
from hypothesis import given
from hypothesis import strategies as st
from server_world import Clock, node

from millpond.model.events import QueueChanged
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.node.host.machine import Machine, describe_machine
from millpond.scheduling.nodes.views import DeviceUse, NodeFree, NodeView
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.time_series import figures
from millpond.server.monitoring.time_series.figures import (
    FIGURES,
    MOST_NODES,
    PARTS_OF_NODES,
    Look,
    Subject,
    look_at_cards,
    merged,
    part_of,
)
from millpond.server.monitoring.time_series.reader import MOST_POINTS, TimeSeriesReader, TimeSpan
from millpond.server.monitoring.time_series.recorder import (
    RESOLUTIONS,
    RESOLUTIONS_OF_PARTS,
    Resolution,
    TimeSeriesRecorder,
)
from millpond.server.startup.background_workers import pool_standing
from millpond.server.store.statistics.time_series import SeriesRow
from millpond.server.store.store import Store
from millpond.specs.api.codec import from_json
from millpond.specs.api.reports.time_series import TimeSeriesInfo

MINUTE, HOUR, DAY = 60, 3_600, 86_400
NO_CARDS = Machine((), {})


def view(machine: Node, held_milli: int = 0) -> NodeView:
    """A machine each of whose cards has so much of it held."""
    uses = tuple(DeviceUse(device, 1000 - held_milli, 0, (), None, None) for device in machine.devices)
    return NodeView(machine, NodeFree(0, 0, 0), uses, (), None, False, (), 0, None)


class History:
    """A recorder whose pool holds as much as it is told, before a store."""

    def __init__(self, url: str) -> None:
        self.clock = Clock(100.0 * DAY)
        self.store = Store(url)
        self.held_milli = 0
        self.recorder = self.begun()
        self.reader = TimeSeriesReader(self.store.time_series, self.clock)

    def begun(self) -> TimeSeriesRecorder:
        """A recorder as after a start of the server."""
        telemetry = Telemetry(NO_CARDS, self.clock)
        return TimeSeriesRecorder(
            lambda: ([view(node(cards=2), self.held_milli)], []), telemetry, self.store.time_series, self.clock
        )

    def look(self, times: int = 1, every_s: int = MINUTE) -> None:
        for _ in range(times):
            self.recorder.look()
            self.clock.now += every_s

    def held(self, begin: float, end: float, step_s: float = 0.0) -> dict[float, float | None]:
        """Cards held, by instants that count from the 100th day."""
        info = self.reader.of(Subject.MODELS, TimeSpan(100 * DAY + begin, 100 * DAY + end, step_s))
        values = info.series[0].figures["held"] if info.series else []
        return {at - 100 * DAY: value for at, value in zip(info.at, values, strict=True)}


@pytest.fixture
def history(database_url: str) -> Iterator[History]:
    made = History(database_url)
    yield made
    made.store.close()


def test_minutes_become_coarser_rows_and_the_end_of_a_span_comes_from_the_finer_ones(history: History) -> None:
    for held in (0, 500, 1000):
        history.held_milli = held
        history.look(30)
    assert history.held(0, 90 * MINUTE, MINUTE)[31 * MINUTE] == 1.0
    assert history.held(0, 90 * MINUTE, HOUR) == {0.0: 0.5, 3600.0: 2.0}
    steps = {level.step_s: history.store.time_series.between("models", level.step_s, 0, 1e11) for level in RESOLUTIONS}
    assert [len(rows) for rows in steps.values()] == [90, 8, 1]
    assert steps[HOUR][0].samples == 60


def test_a_killed_server_goes_on_where_it_was_and_its_absence_is_a_gap(history: History) -> None:
    history.look(25)
    history.clock.now += 2 * HOUR
    history.recorder = history.begun()
    history.held_milli = 1000
    history.look(5)
    assert set(history.held(0, 3 * HOUR, 10 * MINUTE)) == {0.0, 600.0, 1200.0, 8700.0 // 600 * 600}
    assert history.held(0, 3 * HOUR, 10 * MINUTE)[600.0] == 0.0


def write_old_and_new(history: History, subject: str, levels: Sequence[Resolution]) -> None:
    """Of each level a row that is too old, one of now, and one that a clock has written that was ahead."""
    now = int(history.clock.now)
    for level in levels:
        ats = [now - level.kept_s - level.step_s, now - level.step_s, now + 90 * DAY]
        history.store.time_series.write([SeriesRow(subject, level.step_s, at, 1, {}) for at in ats])


def require_bounded(history: History, subject: str, levels: Sequence[Resolution]) -> None:
    now = history.clock.now
    for level in levels:
        rows = history.store.time_series.between(subject, level.step_s, 0, 1e11)
        assert now - HOUR - level.kept_s <= rows[0].at <= rows[-1].at <= now


def test_what_is_too_old_is_dropped_and_so_is_what_a_wrong_clock_wrote(history: History) -> None:
    write_old_and_new(history, "models", RESOLUTIONS)
    history.look(3, HOUR)
    require_bounded(history, "models", RESOLUTIONS)


@pytest.mark.parametrize("leap_s", [800 * DAY, -800 * DAY, -2 * HOUR])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_wrong_for_some_minutes_takes_nothing_of_the_history(
    history: History, leap_s: float, is_restarted: bool
) -> None:
    history.look(90)
    history.clock.now += leap_s
    if is_restarted:
        history.recorder = history.begun()
    history.look(3)
    history.clock.now -= leap_s
    history.look(2)
    assert len(history.held(0, 89.5 * MINUTE, MINUTE)) == 90
    assert [row.at for row in history.store.time_series.between("models", HOUR, 100 * DAY, 101 * DAY)] == [100 * DAY]


def test_a_span_that_goes_back_far_has_longer_steps_and_says_so(history: History) -> None:
    def step(back_s: float, wanted_s: float = 0.0) -> int:
        now = history.clock.now
        return history.reader.of(Subject.MODELS, TimeSpan(now - back_s, now, wanted_s)).step_s

    assert step(DAY) == MINUTE
    assert step(DAY, 100) == 2 * MINUTE
    assert step(3 * DAY) == 10 * MINUTE
    assert step(20 * DAY) == HOUR
    assert step(300 * DAY) >= 300 * DAY / MOST_POINTS


def test_a_minute_is_the_mean_of_its_samples_and_what_is_not_measured_stays_unknown() -> None:
    samples = {
        "a-0": [DeviceSample("a-0", use_milli=0, power_w=100.0, temperature_c=40), DeviceSample("a-0", use_milli=1000)],
        "a-1": [DeviceSample("a-1", use_milli=1000, power_w=50.5, temperature_c=71)],
    }
    found = look_at_cards([view(node("a", 3), 250), view(node("b", 1))], lambda device: samples.get(device, []))
    of_model = dict(zip(FIGURES[Subject.MODELS], found[Subject.MODELS]["V100"], strict=True))
    assert of_model == {
        "cards": 4,
        "held": 0.75,
        "unhealthy": 0,
        "measured": 2,
        "computing": 1.5,
        "power_w": 150.5,
        "temperature_c": 71,
    }
    assert found[Subject.NODES]["b"][4:] == (None, None, None)


def test_a_card_that_others_use_is_not_unhealthy_in_the_history_as_in_the_metrics() -> None:
    made = node("a", 3)
    states = (DeviceHealth.OK, DeviceHealth.BUSY_ELSEWHERE, DeviceHealth.FAULTY)
    devices = tuple(replace(device, health=health) for device, health in zip(made.devices, states, strict=True))
    found = look_at_cards([view(replace(made, devices=devices))], lambda device: [])
    assert dict(zip(FIGURES[Subject.NODES], found[Subject.NODES]["a"], strict=True))["unhealthy"] == 1


def test_nodes_of_a_large_pool_are_kept_in_parts_and_of_very_many_those_that_joined_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "MOST_NODES_IN_PARTS", MOST_NODES + 2)
    nodes = [view(node(f"n{index}", 1)) for index in range(MOST_NODES + 3)]
    assert set(look_at_cards(nodes[:MOST_NODES], lambda device: [])) == {"models", "nodes"}
    found = look_at_cards(nodes, lambda device: [])
    assert set(found) == {"models", *PARTS_OF_NODES}, "parts without nodes have rows too"
    assert {name: part for part in PARTS_OF_NODES for name in found[part]} == {
        each.node.name: part_of(each.node.name) for each in nodes[:-1]
    }
    assert found["models"]["V100"][0] == MOST_NODES + 3


class LargePool(History):
    """One whose nodes are kept in parts while there are many of them."""

    nodes = MOST_NODES + 1

    def begun(self) -> TimeSeriesRecorder:
        def standing() -> tuple[list[NodeView], list[Any]]:
            return [view(node(f"n{index}", 1), self.held_milli) for index in range(self.nodes)], []

        return TimeSeriesRecorder(standing, Telemetry(NO_CARDS, self.clock), self.store.time_series, self.clock)

    def held_of(self, name: str, begin: float, end: float, step_s: float = 0.0) -> dict[float, float]:
        info = self.reader.of(Subject.NODES, TimeSpan(100 * DAY + begin, 100 * DAY + end, step_s), [name])
        if not info.series:
            return {}
        (series,) = info.series
        assert series.name == name
        values = zip(info.at, series.figures["held"], strict=True)
        return {at - 100 * DAY: value for at, value in values if value is not None}


@pytest.fixture
def large(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LargePool]:
    monkeypatch.setattr(figures, "MOST_NODES", 2)
    monkeypatch.setattr(LargePool, "nodes", 3)
    made = LargePool(database_url)
    yield made
    made.store.close()


@pytest.mark.long
def test_each_node_of_a_large_pool_has_minutes_of_the_last_hours_and_then_coarser_rows(large: LargePool) -> None:
    for held in (0, 500, 1000):
        large.held_milli = held
        large.look(12, 5 * MINUTE)
    day = large.held_of("n1", 0, 3 * HOUR)
    assert large.reader.of(Subject.NODES, TimeSpan(100 * DAY, 100 * DAY + 3 * HOUR), ["n1"]).step_s == 600
    assert (len(day), day[0], day[HOUR], day[3 * HOUR - 600]) == (18, 0.0, 0.5, 1.0)
    assert set(large.held_of("n2", 2.5 * HOUR, 3 * HOUR)) == {2.5 * HOUR + 5 * MINUTE * look for look in range(6)}
    assert large.held_of("n0", 0, 3 * HOUR, HOUR) == {0.0: 0.0, 3600.0: 0.5, 7200.0: 1.0}
    assert large.held_of("other", 0, 3 * HOUR) == {}
    assert large.reader.of(Subject.NODES, TimeSpan(100 * DAY, 100 * DAY + 3 * HOUR)).series == []


def test_what_is_kept_of_the_nodes_of_a_large_pool_is_bounded_by_time(large: LargePool) -> None:
    write_old_and_new(large, part_of("n1"), RESOLUTIONS_OF_PARTS)
    large.look(3, HOUR)
    require_bounded(large, part_of("n1"), RESOLUTIONS_OF_PARTS)


@pytest.mark.long
def test_a_pool_that_grows_and_shrinks_keeps_the_history_of_its_nodes(large: LargePool) -> None:
    for large.nodes in (2, 3, 2):
        large.look(12, 5 * MINUTE)
    hours = large.held_of("n1", 0, 3 * HOUR, HOUR)
    assert set(hours) == {hour * float(HOUR) for hour in range(3)}
    assert set(large.held_of("n2", 0, 3 * HOUR, HOUR)) == {1.0 * HOUR}


_FIGURE = st.none() | st.floats(0, 1000)
_LOOK = st.dictionaries(st.sampled_from("ab"), st.tuples(*[_FIGURE] * len(FIGURES[Subject.QUEUES])), max_size=2)


@given(st.lists(st.lists(_LOOK, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_figure_of_a_coarse_row_lies_within_those_it_was_made_of(groups: Sequence[Sequence[Look]]) -> None:
    finer = [merged(FIGURES[Subject.QUEUES], [(1, look) for look in looks]) for looks in groups]
    count, coarse = merged(FIGURES[Subject.QUEUES], finer)
    assert count == sum(len(looks) for looks in groups)
    for name, values in coarse.items():
        for column, value in enumerate(values):
            known = [
                figure
                for looks in groups
                for look in looks
                if name in look and (figure := look[name][column]) is not None
            ]
            assert (value is None) == (not known)
            if value is not None:
                assert min(known) - 0.01 <= value <= max(known) + 0.01


def test_the_api_gives_what_a_server_kept(api: Api) -> None:
    api.loop.notify([QueueChanged(0.0, Queue("vision", guarantee=Amount(3000)))])
    api.settled()
    api.job(api.submit(gpus=4, queue="vision").id)
    api.submit(gpus=1, queue="vision")
    api.submit(gpus=2, queue="vision", priority="background")
    api.settled()
    clock = api.service.overview._clock
    telemetry = Telemetry(describe_machine("1:V100-32GB"), clock)
    TimeSeriesRecorder(lambda: pool_standing(api.loop), telemetry, api.store.time_series, clock).look()
    info = from_json(TimeSeriesInfo, api.client.get("/api/v1/time-series?subject=queues").content)
    figures = {each.name: each.figures for each in info.series}["vision"]
    assert (figures["guaranteed"], figures["used"], figures["borrowed"]) == ([3.0], [4.0], [1.0])
    assert (figures["waiting_jobs"], figures["waiting"]) == ([2.0], [1.0]), "background work has no share in a queue"
    models = from_json(TimeSeriesInfo, api.client.get("/api/v1/time-series?step=600").content)
    assert (models.step_s, models.series[0].name, models.series[0].figures["held"]) == (600, "V100", [4.0])
    assert api.client.get("/api/v1/time-series?from=10&to=5").status_code == 422
    assert api.client.get("/api/v1/time-series?subject=moons").status_code == 422
    assert api.client.get("/api/v1/time-series?" + "&name=n" * 17).status_code == 422
    one = from_json(TimeSeriesInfo, api.client.get("/api/v1/time-series?subject=queues&name=vision&name=none").content)
    assert [each.name for each in one.series] == ["vision"]
    nodes = from_json(TimeSeriesInfo, api.client.get("/api/v1/time-series?subject=nodes&name=n1").content)
    assert [each.name for each in nodes.series] == ["n1"]
