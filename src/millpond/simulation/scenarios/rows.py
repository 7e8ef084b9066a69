"""Rows of a scenario, played by the scheduler, and their figures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from millpond.forecasting.series import WEEK_S
from millpond.model.energy import J_PER_KWH
from millpond.model.hardware.nodes import DEFAULT_POOL, Pool
from millpond.model.resources import CARD_MILLI
from millpond.model.units import DAY_S
from millpond.model.workloads import Kind
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.queueing import admissible_world
from millpond.simulation.results.card_use import CardUse, card_use
from millpond.simulation.results.energy_meter import EnergyMeter, MeteredEnergy
from millpond.simulation.results.history import Run
from millpond.simulation.results.summaries import finite
from millpond.simulation.scenarios.row_workload import row_workload
from millpond.simulation.scenarios.scenario_file import CalendarScenario, CostsFile, ScenarioFile, ScenarioRow
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.work import Work


@dataclass(frozen=True, slots=True)
class EnergyFigures:
    """What a row's cluster drew, from the log and the declared power of its cards and machines.

    Attributes:
        energy_kwh: in all; NaN where no power is declared.
        idle_kwh: the part of it that cards drew while nobody held them.
        machines_kwh: the part of the machines around the cards.
        undeclared_gpu_hours: card-hours of models without a declared power, which are in none of these.
        energy_cost, co2_kg: as far as a price and a carbon intensity are known; NaN where none are.
    """

    energy_kwh: float
    idle_kwh: float
    machines_kwh: float
    undeclared_gpu_hours: float
    energy_cost: float
    co2_kg: float


@dataclass(frozen=True, slots=True)
class RowFigures:
    """What a row came to, over the weeks that count.

    Attributes:
        tasks_per_week: training jobs that ended with their work done.
        cards: what the cards were used for.
        powered_hours: hours of a card and day in which its machine drew power, also while it booted.
        powered_use_percent: how busy cards were in these.
        energy: what the cluster drew.
        sessions: dev jobs submitted.
        refused_sessions: those of them that had not started when their user gave up.
        session_wait_p99_s, session_wait_max_s: from submission until they hold their part of a card, of those that
            started; NaN where none did.
        preemptions_per_week: running training that was ended for others, for its hours or for those of its pool.
        suspensions_per_week: the same without ending.
        failures_per_week: runs that failed.
        lost_percent: card-hours, of all and with the warm-up, in which work was repeated because of a preemption, or
            nothing got on because of the start after it, or while device memory was moved.
    """

    tasks_per_week: float
    cards: CardUse
    powered_hours: float
    powered_use_percent: float
    energy: EnergyFigures
    sessions: int
    refused_sessions: int
    session_wait_p99_s: float
    session_wait_max_s: float
    preemptions_per_week: float
    suspensions_per_week: float
    failures_per_week: float
    lost_percent: float
    cpu_s: float


UNDECLARED: Final = EnergyFigures(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)


def row_world(file: ScenarioFile, row: ScenarioRow, seed: int = 0) -> World:
    """The world of a row.

    Raises:
        InvalidInputError: a job could never run on its cluster.
    """
    cluster = row.cluster
    pools = {pool.name: pool for pool in cluster.pools}
    pools.setdefault(DEFAULT_POOL, Pool())
    world = World(
        cluster.nodes,
        row_workload(file, row, seed),
        file.durations,
        _costs(row.file.costs or file.costs, seed),
        pools=tuple(pools.values()),
        queues=cluster.queues,
        until=file.begin_at + (file.warm_up + file.weeks) * WEEK_S,
        rates=cluster.energy,
        machine_w=file.machine_w,
        power={pool: saving.rule for pool, saving in cluster.savings.items()},
    )
    return admissible_world(world, skip_bad_rows=False)


def play(
    file: ScenarioFile, world: World, settings: Settings, progress: Callable[[int], None] | None = None
) -> RowFigures:
    """Play the world of a row.

    Args:
        progress: called now and then with the number of jobs that have ended.
    """
    begin = file.begin_at + file.warm_up * WEEK_S
    busy = {entry.job.id: entry.busy for entry in world.workload.jobs if entry.busy is not None}
    meter = EnergyMeter(world.rates, world.machine_w, begin, busy)
    draws, switches = bool(world.rates.cards or world.machine_w), bool(world.power)
    simulation = Simulation(world, make_scheduler(settings), observer=meter if draws or switches else None)
    before = time.process_time()
    simulation.run(progress)
    cpu_s = time.process_time() - before
    found = figures(simulation, begin, cpu_s)
    metered = meter.close(world.until)
    if switches:
        card_days = capacity_milli(world.nodes) / CARD_MILLI * (world.until - begin) / DAY_S
        hours = metered.powered_gpu_s / 3600 / card_days
        use = found.cards.utilisation_percent * 24 / hours if hours else 0.0
        found = replace(found, powered_hours=hours, powered_use_percent=use)
    return replace(found, energy=energy_figures(metered)) if draws else found


def energy_figures(metered: MeteredEnergy) -> EnergyFigures:
    """The same in units of a report."""
    total = metered.total
    return EnergyFigures(
        total.energy_j / J_PER_KWH,
        metered.idle.energy_j / J_PER_KWH,
        metered.machines.energy_j / J_PER_KWH,
        metered.unknown_gpu_s / 3600,
        total.cost if total.priced_j else math.nan,
        total.co2_g / 1000 if total.carbon_j else math.nan,
    )


def figures(simulation: Simulation, begin: float, cpu_s: float) -> RowFigures:
    """The figures of a simulation that has run, from ``begin`` to its end, but for what it drew."""
    world = simulation.world
    end, cards = world.until, capacity_milli(world.nodes) // 1000
    entries = list(zip(world.workload.jobs, simulation.works, strict=True))
    training = [(entry, work) for entry, work in entries if entry.job.kind is Kind.TRAIN]
    sessions = [pair for pair in entries if pair[0].job.kind is Kind.DEV and begin <= pair[0].submit_at]
    starts = [(work.first_start_at, entry.submit_at) for entry, work in sessions]
    waits = [start - submitted for start, submitted in starts if not math.isnan(start)]
    done = [entry for entry, work in training if begin <= work.ended_at < end and work.ended_at < entry.stop_at]
    weeks, all_weeks = (end - begin) / WEEK_S, (end - world.start_at) / WEEK_S
    runs = (Run(*run) for run in simulation.engine.runs)
    used = card_use(runs, world.workload.jobs, cards, begin, end)
    return RowFigures(
        tasks_per_week=len(done) / weeks,
        cards=used,
        powered_hours=24.0,
        powered_use_percent=used.utilisation_percent,
        energy=UNDECLARED,
        sessions=len(sessions),
        refused_sessions=len(sessions) - len(waits),
        session_wait_p99_s=float(np.percentile(waits, 99)) if waits else math.nan,
        session_wait_max_s=max(waits, default=math.nan),
        preemptions_per_week=sum(work.preemptions for _, work in training) / all_weeks,
        suspensions_per_week=sum(work.suspensions for _, work in training) / all_weeks,
        failures_per_week=sum(work.failures for _, work in training) / all_weeks,
        lost_percent=100 * sum(_lost_s(work, world.costs) for _, work in training) / (cards * (end - world.start_at)),
        cpu_s=cpu_s,
    )


def _lost_s(work: Work, costs: Costs) -> float:
    """Card-seconds that a job held without getting on, or did twice, because it had to leave its cards."""
    restart_s = costs.start_s + costs.restore_s + costs.preemption.of(work.job.gpu_milli)
    lost_s = work.lost_s + work.preemptions * restart_s + work.switching_s
    return lost_s * sum(role.desired * role.request.devices for role in work.job.roles)


def _costs(file: CostsFile, seed: int) -> Costs:
    return Costs(
        start_s=file.start,
        restore_s=file.restore,
        lost_work_s=file.lost_work,
        sharing_speed=file.sharing_speed,
        suspend_s=file.suspend,
        swap_mib_per_s=1024 * file.swap_gib_per_s,
        failing=file.failing,
        failures_seed=seed,
    )


def scenario_summary(
    scenario: CalendarScenario, worlds: Sequence[World], played: Sequence[RowFigures], settings: Settings
) -> dict[str, Any]:
    """What each row came to, and under which parameters."""
    file = scenario.file
    policy = asdict(settings)
    del policy["typical_mix"]
    rows = []
    for row, world, figures in zip(scenario.rows, worlds, played, strict=True):
        plain = asdict(figures)
        cards, energy = plain.pop("cards"), plain.pop("energy")
        named = {"row": row.file.name, "about": row.file.about}
        rows.append(finite({**named, **plain, **cards, **energy, "costs": asdict(world.costs)}))
    return {
        "scenario": file.name,
        "rows": rows,
        "parameters": {
            "begin": file.begin, "warm_up_weeks": file.warm_up, "weeks": file.weeks,
            "users": sum(file.groups.values()), "groups": len(file.groups), "durations": file.durations, **policy,
        },
    }  # fmt: skip
