"""Rows of a scenario, played by the scheduler, and their figures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millpond.model.hardware.nodes import DEFAULT_POOL, Pool
from millpond.model.workloads import Kind
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.core import make_scheduler
from millpond.simulation.costs import Costs
from millpond.simulation.engine import Work
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.queueing import admissible_world
from millpond.simulation.results.card_use import CardUse, card_use
from millpond.simulation.results.history import Run
from millpond.simulation.scenarios.calendar_demand import WEEK_S, calendar_workload
from millpond.simulation.scenarios.scenario_file import CostsFile, ScenarioFile, ScenarioRow


@dataclass(frozen=True, slots=True)
class RowFigures:
    """What a row came to, over the weeks that count.

    Attributes:
        tasks_per_week: training jobs that ended with their work done.
        cards: what the cards were used for.
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
    sessions: int
    refused_sessions: int
    session_wait_p99_s: float
    session_wait_max_s: float
    preemptions_per_week: float
    suspensions_per_week: float
    failures_per_week: float
    lost_percent: float
    cpu_s: float


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
        calendar_workload(file, row),
        file.durations,
        _costs(row.file.costs or file.costs, seed),
        pools=tuple(pools.values()),
        queues=cluster.queues,
        until=file.begin_at + (file.warm_up + file.weeks) * WEEK_S,
    )
    return admissible_world(world, skip_bad_rows=False)


def play(
    file: ScenarioFile, world: World, settings: Settings, progress: Callable[[int], None] | None = None
) -> RowFigures:
    """Play the world of a row.

    Args:
        progress: called now and then with the number of jobs that have ended.
    """
    simulation = Simulation(world, make_scheduler(settings))
    before = time.process_time()
    simulation.run(progress)
    return figures(simulation, file.begin_at + file.warm_up * WEEK_S, time.process_time() - before)


def figures(simulation: Simulation, begin: float, cpu_s: float) -> RowFigures:
    """The figures of a simulation that has run, from ``begin`` to its end."""
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
    return RowFigures(
        tasks_per_week=len(done) / weeks,
        cards=card_use(runs, [entry.job for entry, _ in entries], cards, begin, end),
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
