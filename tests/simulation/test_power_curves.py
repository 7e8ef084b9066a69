"""In a world where power caps cost speed, a policy learns of it what it measures, and the log says what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from millpond.model.decisions import CapPower, Decision
from millpond.model.energy import DeclaredPower, EnergyRates
from millpond.model.errors import InvalidInputError
from millpond.model.events import Event, ProgressMeasured, Tick
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.energy_meter import EnergyMeter
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.engine import CAP_MEASURED_AFTER_S
from millpond.simulation.world.power_curves import PowerCurve

CURVE = PowerCurve.of([(260.0, 1.0, 250.0), (220.0, 1.01, 218.0), (180.0, 1.04, 178.0), (100.0, 2.0, 100.0)])
LENGTH_S = 7_200.0


def world(curve: PowerCurve = CURVE, runs: int = 3, max_slowdown: float = 0.05) -> World:
    role = Role.rigid(TaskRequest(0, 0, 1), 1)
    jobs = tuple(
        TraceJob(Job(f"j{run}", (role,), name="bert", max_slowdown=max_slowdown), 20_000.0 * run, LENGTH_S)
        for run in range(runs)
    )
    (node,) = uniform_cluster("1x1:V100")
    node = replace(node, devices=(replace(node.devices[0], cap_range_w=(100.0, 260.0)),))
    rates = EnergyRates(cards={"V100": DeclaredPower(0.0, 0.0)})
    return World((node,), Workload(jobs, "three"), "exact", rates=rates, curves={"bert": curve})


class Observer:
    """Events and decisions in their order, and the meter that follows them."""

    def __init__(self, here: World) -> None:
        self.log: list[Event | Decision] = []
        self.meter = EnergyMeter(here.rates, curves={each.job.id: CURVE for each in here.workload.jobs})

    def happened(self, event: Event) -> None:
        self.log.append(event)
        self.meter.happened(event)

    def decided(self, at: float, decisions: Sequence[Decision]) -> None:
        self.log += [Tick(at), *decisions]
        self.meter.decided(at, decisions)


def play(here: World) -> tuple[Simulation, Observer]:
    observer = Observer(here)
    simulation = Simulation(here, make_scheduler(Settings()), observer=observer)
    simulation.run()
    return simulation, observer


def test_between_caps_the_time_of_a_step_and_the_power_lie_on_a_line() -> None:
    assert (CURVE.speed(0.0), CURVE.speed(260.0), CURVE.speed(400.0)) == (1.0, 1.0, 1.0)
    assert CURVE.speed(200.0) == pytest.approx(1.0 / 1.025)
    assert (CURVE.drawn_w(0.0), CURVE.drawn_w(200.0), CURVE.drawn_w(50.0)) == (250.0, 198.0, 100.0)


def test_figures_that_cannot_be_are_refused() -> None:
    for rows in ([], [(100.0, 0.0, 90.0)], [(100.0, 1.0, -90.0)]):
        with pytest.raises(InvalidInputError, match="power curve"):
            PowerCurve.of(rows)


def test_the_log_alone_says_what_was_drawn_at_each_cap() -> None:
    here = world()
    simulation, observer = play(here)
    drawn = observer.meter.close(simulation.engine.now).by_job
    assert drawn["j0"].energy_j == pytest.approx(LENGTH_S * 250.0)
    decided = [each for each in observer.log if isinstance(each, CapPower) and each.job == "j2"]
    assert [each.cap_w for each in decided] == [180.0]
    work = simulation.engine.works["j2"]
    assert work.ended_at - work.first_start_at == pytest.approx(1.04 * LENGTH_S)
    assert drawn["j2"].energy_j == pytest.approx(1.04 * LENGTH_S * 178.0)


def test_no_run_is_slower_than_it_may_be_trials_included() -> None:
    for work in play(world())[0].works:
        assert work.ended_at - work.first_start_at <= 1.05 * LENGTH_S


def test_what_caps_not_tried_yet_truly_cost_changes_no_decision_before_it_is_measured() -> None:
    """Another truth of each cap: the same log until a run is measured at one of those that differ."""
    other = PowerCurve.of([(260.0, 1.0, 250.0), (220.0, 1.3, 150.0), (180.0, 1.9, 120.0), (100.0, 1.91, 20.0)])
    logs = [play(world(curve))[1].log for curve in (CURVE, other)]
    first = [_until_a_cap_was_measured(log) for log in logs]
    assert first[0] == first[1]
    assert any(isinstance(each, CapPower) for each in first[0])
    assert [each for each in logs[0] if isinstance(each, CapPower)] != [
        each for each in logs[1] if isinstance(each, CapPower)
    ]


def test_nobody_is_capped_who_allows_no_slow_down() -> None:
    simulation, observer = play(world(max_slowdown=0.0))
    assert not any(isinstance(each, CapPower) for each in observer.log)
    assert {work.ended_at - work.first_start_at for work in simulation.works} == {LENGTH_S}


def test_a_speed_at_a_cap_is_measured_after_a_minute_with_what_was_drawn() -> None:
    log = play(world())[1].log
    at, decision = next(
        (each.at, following)
        for each, following in pairwise(log)
        if isinstance(each, Tick) and isinstance(following, CapPower)
    )
    measured = next(each for each in log if isinstance(each, ProgressMeasured) and each.cap_w)
    assert measured.at == at + CAP_MEASURED_AFTER_S
    assert measured.cap_w == decision.cap_w
    assert measured.steps_per_s == pytest.approx(CURVE.speed(decision.cap_w))
    assert measured.power_w == pytest.approx(CURVE.drawn_w(decision.cap_w))


def _until_a_cap_was_measured(log: list[Event | Decision]) -> list[Event | Decision]:
    return log[: next(index for index, each in enumerate(log) if isinstance(each, ProgressMeasured) and each.cap_w)]
