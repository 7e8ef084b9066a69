"""Nodes of a simulated cluster that are switched off and on, on scenes that can be computed by hand, and at random."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model import events
from millpond.model.energy import EnergyRates
from millpond.model.hardware.node_power import NodePowerState, PowerSavingRule
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.energy_meter import EnergyMeter
from millpond.simulation.scenarios.rows import RowFigures, play, row_world
from millpond.simulation.scenarios.scenario_file import read_scenario
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.world.node_power import LOOK_EVERY_S

BOOT_S = 300.0
MACHINE_W = 400.0
DAYS = """
name: days
begin: 2026-01-05 09:00
warm_up: 0
weeks: 1
groups: {red: 2, blue: 2}
machine_w: 400
rows:
- name: switched
  cluster:
    pools: [{name: default, sharing: exclusive, save_energy: {off: "true", on: "true", IDLE, spare: 0, least_on: 0s}}]
    nodes: [{name: a, devices: 2}, {name: b, devices: 2}]
  demand:
  - job: {name: session, kind: dev, gpus: 1, preemptible: false, command: sh}
    hours: Mon-Fri 09:00-11:00
    end: hours
"""


def played(text: str) -> RowFigures:
    scenario = read_scenario(text, "days.yaml")
    return play(scenario.file, row_world(scenario.file, scenario.rows[0]), Settings())


def test_nodes_are_off_at_night_and_their_boot_in_the_morning_counts_as_on() -> None:
    found = played(DAYS.replace("IDLE", "idle: 10m, boot: 5m"))
    minutes_on = 60 * 7 * found.powered_hours
    assert minutes_on == pytest.approx(5 * (120 + 10), abs=5)  # two hours of sessions, and ten minutes without work
    assert found.energy.machines_kwh == pytest.approx(2 * MACHINE_W * minutes_on / 60 / 1000)
    assert found.session_wait_max_s == BOOT_S
    assert found.refused_sessions == 0
    held_hours = 2 + 4 * (2 - BOOT_S / 3600)  # on Monday all are on as it begins
    assert found.powered_use_percent == pytest.approx(100 * 0.1 * held_hours / (minutes_on / 60))


@pytest.mark.long
def test_spare_nodes_follow_a_forecast_of_the_rises_where_the_rule_wants_that() -> None:
    """Nodes take longer to boot than sessions wait: these are refused until a forecast keeps enough nodes on."""
    daily = DAYS.replace("Mon-Fri 09:00", "09:00")
    fixed = played(daily.replace("IDLE", "idle: 10m, boot: 4h, longest_boot: 5h"))
    forecast = played(daily.replace("IDLE", "idle: 10m, boot: 4h, longest_boot: 5h, cover: 0.95"))
    assert fixed.refused_sessions == 4 * 6  # all but those of Monday, when the nodes are on
    assert forecast.refused_sessions <= 4 * 4
    assert forecast.powered_hours > fixed.powered_hours


@pytest.mark.long
@given(
    seed=st.integers(0, 10_000),
    spare=st.integers(0, 2),
    preempt=st.booleans(),
    ordering=st.sampled_from(["default", "fifo"]),
)
@settings(max_examples=8, deadline=None)
def test_work_runs_on_nodes_that_are_on_alone_and_all_of_it_ends(
    seed: int, spare: int, preempt: bool, ordering: str
) -> None:
    nodes = uniform_cluster("4x2")
    workload = synthesise(SyntheticOptions(jobs=25, load=0.4, median_s=600.0, spread=1.0), 8, 2, seed)
    rule = PowerSavingRule(idle_s=600.0, spare=spare, least_on_s=600.0, boot_s=BOOT_S)
    meter = EnergyMeter(EnergyRates(), MACHINE_W)
    simulation = Simulation(
        World(nodes, workload, power={"default": rule}),
        make_scheduler(Settings(ordering=ordering, preempt=preempt, seed=seed)),
        record=True,
        observer=meter,
    )
    simulation.run()
    end = simulation.engine.now
    assert not any(math.isnan(work.ended_at) for work in simulation.works)
    off, booting_s = stretches_off(simulation.log, end)
    assert any(off.values()), "nothing was switched off, so nothing was tried"
    for _, begin, until, placements, _ in simulation.engine.runs:
        for placement in placements:
            assert not any(begin < up and down < until for down, up in off[placement.node])
    off_s = sum(up - down for spans in off.values() for down, up in spans) - booting_s
    on_s = len(nodes) * (end - simulation.world.start_at) - off_s
    found = meter.close(end)
    assert found.powered_gpu_s == pytest.approx(2 * on_s)
    assert found.machines.energy_j == pytest.approx(MACHINE_W * on_s)


def stretches_off(log: list[events.Event], end: float) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """By node, from when until when nothing may run there; and how long of that they booted in all."""
    off: dict[str, list[tuple[float, float]]] = defaultdict(list)
    down: dict[str, float] = {}
    booting: dict[str, float] = {}
    booting_s = 0.0
    for event in log:
        match event:
            case events.NodeLost(node=node):
                down[node] = event.at
            case events.NodePowerChanged(node=node, state=NodePowerState.BOOTING):
                booting[node] = event.at
            case events.NodeJoined(node=node) if node.name in down:
                off[node.name].append((down.pop(node.name), event.at))
                booting_s += event.at - booting.pop(node.name)
    for name, since in down.items():
        off[name].append((since, end))
        booting_s += max(end - booting[name], 0.0) if name in booting else 0.0
    return off, booting_s


def test_a_job_that_needs_a_node_waits_for_its_boot_and_for_one_look_at_the_most() -> None:
    workload = synthesise(SyntheticOptions(jobs=12, load=0.1, median_s=600.0, spread=1.0), 8, 2, seed=3)
    rule = PowerSavingRule(idle_s=60.0, spare=0, least_on_s=0.0, boot_s=BOOT_S)
    simulation = Simulation(
        World(uniform_cluster("4x2"), workload, power={"default": rule}), make_scheduler(Settings())
    )
    simulation.run()
    waits = [work.first_start_at - entry.submit_at for work, entry in zip(simulation.works, workload.jobs, strict=True)]
    assert max(waits) == pytest.approx(BOOT_S, abs=LOOK_EVERY_S)
    assert max(waits) >= BOOT_S
