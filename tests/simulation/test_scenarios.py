"""Scenarios: the weeks of a cluster and its users, on small ones that can be computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from millpond.client.cli.commands.simulation.replay import command
from millpond.model.decisions import Grant, Placement
from millpond.model.errors import MillpondError
from millpond.model.resources import SliceRequest, TaskRequest
from millpond.model.workloads import CheckpointMode, Job, Kind, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.kernel import World
from millpond.simulation.results.card_use import card_use
from millpond.simulation.results.history import Run
from millpond.simulation.scenarios.rows import RowFigures, play, row_world
from millpond.simulation.scenarios.scenario_file import CalendarScenario, load_scenario, read_scenario
from millpond.simulation.trace import TraceJob
from millpond.specs.errors import SpecError

HOUR = 3600.0
MONDAY = 1_767_603_600.0  # 2026-01-05 09:00 UTC

SMALL = """
name: small
begin: 2026-01-05 09:00
warm_up: 0
weeks: 1
groups: {red: 2, blue: 2}
durations: exact
costs: {COSTS}
rows:
- name: row
  cluster:
    pools: [{name: default, sharing: sliced, suspends: true, turn: 0, longest_suspended: 24h}]
    queues: [{name: red}, {name: blue}]
    nodes: [{name: gpu, devices: 2, device_memory: 32GiB, memory: 512GiB, cpus: 64}]
  demand:
  - job: {name: session, kind: dev, gpus: SESSION, priority: high, preemptible: false, command: sh}
    hours: Mon-Fri HOURS
    end: hours
  - job: {name: task, gpus: TASK, priority: low, checkpoint: signal, retries: 9, command: python train.py}
    hours: 09:00-09:00
    times: 2
    takes: 12h
"""


def small(
    session: str = "{memory: 4GiB}",
    task: str = "1",
    hours: str = "09:00-21:00",
    costs: str = "sharing_speed: 0.85",
) -> CalendarScenario:
    text = SMALL.replace("SESSION", session).replace("TASK", task).replace("HOURS", hours).replace("COSTS", costs)
    return read_scenario(text, "small.yaml")


def played(scenario: CalendarScenario, settings: Settings | None = None) -> RowFigures:
    world = row_world(scenario.file, scenario.rows[0])
    return play(scenario.file, world, settings or Settings())


def test_sessions_take_one_card_together_and_training_all_the_others() -> None:
    figures = played(small())
    # one of two cards by day on five days: 2 x 168 h - 60 h of training
    assert figures.cards.work_hours_per_week == pytest.approx(276)
    assert figures.tasks_per_week == 276 / 12 - 2  # two tasks end as the week does
    assert (figures.sessions, figures.refused_sessions, figures.session_wait_max_s) == (20, 0, 0)
    assert figures.cards.used_hours == pytest.approx(24)
    busy = (276 * 0.9 + 60 * 0.4) / 336
    assert figures.cards.utilisation_percent == pytest.approx(100 * busy)


def test_training_that_leaves_memory_runs_on_beneath_sessions_at_the_speed_of_shared_cards() -> None:
    figures = played(small(task="{compute: 60%, memory: 16GiB, limit: 100%}", hours="10:00-20:00"))
    assert figures.cards.training_hours == pytest.approx(24)
    assert figures.cards.shared_hours * 2 * 7 == pytest.approx(50)  # four sessions take what one task leaves
    assert figures.cards.work_hours_per_week == pytest.approx(336 - 50 * 0.15)
    assert (figures.preemptions_per_week, figures.suspensions_per_week) == (0, 0)
    assert figures.refused_sessions == 0


def test_a_session_in_the_midst_of_training_waits_for_the_memory_to_be_moved_and_no_work_is_lost() -> None:
    figures = played(small(hours="10:00-20:00", costs="swap_gib_per_s: 8, lost_work: 10m"))
    assert figures.session_wait_max_s == pytest.approx(4)  # 32 GiB
    assert (figures.preemptions_per_week, figures.suspensions_per_week) == (0, 5)
    assert figures.cards.work_hours_per_week == pytest.approx(336 - 50, abs=0.1)
    assert figures.lost_percent == pytest.approx(100 * 5 * 8 / (336 * HOUR))


def test_sessions_with_whole_cards_are_refused_beyond_the_cards_there_are() -> None:
    figures = played(small(session="1"))
    assert (figures.sessions, figures.refused_sessions) == (20, 10)
    assert figures.cards.work_hours_per_week == pytest.approx(336 - 120)
    used = (336 - 120 + 120 * 0.2) / 14
    assert figures.cards.used_hours == pytest.approx(used)


def test_a_user_stops_a_session_at_the_end_of_its_hours_when_it_started_late() -> None:
    figures = played(small(hours="10:00-20:00", costs="swap_gib_per_s: 0.01"))  # 32 GiB take nearly an hour
    assert figures.session_wait_max_s == pytest.approx(3200)
    assert figures.cards.session_hours * 2 * 7 == pytest.approx(5 * (10 - 3200 / 3600))


def test_runs_that_fail_are_tried_again_from_the_last_checkpoint() -> None:
    quiet, failing = (played(small(costs=f"lost_work: 1h, failing: {part}")) for part in (0, 0.3))
    assert quiet.failures_per_week == 0 < failing.failures_per_week
    lost = quiet.cards.work_hours_per_week - failing.cards.work_hours_per_week
    assert 0 < lost <= failing.failures_per_week
    assert failing.lost_percent == 0  # nothing of it was taken back for others


TURNS = """
name: turns
begin: 2026-01-05 09:00
warm_up: 0
weeks: 1
groups: {red: 1}
durations: exact
rows:
- name: row
  cluster:
    pools: [{name: default, suspends: true, turn: 10m}]
    nodes: [{name: gpu, devices: 2, device_memory: 32GiB, memory: 512GiB, cpus: 64, remaps: REMAPS}]
  demand: [{job: {gpus: 1, command: train}, hours: Mon 09:00-10:00, times: 3, takes: 8h}]
