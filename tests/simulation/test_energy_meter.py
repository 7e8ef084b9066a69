"""What a simulated cluster draws: scenes by hand, and another count of the same from what the engine noted."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scenarios import SMALL, played, small

from millpond.client.cli.commands.simulation.replay import command
from millpond.model import events
from millpond.model.decisions import Grant, Placement, Start, Suspend, SuspendMode
from millpond.model.energy import J_PER_KWH, DeclaredPower, EnergyRates, RateSeries
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Kind, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.energy_meter import BUSY, EnergyMeter, MeteredEnergy
from millpond.simulation.scenarios.rows import play, row_world
from millpond.simulation.synthetic import SyntheticOptions, synthesise

POWER = DeclaredPower(50.0, 250.0)
RATES = EnergyRates(RateSeries.constant(0.3), RateSeries.constant(400.0), {"GPU": POWER})
MACHINE_W = 400.0


def drawn_by_runs(simulation: Simulation, end: float) -> tuple[dict[str, float], float]:
    """Joules of each job and of empty cards, from the engine's own record of who held what, and when."""
    changes: dict[str, list[tuple[float, int, str, int]]] = defaultdict(list)
    jobs = [work.job for work in simulation.works]
    for index, begin, until, placements, _ in simulation.engine.runs:
        for placement in placements:
            for grant in placement.grants:
                changes[grant.device].append((begin, 1, jobs[index].id, grant.compute_milli))
                changes[grant.device].append((until, -1, jobs[index].id, grant.compute_milli))
    kinds = {job.id: job.kind for job in jobs}
    by_job: dict[str, float] = defaultdict(float)
    idle = 0.0
    for node in simulation.world.nodes:
        for device in node.devices:
            now, held = simulation.world.start_at, dict[str, int]()
            for at, sign, job, milli in [*sorted(changes[device.uuid]), (end, 0, "", 0)]:
                use = min(sum(milli * BUSY[kinds[name]] for name, milli in held.items()) / 1000, 1.0)
                drawn = (50.0 + 200.0 * use) * (at - now)
                for name, part in held.items():
                    by_job[name] += drawn * part / sum(held.values())
                idle += 0.0 if held else drawn
                now = at
                held[job] = held.get(job, 0) + sign * milli
                held = {name: part for name, part in held.items() if part > 0}
    return by_job, idle


@pytest.mark.long
@given(seed=st.integers(0, 10_000), ordering=st.sampled_from(["default", "fifo", "tiresias"]), preempt=st.booleans())
@settings(max_examples=15, deadline=None)
def test_the_meter_of_the_log_agrees_with_a_count_of_what_the_engine_noted(
    seed: int, ordering: str, preempt: bool
) -> None:
    nodes = uniform_cluster("3x4")
    workload = synthesise(SyntheticOptions(jobs=30, load=1.2), 12, 4, seed)
    policy = Settings(ordering=ordering, preempt=preempt, seed=seed)
    meter = EnergyMeter(RATES, MACHINE_W)
    simulation = Simulation(World(nodes, workload), make_scheduler(policy), observer=meter)
    simulation.run()
    end = simulation.engine.now
    found = meter.close(end)
    by_job, idle = drawn_by_runs(simulation, end)
    assert {job: each.energy_j for job, each in found.by_job.items()} == pytest.approx(dict(by_job))
    assert found.idle.energy_j == pytest.approx(idle)
    assert found.machines.energy_j == pytest.approx(3 * MACHINE_W * (end - simulation.world.start_at))
    assert found.total.cost == pytest.approx(found.total.energy_j * 0.3 / J_PER_KWH)


def test_what_is_drawn_before_the_figures_begin_and_by_undeclared_models_is_not_charged() -> None:
    (node,) = uniform_cluster("1x2")
    odd = replace(node, devices=(node.devices[0], replace(node.devices[1], model="Other")))
    meter = EnergyMeter(RATES, MACHINE_W, begin=100.0)
    meter.happened(events.NodeJoined(0.0, odd))
    meter.happened(events.NodeLost(300.0, odd.name))
    found: MeteredEnergy = meter.close(500.0)
    assert found.idle.energy_j == pytest.approx(200 * 50.0)
    assert found.machines.energy_j == pytest.approx(200 * MACHINE_W)
    assert found.unknown_gpu_s == 200.0


