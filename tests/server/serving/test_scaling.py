"""How many replicas a service gets: the rule, and that it reaches the scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_world import Clock, Server, World

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.forecasting.series import NoForecast
from millpond.node.task.records import TaskId
from millpond.server.monitoring.time_series.load_history import REPLICA_DEMAND, LoadHistory
from millpond.server.serving.autoscaler import Autoscaler, Load, ReplicaTarget, desired, wanted_replicas
from millpond.server.serving.proxy.endpoints import TaskEndpoint
from millpond.server.serving.proxy.load_balancer import Balancer
from millpond.server.serving.proxy.request_meter import ProxyMeter
from millpond.server.serving.replica_counts import Sizing
from millpond.server.serving.replica_forecasts import ReplicaForecast, ReplicaForecasts
from millpond.server.sessions.task_routes import TaskRoute
from millpond.specs.errors import SpecError
from millpond.specs.job.job_spec import check_job
from millpond.specs.job.serving import Scale

pytestmark = pytest.mark.usefixtures("saved_daily")

SCALE = Scale(requests_per_s=10.0, open_requests=4.0, latency="500ms")


@pytest.mark.parametrize(
    ("load", "replicas", "wanted"),
    [
        (Load(0.0, 0.0, 0), 3, 1),
        (Load(30.0, 0.1, 0), 3, 3),
        (Load(32.0, 0.1, 0), 3, 3),
        (Load(45.0, 0.1, 0), 3, 5),
        (Load(10.0, 1.0, 0), 3, 6),
        (Load(10.0, 0.1, 20), 3, 5),
        (Load(45.0, 1.0, 40), 3, 10),
        (Load(10.0, 0.1, 0), 3, 1),
    ],
)
def test_the_figure_that_asks_for_most_replicas_wins(load: Load, replicas: int, wanted: int) -> None:
    assert wanted_replicas(SCALE, load, replicas)[0] == wanted


def test_a_service_whose_requests_hang_keeps_its_replicas_until_it_is_known_how_long_they_take() -> None:
    scale = Scale(latency="5s")
    assert wanted_replicas(scale, Load(0.0, 0.0, 3), 4) == (
        4,
        "requests are open, and none has ended since the last look",
    )
    assert wanted_replicas(scale, Load(0.2, 30.0, 3), 4)[0] == 24
    assert wanted_replicas(scale, Load(0.0, 0.0, 0), 4)[0] == 1


def test_the_use_of_cards_counts_where_it_is_measured() -> None:
    scale = Scale(device_use="60%", open_requests=4)
    assert wanted_replicas(scale, Load(0.0, 0.0, 4, 900.0), 2) == (3, "cards 90 % in use, 60 % wished")
    assert wanted_replicas(scale, Load(0.0, 0.0, 4, 100.0), 2)[0] == 1
    assert wanted_replicas(scale, Load(0.0, 0.0, 8), 2)[0] == 2, "unknown use asks for nothing"


wishes = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50)), min_size=1).map(
    lambda pairs: [ReplicaTarget(at, replicas) for at, replicas in sorted(pairs)]
)


@given(wishes=wishes, low=st.integers(1, 10), more=st.integers(0, 10))
def test_it_goes_up_at_once_down_only_after_a_while_and_never_out_of_bounds(wishes, low, more) -> None:
    now, bounds = wishes[-1].at, (low, low + more)
    wanted = desired(wishes, now, 30.0, bounds).replicas
    assert bounds[0] <= wanted <= bounds[1]
    assert wanted >= min(wishes[-1].replicas, bounds[1])
    assert wanted >= min(max(each.replicas for each in wishes if each.at >= now - 30.0), bounds[1])


def test_of_wishes_for_as_many_replicas_the_latest_says_why() -> None:
    at_start = ReplicaTarget(0.0, 1, "fewer have not been enough for 5 minutes yet")
    assert desired([at_start, ReplicaTarget(0.0, 1, "no load")], 0.0, 300.0, (1, 4)).why == "no load"
    more = ReplicaTarget(5.0, 2, "20 requests a second")
    assert desired([at_start, more, ReplicaTarget(9.0, 1, "no load")], 9.0, 300.0, (1, 4)).why == more.why


NOWHERE = LocalTaskAccess(Path("/nowhere"))


def place(number: int) -> TaskEndpoint:
    """Where one replica would serve."""
    return TaskEndpoint(TaskId("web", 1, number), TaskRoute(TaskId("web", 1, number), 20_000 + number, NOWHERE), "")


class Measures:
    """What a proxy would have measured."""

    def __init__(self) -> None:
        self.open = 0
        self.used_at: float | None = None
        self.at_the_door = False

    def load(self, job: str, now: float) -> Load:
        return Load(0.0, 0.0, self.open)

    def last_used(self, job: str, now: float) -> float | None:
        if self.at_the_door:  # it comes just after the autoscaler has looked
            self.open, self.at_the_door = 1, False
            return self.used_at
        return now if self.open else self.used_at

    def forget(self, job: str) -> None:
        """Nothing is kept."""


class Scaled:
    """A service on a server whose autoscaler looks when it is told to."""

    def __init__(self, tmp_path: Path, tasks: dict[str, int], scale: dict[str, Any], cards: float = 0) -> None:
        self.clock = Clock()
        self.set_by = 0.0
        """By how many seconds the wall clock was set forward."""
        self.server = Server(tmp_path, World(), self.clock)
        fields = {"kind": "service", "gpus": cards, "tasks": tasks, "serve": {"scale": scale}}
        self.server.submit("web", **fields)
        self.server.turn(2)
        self.server.scheduler.start()
        self.measures = Measures()
        self.balancer = Balancer()
        self.use: dict[str, int] = {}
        file = check_job({"command": "work", **fields}).file
        sizing = Sizing(self.server.loop, self.balancer, self.clock)
        self.scaler = Autoscaler(
            self.server.loop,
            sizing,
            lambda _: file,
            self.measures,
            lambda devices: {name: self.use[""] for name in devices if self.use},
            ReplicaForecasts(self.server.store.time_series),
            lambda: self.clock() + self.set_by,
            self.clock,
        )

    def running_after(self, seconds: float) -> int:
        """How many replicas run after so long, and a look."""
        self.clock.now += seconds
        self.scaler.look()
        for _ in range(4):
            self.server.loop.query(lambda core: None).result(60)
        return sum(task.job == "web" for task in self.server.world.running)


def lived_through(service: Scaled, days: int) -> None:
    """A load that asks for three replicas for an hour of each day, which begins in half an hour; else for one."""
    history, now = LoadHistory(service.server.store.time_series, REPLICA_DEMAND), service.clock.now
    for at in range(int(now - days * 86_400), int(now), 600):
        history.note(at, {"web": 3 if 1_800 <= (at - now) % 86_400 < 5_400 else 1})
    history.save(now)


AHEAD = {"open_requests": 2, "down_after": "60s", "ahead": "10m"}


@pytest.mark.long
def test_replicas_are_on_their_way_before_the_load_of_each_day_comes(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 4}, AHEAD)
    service.clock.now += 12 * 86_400.0
    lived_through(service, 10)
    assert service.running_after(1.0) == 1
    assert service.running_after(900.0) == 3


def test_without_history_enough_replicas_follow_the_load_as_ever(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 4}, AHEAD)
    service.clock.now += 12 * 86_400.0
    lived_through(service, 7)
    assert service.running_after(901.0) == 1
    service.measures.open = 5
    assert service.running_after(5.0) == 3


def test_a_forecast_says_by_whom_it_is_and_what_it_was_worth(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 4}, AHEAD)
    service.clock.now += 12 * 86_400.0
    lived_through(service, 10)
    forecasts = ReplicaForecasts(service.server.store.time_series)
    now = service.clock.now + 901.0
    found = forecasts.ahead(now, "web", 1, 600.0)
    assert isinstance(found, ReplicaForecast)
    assert (found.replicas, found.why) == (
        3,
        "so many are forecast to be needed in 10 minutes (as a day before; met 100% in 7 days, skill 0.86)",
    )
    assert forecasts.ahead(now, "other", 1, 600.0) == NoForecast("it is being made")
    assert forecasts.ahead(now + 5.0, "other", 1, 600.0) == NoForecast("the history is too short: 0.0 of 8 days")


def test_what_the_rule_of_a_service_asks_for_is_told_with_the_forecast_and_its_worth(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 2}, AHEAD)
    service.clock.now += 12 * 86_400.0
    lived_through(service, 10)
    service.running_after(901.0)
    told = service.scaler.latest["web"]
    assert (told.wanted, told.fewest, told.most) == (2, 1, 2)
    assert (told.ahead_s, told.forecast, told.by) == (600.0, 3, "as a day before")
    assert (told.coverage, told.skill) == (pytest.approx(1.0, abs=0.005), pytest.approx(0.86, abs=0.005))


def test_it_is_told_why_nothing_is_forecast(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 2}, AHEAD)
    service.clock.now += 12 * 86_400.0
    lived_through(service, 7)
    service.running_after(901.0)
    told = service.scaler.latest["web"]
    assert (told.forecast, told.no_forecast) == (None, "the history is too short: 7.0 of 8 days")


def test_nothing_is_told_of_a_forecast_that_no_rule_asks_for(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 2}, {"open_requests": 2})
    service.running_after(1.0)
    told = service.scaler.latest["web"]
    assert (told.wanted, told.ahead_s, told.no_forecast) == (1, None, "")


def test_a_service_under_load_grows_and_shrinks_again_after_a_while(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 3}, {"open_requests": 2, "down_after": "60s"})
    service.measures.open = 5
    assert service.running_after(0) == 3
    service.measures.open = 0
    assert service.running_after(30) == 3
    assert service.running_after(45) == 1
    service.server.scheduler.close()


def test_what_is_enough_is_learnt_for_a_while_before_a_service_shrinks(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 3, "min": 1, "max": 3}, {"open_requests": 2, "down_after": "60s"})
    assert service.running_after(5) == 3
    assert service.running_after(50) == 3
    assert service.running_after(11) == 1
    service.server.scheduler.close()


def test_a_replica_that_is_one_too_many_finishes_what_it_was_asked_and_gets_nothing_new(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 2, "min": 1, "max": 2}, {"open_requests": 2, "down_after": "0s"})
    assert len(service.server.world.running) == 2
    places = [place(number) for number in range(2)]
    with service.balancer.request_at(places[1]):
        assert service.running_after(5) == 2
        assert service.balancer.order(places) == places[:1]
        with pytest.raises(ConnectionError), service.balancer.request_at(places[1]):
            raise AssertionError("it takes requests")
        assert service.running_after(5) == 2
    assert service.running_after(5) == 1
    assert service.balancer.order(places) == places[:1], "a request may have seen the other while it ran"
    service.server.scheduler.close()


def test_one_that_does_not_finish_in_time_is_ended_all_the_same(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 2, "min": 1, "max": 2}, {"open_requests": 2, "down_after": "0s"})
    with service.balancer.request_at(place(1)):
        assert service.running_after(5) == 2
        assert service.running_after(31) == 1
    service.server.scheduler.close()


def test_busy_cards_make_a_service_grow(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 3}, {"device_use": "50%"}, cards=1)
    assert service.running_after(5) == 1, "nothing is known of its cards"
    service.use[""] = 1000
    assert service.running_after(5) == 2
    service.server.scheduler.close()


def test_a_service_nobody_asks_goes_to_zero_unless_somebody_comes_at_the_last_moment(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"min": 0, "max": 2}, {"idle_after": "60s"})
    assert service.running_after(0) == 1
    assert service.running_after(59) == 1
    service.measures.used_at = service.clock.now
    assert service.running_after(30) == 1
    service.measures.at_the_door = True
    assert service.running_after(31) == 1
    service.measures.open, service.measures.used_at = 0, None
    assert service.running_after(1) == 0
    info = service.server.loop.job_cache.get("web")
    assert info is not None
    assert (info.state, info.scaled_to_zero) == ("queued", "no request for 1 minute; the next one wakes it")
    service.server.scheduler.close()


@pytest.mark.parametrize("set_by", [-7_200.0, 7_200.0])
def test_a_clock_that_is_set_neither_ends_replicas_nor_keeps_them(tmp_path: Path, set_by: float) -> None:
    service = Scaled(tmp_path, {"min": 0, "max": 3}, {"open_requests": 2, "down_after": "30s", "idle_after": "60s"})
    service.measures.open = 6
    assert service.running_after(1) == 3
    service.measures.open, service.measures.used_at = 0, service.clock.now
    service.set_by = set_by
    assert service.running_after(10) == 3
    assert service.running_after(30) == 1
    assert service.running_after(21) == 0
    service.server.scheduler.close()


def test_a_service_has_other_bounds_in_its_hours_and_does_not_rest_in_them(tmp_path: Path) -> None:
    hours = [{"window": "01:00-02:00", "min": 2}]
    service = Scaled(tmp_path, {"min": 0, "max": 3}, {"idle_after": "60s", "hours": hours})
    assert service.running_after(0) == 1
    assert service.running_after(61) == 0
    assert service.running_after(3_600 - service.clock.now) == 2
    assert service.running_after(3_000) == 2
    assert service.running_after(1_000) == 0
    service.server.scheduler.close()


def test_hours_alone_bring_more_replicas_and_take_them_away_again(tmp_path: Path) -> None:
    hours = [{"window": "01:00-02:00", "min": 3}]
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 3}, {"hours": hours})
    assert service.running_after(10) == 1
    assert service.running_after(3_600) == 3
    assert service.running_after(3_600) == 1
    service.server.scheduler.close()


def test_a_service_that_cannot_be_looked_at_keeps_no_other_from_being_scaled(tmp_path: Path) -> None:
    service = Scaled(tmp_path, {"desired": 1, "min": 1, "max": 3}, {"open_requests": 2})
    odd = service.server.submit("odd", kind="service", tasks={"min": 1, "max": 2})  # newer, and looked at first
    odd.answer.result(60)
    service.measures.open = 5
    service.scaler.is_spoken_for = lambda job: job == "odd" and 1 / 0 > 0
    with pytest.raises(ZeroDivisionError):
        service.scaler.look()
    service.scaler.is_spoken_for = lambda _: True
    assert service.running_after(0) == 3
    service.server.scheduler.close()


def test_the_loss_of_one_replica_leaves_the_others_alone() -> None:
    assert check_job({"command": "x", "kind": "service", "tasks": 3}).to_job("a").gang_rule.value == "restart-task"
    assert check_job({"command": "x", "tasks": 3}).to_job("a").gang_rule.value == "all"


def test_only_services_are_scaled_and_only_by_a_target() -> None:
    with pytest.raises(SpecError, match="only a service"):
        check_job({"command": "x", "kind": "dev", "serve": {"scale": {"latency": "1s"}}})
    with pytest.raises(SpecError, match="without a target"):
        check_job({"command": "x", "kind": "service", "serve": {"scale": {"down_after": "1s"}}})
    with pytest.raises(SpecError, match="serves nothing"):
        check_job({"command": "x", "serve": {}})
    with pytest.raises(SpecError, match="without roles can go without tasks"):
        check_job({"command": "x", "tasks": {"min": 0, "max": 2}})
    hours = [{"window": "01:00-02:00", "min": 3}]
    with pytest.raises(SpecError, match="stay within the bounds"):
        check_job({"command": "x", "kind": "service", "tasks": 2, "serve": {"scale": {"hours": hours}}})
    with pytest.raises(SpecError, match="idle_after has no effect"):
        check_job({"command": "x", "kind": "service", "serve": {"scale": {"idle_after": "1m"}}})


def test_a_service_that_may_go_without_replicas_begins_with_one_and_holds_requests() -> None:
    file = check_job({"command": "x", "kind": "service", "tasks": {"min": 0, "max": 4}}).file
    (role,) = check_job({"command": "x", "kind": "service", "tasks": {"min": 0, "max": 4}}).to_job("a").roles
    assert (role.minimum, role.desired, role.maximum) == (1, 1, 4)
    assert file.scale is not None
    assert file.hold is not None
    assert (file.may_scale_to_zero, file.scale.idle_after, file.hold.requests) == (True, 300.0, 100)
    assert check_job({"command": "x", "kind": "service"}).file.hold is None


def test_replicas_need_not_wait_for_each_other() -> None:
    (role,) = check_job({"command": "x", "kind": "service", "tasks": 3}).to_job("a").roles
    assert (role.minimum, role.desired, role.maximum) == (1, 3, 3)


def test_requests_go_to_the_replica_with_the_fewest_open_ones_and_idle_ones_take_turns() -> None:
    places = [place(number) for number in range(3)]
    balancer = Balancer()
    taken = []
    for _ in range(6):
        first = balancer.order(places)[0]
        with balancer.request_at(first):
            taken.append(first.task.task)
    assert taken == [0, 1, 2, 0, 1, 2]
    with balancer.request_at(places[0]), balancer.request_at(places[1]):
        assert balancer.order(places)[0] is places[2]


def test_the_meter_tells_what_happened_since_it_was_last_asked() -> None:
    meter = ProxyMeter(lambda: 101.0)
    assert meter.load("web", 100.0) == Load(0.0, 0.0, 0)
    with meter.request("web"):
        assert meter.load("web", 102.0).open_requests == 1
    assert meter.load("web", 104.0).requests_per_s == 0.5