"""


@pytest.mark.parametrize(("remaps", "hours_of_turns"), [("false", 16), ("true", 8)])
def test_turns_end_with_a_free_card_where_a_node_says_that_memory_can_come_back_on_another(
    remaps: str, hours_of_turns: int
) -> None:
    """Two of three jobs share a card; the third ends after eight hours."""
    figures = played(read_scenario(TURNS.replace("REMAPS", remaps), "turns.yaml"))
    assert (figures.tasks_per_week, figures.cards.work_hours_per_week) == (3, 24)
    assert figures.suspensions_per_week == pytest.approx(6 * hours_of_turns, abs=2)  # turns of ten minutes


def test_of_users_in_part_the_first_of_each_group_come() -> None:
    scenario = small()
    demand = tuple(replace(each, users=0.5) for each in scenario.rows[0].demand)
    world = row_world(scenario.file, replace(scenario.rows[0], demand=demand))
    assert {entry.job.user for entry in world.workload.jobs} == {"red-00", "blue-00"}
    assert {entry.job.queue for entry in world.workload.jobs} == {"red", "blue"}


def use(*stretches: tuple[float, float, Kind, int]) -> Any:
    """Of one card, in the 24 hours from Monday, 9:00: (from hour, to hour, kind, part of the card in milli)."""
    jobs = [
        Job(f"j{index}", (Role.rigid(TaskRequest(devices=1, slice=SliceRequest(milli, 1)), 1),), kind=kind)
        for index, (_, _, kind, milli) in enumerate(stretches)
    ]
    runs = [
        Run(index, MONDAY + begin * HOUR, MONDAY + end * HOUR, (place(milli),), (end - begin) * HOUR)
        for index, (begin, end, _, milli) in enumerate(stretches)
    ]
    return card_use(runs, [TraceJob(job, MONDAY, HOUR) for job in jobs], 1, MONDAY, MONDAY + 24 * HOUR)


def place(milli: int) -> Placement:
    return Placement(0, "worker", "gpu", (Grant("gpu/0", milli, 1000, 1),))


def test_used_hours_and_utilisation_of_one_card() -> None:
    found = use((0, 12, Kind.DEV, 1000), (12, 24, Kind.TRAIN, 1000))
    assert (found.used_hours, found.utilisation_percent) == pytest.approx((14.4, 50))
    found = use(*[(0, 12, Kind.DEV, 0)] * 8)
    assert (found.used_hours, found.utilisation_percent) == pytest.approx((12, 40))
    found = use((0, 12, Kind.DEV, 0), (6, 24, Kind.TRAIN, 750))
    assert (found.used_hours, found.shared_hours, found.training_hours) == pytest.approx((24, 6, 18))
    assert found.work_hours_per_week == pytest.approx(18 * 7)


def test_days_begin_when_the_figures_do() -> None:
    nights = [Run(0, MONDAY + (24 * day + 12) * HOUR, MONDAY + 24 * (day + 1) * HOUR, (place(1000),)) for day in (4, 5)]
    job = Job("j", (Role.rigid(TaskRequest(devices=1), 1),))
    found = card_use(nights, [TraceJob(job, MONDAY, HOUR)], 1, MONDAY, MONDAY + 7 * 24 * HOUR)
    assert found.used_hours_on_working_days == pytest.approx(12 / 5)  # Friday's night, though it ends on Saturday


# ---- as people meet it ----------------------------------------------------------------------------------------------


def pond(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_a_scenario_file_of_ones_own_is_played(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(SMALL.replace("SESSION", "{memory: 4GiB}").replace("TASK", "1").replace("HOURS", "09:00-21:00")
                    .replace("COSTS", ""))  # fmt: skip
    result = pond("--scenario", str(path), "--json")
    assert result.exception is None, result.output
    plain = json.loads(result.stdout)
    (row,) = plain["rows"]
    assert (row["row"], row["sessions"], row["refused_sessions"]) == ("row", 20, 0)
    assert plain["parameters"]["users"] == 4
    table = pond("--scenario", str(path)).stdout
    assert all(len(line) <= 80 for line in table.splitlines())


TRACE = """job,submit_s,duration_s,gpus,user
a,100,3600,1,ann
b,200,7200,2,bob
"""


def test_jobs_of_a_trace_come_from_the_begin_on_as_the_row_describes_them(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE, encoding="utf-8")
    text = SMALL[: SMALL.index("  demand:")].replace("COSTS", "")
    text += """  demand:
  - job: {name: task, queue: red, priority: low, command: sh, checkpoint: signal}
    trace: {format: native, jobs: jobs.csv}
