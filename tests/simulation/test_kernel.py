"""The virtual clock and the pretending engine, on schedules that can be computed by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from first_come import FirstCome

from event_logs import replay_log
from millpond.model.decisions import Decision, Grant, Migrate, Placement, Resume, Start, Stop, Suspend
from millpond.model.events import Confirmed, DurationPredicted, Ended, JobSubmitted, Tick
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.states import Outcome
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority, Role
from millpond.scheduling.settings import PreemptionCost
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.history import history_of
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.engine import NEVER, SimulatedEngine


def trace(*jobs: tuple[float, float, int], cards_per_node: int = 4) -> Workload:
    """Jobs of (submit_at, duration_s, gpus), named a, b, c, ..."""
    return Workload(
        tuple(
            TraceJob(Job("abcdefgh"[index], gang_roles(gpus, cards_per_node)), at, duration, f"test:{index}")
            for index, (at, duration, gpus) in enumerate(jobs)
        ),
        "test",
    )


def ends(simulation: Simulation) -> list[float]:
    simulation.run()
    return [work.ended_at for work in simulation.works]


def test_jobs_run_side_by_side_while_cards_are_free_and_queue_when_not() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 2), (10, 50, 2), (20, 30, 4)))
    assert ends(Simulation(world, FirstCome())) == [100, 60, 130]


def test_room_that_a_job_leaves_is_used_in_the_same_instant() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (100, 50, 4)))
    assert ends(Simulation(world, FirstCome())) == [100, 150]


def test_start_cost_holds_the_cards_before_the_work_begins() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (0, 50, 4)), costs=Costs(start_s=7))
    assert ends(Simulation(world, FirstCome())) == [107, 164]


def test_a_preempted_job_keeps_its_work_and_pays_once_it_runs_again() -> None:
    costs = Costs(preemption=PreemptionCost(10, 99, large_above_gpus=8), restore_s=3)
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2)), costs=costs)
    simulation = Simulation(world, FirstCome(smallest_first=True))
    # 40 s done; 20 s for the other; 3 s to restore; 60 s left and 10 s of overhead
    assert ends(simulation) == [133, 60]
    assert simulation.works[0].preemptions == 1


def test_a_large_job_pays_the_large_preemption_cost() -> None:
    costs = Costs(preemption=PreemptionCost(10, 25, large_above_gpus=3))
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2)), costs=costs)
    assert ends(Simulation(world, FirstCome(smallest_first=True))) == [145, 60]


def test_work_since_the_last_checkpoint_is_repeated() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2)), costs=Costs(lost_work_s=15))
    simulation = Simulation(world, FirstCome(smallest_first=True))
    assert ends(simulation) == [60 + 60 + 15, 60]
    assert simulation.works[0].lost_s == 15


def test_without_checkpoints_all_work_is_repeated() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2)), costs=Costs(lost_work_s=math.inf))
    assert ends(Simulation(world, FirstCome(smallest_first=True))) == [160, 60]


def test_grace_delays_the_successor() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2)), costs=Costs(grace_s=5))
    assert ends(Simulation(world, FirstCome(smallest_first=True))) == [45 + 20 + 60, 65]


def test_the_scheduler_is_told_how_much_work_a_stopped_run_kept() -> None:
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2)), costs=Costs(lost_work_s=15))
    scheduler = FirstCome(smallest_first=True)
    Simulation(world, scheduler).run()
    stopped = [event for event in scheduler.ended if event.outcome is Outcome.STOPPED]
    assert [(event.at, event.service_s) for event in stopped] == [(40, 25)]


def test_jobs_on_one_card_slow_each_other_down_until_one_ends() -> None:
    world = World(uniform_cluster("1x1"), trace((0, 100, 1), (50, 20, 1)), costs=Costs(sharing_speed=0.5))
    simulation = Simulation(world, FirstCome(places_per_card=2))
    # a: 50 s alone, 40 s at half speed (20 s of work), 30 s alone; b: 40 s at half speed
    assert ends(simulation) == [120, 90]


def test_exact_durations_are_told_right_after_submission() -> None:
    scheduler = FirstCome()
    Simulation(World(uniform_cluster("1x4"), trace((3, 100, 1)), durations="exact"), scheduler).run()
    told = [event for event in scheduler.seen if isinstance(event, (JobSubmitted, DurationPredicted))]
    assert [type(event) for event in told] == [JobSubmitted, DurationPredicted]
    assert told[1] == DurationPredicted(3, "a", 100, 100)


def test_predictions_rest_only_on_jobs_that_ended_before() -> None:
    scheduler = FirstCome()
    workload = trace((0, 100, 1), (50, 300, 1), (100, 300, 1), (1000, 5, 1))
    Simulation(World(uniform_cluster("1x4"), workload, durations="predicted"), scheduler).run()
    told = {event.job: event.expected_s for event in scheduler.seen if isinstance(event, DurationPredicted)}
    assert set(told) == {"c", "d"}
    assert told["c"] == pytest.approx(100)


def test_without_durations_nothing_but_submission_and_gpu_count_reaches_the_scheduler() -> None:
    draws = random.Random(7)
    plain = trace((0, 100, 4), (40, 20, 2), (41, 5, 8), (42, 9, 1))

    def scrambled(entry: TraceJob) -> TraceJob:
        devices = tuple(
            replace(
                role, request=TaskRequest(draws.randrange(9), draws.randrange(9), role.request.devices, models=("X",))
            )
            for role in entry.job.roles
        )
        words = {name: str(draws.random()) for name in ("id", "user", "name", "queue")}
        return replace(
            entry, job=Job(roles=devices, priority=draws.choice(list(Priority)), deadline_s=draws.random(), **words)
        )

    logs = []
    for workload in (plain, replace(plain, jobs=tuple(scrambled(entry) for entry in plain.jobs))):
        simulation = Simulation(World(uniform_cluster("2x4"), workload), FirstCome(), record=True)
        simulation.run()
        logs.append(simulation.log)
    assert logs[0] == logs[1]
    jobs = [event.job for event in logs[0] if isinstance(event, JobSubmitted)]
    saves = Checkpoint(CheckpointMode.SIGNAL)  # of the world, not of the trace
    assert jobs == [Job(f"job-{number}", job.roles, checkpoint=saves) for number, job in enumerate(jobs)]


def test_a_recorded_log_gives_the_same_decisions_again() -> None:
    class Remembering(FirstCome):
        def decide(self, now: float) -> list[Decision]:
            decisions = super().decide(now)
            taken.extend(decisions)
            return decisions

    taken: list[Decision] = []
    world = World(uniform_cluster("1x4"), trace((0, 100, 4), (40, 20, 2), (41, 30, 1)))
    simulation = Simulation(world, Remembering(smallest_first=True), record=True)
    simulation.run()
    assert replay_log(simulation.log, FirstCome(smallest_first=True)) == taken
    assert [event.at for event in simulation.log] == sorted(event.at for event in simulation.log)
    assert sum(isinstance(event, Tick) for event in simulation.log) == simulation.cycles


def test_a_workload_that_can_never_run_ends_the_simulation_with_unfinished_jobs() -> None:
    class Nagging(FirstCome):
        def next_wakeup(self, now: float) -> float:
            return now + 60

    simulation = Simulation(World(uniform_cluster("1x2"), trace((0, 100, 4))), Nagging())
    assert math.isnan(ends(simulation)[0])
    assert not history_of(simulation).finished.any()


def test_a_wakeup_at_the_present_instant_does_not_stop_the_clock() -> None:
    class Restless(FirstCome):
        def next_wakeup(self, now: float) -> float | None:
            return now if now < 0.01 else None

    simulation = Simulation(World(uniform_cluster("1x4"), trace((0, 100, 4))), Restless())
    assert ends(simulation) == [100]


# ---- the engine by itself ---------------------------------------------------------------------------------------


def engine_with(duration_s: float, tasks: int = 1, costs: Costs | None = None) -> SimulatedEngine:
    job = Job("a", (Role(TaskRequest(devices=1), tasks, 1, tasks),))
    return SimulatedEngine(uniform_cluster("1x4"), [(job, duration_s)], costs or Costs())


def start(tasks: range, decision: int = 1, *, joins: bool = False) -> Start:
    placements = tuple(Placement(task, "worker", "node-0", (Grant(f"node-0/{task}", 1000, 1000, 0),)) for task in tasks)
    return Start(decision, "a", 1, Cause.FITS, placements, joins)


def test_a_suspended_job_makes_no_progress() -> None:
    engine = engine_with(100)
    engine.apply([start(range(1))])
    engine.now = 30
    engine.apply([Suspend(2, "a", 1, Cause.SUSPEND_REQUESTED)])
    assert engine.events() == [Confirmed(0, 1), Confirmed(30, 2)]
    assert engine.next_at() == NEVER
    engine.now = 80
    engine.apply([Resume(3, "a", 1, Cause.RESUME_REQUESTED)])
    engine.events()
    assert engine.next_at() == 150


def test_a_job_that_migrates_makes_no_progress_until_it_has_arrived() -> None:
    engine = engine_with(100, costs=Costs(suspend_s=5))
    engine.apply([start(range(1))])
    engine.now = 30
    place = Placement(0, "worker", "node-0", (Grant("node-0/3", 1000, 1000, 0),))
    engine.apply([Migrate(2, "a", 1, Cause.MIGRATED, place)])
    assert engine.events() == [Confirmed(0, 1)]
    engine.now = 40
    assert engine.events() == [Confirmed(40, 2)]
    assert engine.next_at() == 110
    engine.now = 110
    engine.events()
    assert [(begun, ended) for _, begun, ended, _, _ in engine.runs] == [(0, 30), (30, 110)]
    assert engine.runs[-1][3] == (place,)


def test_a_gang_that_shrinks_runs_slower_and_one_that_grows_again_faster() -> None:
    engine = engine_with(100, tasks=2)
    engine.apply([start(range(2))])
    engine.now = 40
    engine.apply([Stop(2, "a", 1, Cause.SHRUNK, tasks=(1,))])
    assert Ended(40, "a", 1, Outcome.STOPPED, task=1) in engine.events()
    assert engine.next_at() == 40 + 120
    engine.now = 60
    engine.apply([start(range(1, 2), 3, joins=True)])
    engine.events()
    assert engine.next_at() == 60 + 50


def test_a_decision_applied_twice_acts_once() -> None:
    engine = engine_with(100)
    engine.apply([start(range(1))])
    engine.apply([start(range(1))])
    assert engine.events() == [Confirmed(0, 1)]
    assert len(engine.inventory().tasks) == 1


def test_a_job_that_is_cancelled_does_not_come_back() -> None:
    engine = engine_with(100)
    engine.apply([start(range(1))])
    engine.now = 10
    engine.apply([Stop(2, "a", 1, Cause.STOP_REQUESTED)])
    assert [type(event) for event in engine.events()] == [Confirmed, Confirmed, Ended]
    assert engine.works["a"].ended_at == 10
    assert engine.next_at() == NEVER
