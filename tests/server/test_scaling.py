"""How many replicas a service gets: the rule, and that it reaches the scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_world import Clock, Server, World

from millpond.node.records import TaskId
from millpond.server.proxy.balancing import Balancer
from millpond.server.proxy.metering import Meter
from millpond.server.proxy.places import Place
from millpond.server.scaling import Autoscaler, Load, Wish, desired, wish
from millpond.specs.errors import SpecError
from millpond.specs.job import check_job
from millpond.specs.serving import Scale

SCALE = Scale(requests_per_s=10.0, open_requests=4.0, latency=0.5)


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
    assert wish(SCALE, load, replicas) == wanted


wishes = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50)), min_size=1).map(
    lambda pairs: [Wish(at, replicas) for at, replicas in sorted(pairs)]
)


@given(wishes=wishes, low=st.integers(1, 10), more=st.integers(0, 10))
def test_it_goes_up_at_once_down_only_after_a_while_and_never_out_of_bounds(wishes, low, more) -> None:
    now, bounds = wishes[-1].at, (low, low + more)
    wanted = desired(wishes, now, 30.0, bounds)
    assert bounds[0] <= wanted <= bounds[1]
    assert wanted >= min(wishes[-1].replicas, bounds[1])
    assert wanted >= min(max(each.replicas for each in wishes if each.at >= now - 30.0), bounds[1])


def test_a_service_under_load_grows_and_shrinks_again_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    server = Server(tmp_path, World(), clock)
    scale = {"open_requests": 2, "down_after": "60s"}
    fields = {"kind": "service", "tasks": {"desired": 1, "min": 1, "max": 3}, "serve": {"scale": scale}}
    server.submit("web", **fields)
    server.turn(2)
    server.loop.start()
    loads = [Load(0, 0, 5), Load(0, 0, 0), Load(0, 0, 0)]
    file = check_job({"command": "work", **fields}).file
    scaler = Autoscaler(server.loop, lambda _: file, lambda *_: loads.pop(0), clock)

    def running_after(seconds: float) -> int:
        clock.now += seconds
        scaler.look()
        for _ in range(4):
            server.loop.ask(lambda core: None).result(5)
        return sum(task.job == "web" for task in server.world.running)

    assert running_after(0) == 3
    assert running_after(30) == 3
    assert running_after(45) == 1
    server.loop.close()


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


def test_requests_go_to_the_replica_with_the_fewest_open_ones_and_idle_ones_take_turns() -> None:
    places = [Place(TaskId("web", 1, number), 20_000 + number, "") for number in range(3)]
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
    meter = Meter()
    assert meter.load("web", 100.0) == Load(0.0, 0.0, 0)
    with meter.request("web"):
        assert meter.load("web", 102.0).open_requests == 1
    assert meter.load("web", 104.0).requests_per_s == 0.5