"""
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    scenario = load_scenario(str(path))
    first, second = row_world(scenario.file, scenario.rows[0]).workload.jobs
    assert (first.submit_at, second.submit_at) == (MONDAY, MONDAY + 100)
    assert (first.duration_s, first.job.user, first.job.queue) == (3600, "ann", "red")
    assert (second.job.gpu_milli, second.job.checkpoint.mode) == (2000, CheckpointMode.SIGNAL)
    assert played(scenario).tasks_per_week == 2


def test_synthetic_jobs_ask_for_so_much_of_all_cards_and_those_beyond_the_end_are_left_out() -> None:
    text = SMALL[: SMALL.index("  demand:")].replace("COSTS", "")
    text += "  demand:\n  - {job: {name: task, command: sh}, trace: {format: synthetic, jobs: 4000, load: 0.5}}\n"
    scenario = read_scenario(text, "small.yaml")
    world = row_world(scenario.file, scenario.rows[0])
    asked_s = sum(entry.duration_s * entry.job.gpu_milli / 1000 for entry in world.workload.jobs)
    assert len(world.workload.jobs) < 4000
    assert 0.3 < asked_s / (2 * 7 * 24 * HOUR) < 0.8
    assert world.workload.jobs[-1].submit_at < world.until
    assert row_world(scenario.file, scenario.rows[0], seed=1).workload != world.workload


def test_what_a_job_is_declared_to_keep_busy_of_a_card_adds_up_there() -> None:
    runs = [Run(index, MONDAY, MONDAY + 12 * HOUR, (place(500),), 12 * HOUR) for index in range(2)]
    job = Job("j", (Role.rigid(TaskRequest(devices=1, slice=SliceRequest(500, 1)), 1),), kind=Kind.SERVICE)
    found = card_use(runs, [TraceJob(job, MONDAY, HOUR, busy=0.3)] * 2, 1, MONDAY, MONDAY + 24 * HOUR)
    assert (found.used_hours, found.utilisation_percent) == pytest.approx((12, 30))
    assert found.work_hours_per_week == 0


@pytest.mark.long
def test_in_the_scenario_of_all_levers_each_row_has_the_same_work() -> None:
    scenario = load_scenario("utilisation")
    assert [row.file.name for row in scenario.rows] == ["static", "pooled", "sliced", "scaled", "switched", "all"]
    worlds = [row_world(scenario.file, row) for row in scenario.rows]
    assert {len(world.nodes) for world in worlds} == {40}
    assert [bool(world.power) for world in worlds] == [False] * 4 + [True] * 2
    tasks = {
        tuple(entry.duration_s for entry in world.workload.jobs if entry.job.kind is Kind.TRAIN) for world in worlds
    }
    assert len(tasks) == 1
    computed = [services_busy_s(world) for world in worlds]
    assert computed == pytest.approx([computed[0]] * 6, rel=0.01)


@pytest.mark.long
def test_all_levers_together_use_half_as_much_again_of_what_is_powered_for_a_quarter_less() -> None:
    scenario = load_scenario("utilisation")
    week = scenario.file.model_copy(update={"warm_up": 0, "weeks": 1})
    static, together = (play(week, row_world(week, scenario.rows[index]), Settings()) for index in (0, -1))
    assert together.powered_use_percent >= 1.5 * static.powered_use_percent
    assert together.energy.energy_cost <= 0.75 * static.energy.energy_cost
    assert together.cards.work_hours_per_week >= 0.99 * static.cards.work_hours_per_week
    assert together.refused_sessions == 0


def services_busy_s(world: World) -> float:
    replicas = [entry for entry in world.workload.jobs if entry.job.kind is Kind.SERVICE]
    return sum((entry.busy or 0.0) * min(entry.duration_s, entry.stop_at - entry.submit_at) for entry in replicas)


@pytest.mark.parametrize(
    ("found", "written", "said"),
    [
        ("hours: Mon-Fri HOURS", "users: 0.5", "neither hours nor a trace"),
        (
            "hours: Mon-Fri HOURS",
            "trace: {format: synthetic, jobs: 5}",
            "tasks, cards, lengths or users beside a trace",
        ),
        ("hours: Mon-Fri HOURS", "trace: {format: philly, jobs: 5}", "name its file"),
        ("takes: 12h", "takes: 12h\n    busy: 2", "busy"),
        ("kind: dev", "kind: game", "small.yaml:16:"),
        ("kind: dev", "kind: dev, queue: green", "unknown queue 'green'"),
        ("suspends: true", "suspends: perhaps", "small.yaml:12:"),
        ("hours: Mon-Fri HOURS", "hours: at noon", "at noon"),
        ("weeks: 1", "weeks: 0", "weeks"),
        ("begin: 2026-01-05 09:00", "begin: soon", "no date"),
        ("takes: 12h", "takes: 12", "has no unit"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_named_with_its_line(found: str, written: str, said: str) -> None:
    text = SMALL.replace(found, written).replace("SESSION", "1").replace("TASK", "1").replace("COSTS", "")
    text = text.replace("HOURS", "09:00-21:00")
    with pytest.raises(SpecError) as error:
        read_scenario(text, "small.yaml")
    assert said in str(error.value)
    assert all(problem.line for problem in error.value.problems)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scenario", "nowhere"), "no scenario 'nowhere'"),
        (("--scenario", "aistation", "--jobs", "5"), "--jobs has no meaning for --scenario"),
        (("--scenario", "aistation", "--start-cost", "5"), "--start-cost has no meaning"),
        (("--jobs", "5"), "--format is missing"),
        (("--format", "synthetic", "--cluster", "1x1"), "--jobs is missing"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(arguments: tuple[str, ...], said: str) -> None:
    error = pond(*arguments).exception
    assert isinstance(error, MillpondError)
    assert said in str(error)


# ---- the case of four shared machines -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def aistation() -> dict[str, RowFigures]:
    scenario = load_scenario("aistation")
    return {row.file.name: play(scenario.file, row_world(scenario.file, row), Settings()) for row in scenario.rows}


@pytest.mark.long
def test_rows_of_the_case_of_four_shared_machines(aistation: dict[str, RowFigures]) -> None:
    before, split, millpond = (aistation[name] for name in ("before", "split", "millpond"))
    assert before.tasks_per_week == pytest.approx(160, abs=2)
    assert before.refused_sessions == 18 * 5 * 4
    assert before.cards.used_hours_on_working_days == pytest.approx(14.4)
    assert before.cards.utilisation_percent == pytest.approx(100 * 60 / 168, abs=0.1)  # 0.9 and 0.1 for 60 hours each
    assert 366 <= split.tasks_per_week <= 368
    for row in (split, millpond, aistation["millpond-trouble"]):
        assert row.refused_sessions == 0
        assert row.session_wait_p99_s <= 10
    for row in (millpond, aistation["millpond-trouble"]):
        assert row.tasks_per_week >= 420
        assert row.cards.work_hours_per_week >= 420 * 12
    for row in (millpond, aistation["millpond-trouble"], aistation["millpond-whole"]):
        assert row.lost_percent <= 1
    assert min(millpond.cards.used_hours, millpond.cards.used_hours_on_working_days) >= 23.5
    assert millpond.cards.utilisation_percent >= 80