def test_a_machine_that_is_described_anew_has_the_work_on_it_as_it_was_and_one_that_was_lost_has_none() -> None:
    """One job computes, one is frozen, one is swapped; then the same node joins once more, and again after its loss."""
    (node,) = uniform_cluster("1x3")
    meter = EnergyMeter(RATES)
    meter.happened(events.NodeJoined(0.0, node))
    for number, device in enumerate(node.devices):
        placement = Placement(0, "worker", node.name, (Grant(device.uuid, 1000, 1000, 0),))
        meter.happened(events.JobSubmitted(0.0, Job(f"j{number}", (Role.rigid(TaskRequest(devices=1), 1),))))
        meter.decided(0.0, [Start(number, f"j{number}", 1, Cause.FITS, (placement,))])
        meter.happened(events.Confirmed(0.0, number))
    for number, mode in ((1, SuspendMode.FREEZE), (2, SuspendMode.SWAP)):
        meter.decided(0.0, [Suspend(10 + number, f"j{number}", 1, Cause.TURN_TAKEN, mode)])
        meter.happened(events.Confirmed(0.0, 10 + number))
    meter.happened(events.NodeJoined(100.0, node))
    meter.happened(events.NodeLost(200.0, node.name))
    meter.happened(events.NodeJoined(300.0, node))
    found = meter.close(400.0)
    busy_w = 50.0 + 200.0 * BUSY[Kind.TRAIN]
    drawn = {job: each.energy_j for job, each in found.by_job.items()}
    assert drawn == pytest.approx({"j0": 200 * busy_w, "j1": 200 * 50.0})
    assert found.idle.energy_j == pytest.approx(200 * 50.0 + 3 * 100 * 50.0)


def test_a_scenario_shows_what_its_rows_drew_and_nothing_where_no_power_is_declared() -> None:
    """Two cards that train all week: 0.9 of the way from idle to busy, in a machine of 400 W, for 168 hours."""
    scenario = small(hours="09:00-10:00", session="1", task="1")
    row = scenario.rows[0]
    world = row_world(scenario.file, row)
    assert math.isnan(played(scenario).energy.energy_kwh)
    rates = EnergyRates(RateSeries.constant(0.3), None, {world.nodes[0].devices[0].model: POWER})
    found = play(scenario.file, replace(world, rates=rates, machine_w=MACHINE_W), Settings()).energy
    assert found.machines_kwh == pytest.approx(0.4 * 168)
    assert found.energy_kwh == pytest.approx(found.energy_cost / 0.3)
    sessions_kwh = 5 * 2 * (0.25 - 0.05) * 0.8  # five hours in which sessions hold the cards instead
    trained = 2 * 168 * (0.05 + 0.2 * 0.9)
    assert found.energy_kwh - found.machines_kwh == pytest.approx(trained - sessions_kwh, rel=0.01)
    assert math.isnan(found.co2_kg)


def test_the_table_of_a_scenario_says_how_much_was_drawn_where_that_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = SMALL.replace("  demand:", "    energy: {cards: {GPU: {idle_w: 50, busy_w: 250}}}\n  demand:")
    path = tmp_path / "declared.yaml"
    for word, value in {"SESSION": "1", "TASK": "1", "HOURS": "09:00-10:00", "{COSTS}": "{}"}.items():
        declared = declared.replace(word, value)
    path.write_text(declared.replace("device_memory", "model: GPU, device_memory"), encoding="utf-8")
    done = CliRunner().invoke(command, ["--scenario", str(path)])
    assert done.output.splitlines()[1].split()[-2:] == ["%", "kWh"]
    assert done.output.splitlines()[2].split()[-1] == "76"  # 2 x (163 h x 230 W + 5 h x 70 W)
