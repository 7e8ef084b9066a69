"""Sweeps: what trials report is read, losers are stopped early and once, the best is told; after a restart too."""

from __future__ import annotations

import json
from pathlib import Path
from re._parser import parse  # type: ignore[import-not-found]
from typing import Any

import pytest
from api_world import JOBS, Api
from server_world import Clock, Server, World

from millpond.model.events import StopRequested
from millpond.model.states import Outcome
from millpond.node.task.output import Mark, Stream
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.jobs.sweeps.readings import MOST_AT_ONCE, MOST_LINES, MOST_PLACES, Point, TrialReading, _Wanted
from millpond.server.jobs.sweeps.sweep_watch import SweepWatch
from millpond.server.jobs.sweeps.trials import rungs_up_to, verdict
from millpond.server.runtime.inbox import ChangeJob
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.files import MetricsInfo
from millpond.specs.api.jobs.trials import TrialList
from millpond.specs.job.sweeps import Halving, SweepMetric

LOSS = SweepMetric(name="loss")
SWEEP: dict[str, Any] = {
    "parameters": {"lr": [0.1, 0.2, 0.3, 0.4]},
    "metric": "loss",
    "halving": {"factor": 2, "first_step": 3},
}


def files_of(state_dir: Path, job: str, attempt: int = 1) -> TaskFiles:
    files = TaskFiles.of(state_dir, TaskId(job, attempt, 0))
    files.metrics.parent.mkdir(parents=True, exist_ok=True)
    return files


def report(state_dir: Path, job: str, step: float | None, loss: float | None, attempt: int = 1) -> None:
    with files_of(state_dir, job, attempt).metrics.open("a") as file:
        file.write(json.dumps({"at": 1.0, "step": step, "values": {"loss": loss, "other": 1.0}}) + "\n")


def prints(state_dir: Path, job: str, text: str) -> None:
    with files_of(state_dir, job).log.open("a") as file:
        file.write(text)


def fresh(reading: TrialReading, over: bool = False) -> list[tuple[float, float | None]]:
    return [(point.step, point.value) for point in reading.fresh(over=over)]


def trials(api: Api, job: str) -> TrialList:
    answer = api.client.get(f"{JOBS}/{job}/trials")
    assert answer.status_code == 200, answer.text
    return from_json(TrialList, answer.content)


def states(api: Api, job: str) -> dict[int, str]:
    return {trial.index: trial.state for trial in trials(api, job).trials}


def test_rungs_are_a_factor_apart_or_as_written() -> None:
    assert list(rungs_up_to(Halving(factor=3, first_step=2), 60)) == [2, 6, 18, 54]
    assert list(rungs_up_to(Halving(rungs=[5, 50]), 49)) == [5]
    assert list(rungs_up_to(Halving(first_step=10), 9)) == []


@pytest.mark.parametrize(
    ("own", "others", "goes_on"),
    [
        (9.0, [], True),
        (9.0, [1.0], False),
        (1.0, [9.0], True),
        (1.0, [1.0], True),
        (2.0, [1.0, 3.0, 4.0, 5.0, 6.0], True),
        (3.0, [1.0, 2.0, 4.0, 5.0, 6.0], False),
        (None, [9.0], False),
        (None, [None], True),
        (9.0, [None], True),
    ],
)
def test_one_in_factor_goes_on_at_a_rung(own: float | None, others: list[float | None], goes_on: bool) -> None:
    assert (verdict(Halving(factor=3), LOSS, 9, own, [own, *others]) == "") is goes_on
    highest = SweepMetric(name="score", goal="maximize")
    turned = [None if value is None else -value for value in [own, *others]]
    assert (verdict(Halving(factor=3), highest, 9, turned[0], turned) == "") is goes_on


def test_a_verdict_says_behind_whom_and_by_how_much() -> None:
    told = verdict(Halving(factor=3), LOSS, 9, 0.5, [0.5, 0.25, 0.75])
    assert told == "behind the best third of 3 at step 9: loss 0.5, and 0.25 was needed"


def test_reports_are_read_once_as_they_come(tmp_path: Path) -> None:
    reading = TrialReading.of(tmp_path, "a.0", 1, LOSS)
    assert fresh(reading) == []
    report(tmp_path, "a.0", 1, 0.5)
    report(tmp_path, "a.0", None, None)
    with files_of(tmp_path, "a.0").metrics.open("a") as file:
        file.write('{"at": 1, "step": 7, "val')
    assert fresh(reading) == [(1.0, 0.5), (2.0, None)]
    with files_of(tmp_path, "a.0").metrics.open("a") as file:
        file.write('ues": {"loss": 0.25}}\nnonsense\n')
    assert fresh(reading) == [(7.0, 0.25)]
    prints(tmp_path, "a.0", "loss=9\n")
    assert fresh(reading) == [], "who reports does not print"


def test_printed_lines_are_read_by_name_or_as_laid_down(tmp_path: Path) -> None:
    reading = TrialReading.of(tmp_path, "a.0", 1, LOSS)
    prints(tmp_path, "a.0", "start\nstep=4 loss=0.31 acc=1\nval_loss=7 loss: 2.5e-1\nloss = nan\nloss=0.1")
    assert fresh(reading) == [(4.0, 0.31), (2.0, 0.25), (3.0, None)]
    assert fresh(reading, over=True) == [(4.0, 0.1)]
    laid_down = SweepMetric(name="loss", printed="val loss: {value} |", printed_step="Epoch {step}/")
    prints(tmp_path, "a.1", "Epoch 3/90 |  val   loss: 0.5 | train loss: 0.1 |\nval loss: 0.5\n")
    assert fresh(TrialReading.of(tmp_path, "a.1", 1, laid_down)) == [(3.0, 0.5)]


def test_of_a_flood_of_output_the_end_is_read_and_a_hostile_line_costs_little(tmp_path: Path) -> None:
    reading = TrialReading.of(tmp_path, "a.0", 1, LOSS)
    prints(tmp_path, "a.0", "loss=1\n" + "1" * MOST_AT_ONCE + "\n" + "loss=" * 100_000 + "\nloss=2\n")
    assert reading.fresh(over=False) == [Point(1.0, 2.0)]


@pytest.mark.parametrize(
    ("printed", "line", "value"),
    [
        ("{value}", "1.5e3", 1500.0),
        ("loss {value}.", "the loss 0.5. Next", 0.5),
        ("loss {value} |", "loss 5. |", 5.0),
        ("loss {value}epochs", "loss 3epochs", 3.0),
        ("loss={value}", "loss=nan", None),
        ("a {value}", "a b a 2", 2.0),
        ("loss: {value}", "Verlust: 1", "nothing"),
    ],
)
def test_a_pattern_finds_its_number(tmp_path: Path, printed: str, line: str, value: float | str | None) -> None:
    reading = TrialReading.of(tmp_path, "a.0", 1, SweepMetric(name="loss", printed=printed))
    prints(tmp_path, "a.0", f"{line}\n")
    assert fresh(reading) == ([] if value == "nothing" else [(1.0, value)])


@pytest.mark.parametrize("printed", [None, "{value}|", "a b {value} c d"])
def test_no_pattern_goes_back_over_what_it_has_read(printed: str | None) -> None:
    def repeats(parsed: object) -> set[str]:
        names: set[str] = set()
        if isinstance(parsed, tuple) and parsed and "REPEAT" in str(parsed[0]):
            names.add(str(parsed[0]))
        if isinstance(parsed, (tuple, list)) or hasattr(parsed, "data"):
            for part in getattr(parsed, "data", parsed):
                names |= repeats(part)
        return names

    wanted = _Wanted.of(printed, "{value}", "loss")
    assert repeats(parse(wanted.rest.pattern)) == {"POSSESSIVE_REPEAT"}


def test_of_many_lines_and_places_some_are_looked_at(tmp_path: Path) -> None:
    reading = TrialReading.of(tmp_path, "a.0", 1, SweepMetric(name="loss", printed="1{value}|"))
    prints(tmp_path, "a.0", "13|\n" * (MOST_LINES + 7))
    assert len(reading.fresh(over=False)) == MOST_LINES
    prints(tmp_path, "a.0", "1x" * (MOST_PLACES - 1) + "13|\n" + "1x" * MOST_PLACES + "13|\n")
    assert len(reading.fresh(over=False)) == 1


def test_a_link_in_place_of_the_reports_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"at": 1.0, "step": 1, "values": {"loss": 1.0}}) + "\n")
    files_of(tmp_path, "a.0").metrics.symlink_to(secret)
    assert fresh(TrialReading.of(tmp_path, "a.0", 1, LOSS)) == []


def test_trials_that_fall_behind_are_stopped_and_the_best_is_told(api: Api) -> None:
    job = api.submit(name="tune", sweep=SWEEP, gpus=1).id
    api.job(job)
    watch = SweepWatch(api.loop, api.service.sweeps)
    for index, loss in enumerate([0.5, 0.9, 0.4, 0.1]):
        report(api.state_dir, f"{job}.{index}", 3, loss)
        watch.look()
        watch.look()
    api.job(job)
    assert states(api, job) == {0: "running", 1: "stopped", 2: "running", 3: "running"}
    report(api.state_dir, f"{job}.0", 5, 0.45)
    for index in (0, 2, 3):
        api.engine.finish(TaskId(f"{job}.{index}", 1, 0))
    ended = api.job(job)
    assert (ended.state, ended.exit_code) == ("succeeded", 0)
    assert ended.array is not None
    assert (ended.array.succeeded, ended.array.pruned, ended.array.cancelled) == (3, 1, 0)
    found = trials(api, job)
    assert [(trial.index, trial.value, trial.step) for trial in found.trials] == [
        (3, 0.1, 3.0),
        (2, 0.4, 3.0),
        (0, 0.45, 5.0),
        (1, 0.9, 3.0),
    ]
    assert found.trials[0].parameters == {"lr": 0.4}
    assert found.trials[-1].stopped == "behind the best half of 2 at step 3: loss 0.9, and 0.5 was needed"
    told = [event["text"] for event in api.client.get(f"{JOBS}/{job}/events").json()["events"]]
    assert told[1:] == [
        f"trial 1 is stopped: {found.trials[-1].stopped}",
        "succeeded: 4/4 done, 1 stopped early; the best is trial 3 with 0.1",
    ]
    loser = api.job(f"{job}.1")
    assert (loser.state, loser.stopped_early, loser.state_text) == (
        "cancelled",
        found.trials[-1].stopped,
        "stopped early",
    )
    assert api.client.get(f"{JOBS}/{job}.1/why").json()["summary"] == f"it was stopped early: {loser.stopped_early}"
    assert api.job(f"{job}.2").stopped_early == ""
    of_trial = [event["text"] for event in api.client.get(f"{JOBS}/{job}.1/events").json()["events"]]
    assert f"the sweep asked for its end: {found.trials[-1].stopped}" in of_trial
    assert api.store.trials.of(job)[f"{job}.3"]["settled"] is True


def test_a_trial_that_runs_again_is_read_from_its_new_beginning(api: Api) -> None:
    job = api.submit(name="tune", sweep=SWEEP, retries=1).id
    api.job(job)
    report(api.state_dir, f"{job}.0", 1, 0.5)
    assert trials(api, job).trials[0].last == 0.5
    api.engine.finish(TaskId(f"{job}.0", 1, 0), Outcome.USER_ERROR, 1)
    api.job(job)
    report(api.state_dir, f"{job}.0", 1, 0.75, attempt=2)
    first = trials(api, job).trials[0]
    assert (first.index, first.value, first.last) == (0, 0.5, 0.75)


def test_trials_without_a_value_come_last_and_those_in_wait_are_listed(api: Api) -> None:
    goal = {"name": "score", "goal": "maximize"}
    job = api.submit(name="tune", sweep={"parameters": {"a": [1, 2, 3]}, "metric": goal, "parallel": 2}).id
    api.job(job)
    prints(api.state_dir, f"{job}.0", "score=1\n")
    prints(api.state_dir, f"{job}.1", "score=2\n")
    found = trials(api, job)
    assert [(trial.index, trial.state, trial.value) for trial in found.trials] == [
        (1, "running", 2.0),
        (0, "running", 1.0),
        (2, "waiting", None),
    ]
    api.client.post(f"{JOBS}/{job}/stop")
    api.job(job)
    assert states(api, job) == dict.fromkeys(range(3), "cancelled")


def test_what_a_trial_only_prints_is_among_its_metrics_with_its_times(api: Api) -> None:
    job = api.submit(name="tune", sweep=SWEEP).id
    api.job(job)
    files = files_of(api.state_dir, f"{job}.0")
    text = "begun\nstep=1 loss=0.5\nstep=2 loss=nan\nstep=3 loss=0.25\nstep=4 lo"
    prints(api.state_dir, f"{job}.0", text)
    marks = [Mark(0, 1_000_000, Stream.STDOUT), Mark(text.index("step=2"), 2_500_000, Stream.STDERR)]
    files.log_index.write_bytes(b"".join(mark.packed() for mark in marks))

    def shown(**params: int) -> MetricsInfo:
        answer = api.client.get(f"{JOBS}/{job}.0/metrics", params=params)
        return MetricsInfo.model_validate_json(answer.content)

    [series] = shown().series
    assert (series.task, series.name, shown().truncated) == (0, "loss", False)
    assert [(point.at, point.step, point.value) for point in series.points] == [
        (1.0, 1, 0.5),
        (2.5, 2, None),
        (2.5, 3, 0.25),
    ]
    assert [point.step for point in shown(last=1).series[0].points] == [3]
    assert shown(last=1).truncated
    report(api.state_dir, f"{job}.0", 1, 0.75)
    assert {each.name: each.points[0].value for each in shown().series} == {"loss": 0.75, "other": 1.0}


def test_a_sweep_of_which_a_trial_succeeded_has_succeeded(api: Api) -> None:
    job = api.submit(name="tune", sweep={"parameters": {"a": [1, 2]}}).id
    api.job(job)
    api.engine.finish(TaskId(f"{job}.0", 1, 0), Outcome.USER_ERROR, 1)
    api.engine.finish(TaskId(f"{job}.1", 1, 0))
    assert api.job(job).state == "succeeded"
    assert states(api, job) == {0: "failed", 1: "succeeded"}


def test_a_trial_stopped_before_a_kill_counts_as_stopped_afterwards(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    first = Server(tmp_path, world, clock)
    handed_in = first.submit("a", sweep=SWEEP)
    first.turn(3)
    handed_in.answer.result(0)
    first.store.trials.write("a", {"a.1": {"stopped": "behind", "rungs": {"3": 0.9}}})
    answer = first.loop.change_job(
        ChangeJob("a.1", lambda _, now: StopRequested(now, "a.1", "s", "behind"), "", "behind")
    )
    first.turn()
    answer.result(0)
    first.store.close()
    second = Server(tmp_path, world, clock)
    second.turn(3)
    info = second.loop.job_cache.get("a")
    assert info is not None
    assert info.array is not None
    assert (info.array.pruned, info.array.cancelled) == (1, 0)
    second.run_to_the_end()
    ended = second.store.jobs.ended_job("a")
    assert ended is not None
    assert ended.state == "succeeded"
    loser = second.store.jobs.ended_job("a.1")
    assert loser is not None
    assert loser.stopped_early == "behind"
    second.store.close()


def test_a_sweep_whose_metric_nobody_tells_says_so_at_the_first_end_and_once(api: Api) -> None:
    sweep = {"parameters": {"a": [1, 2, 3]}, "metric": {"name": "val/loss", "printed": "loss: {value}"}}
    job = api.submit(name="tune", sweep=sweep).id
    api.job(job)
    for index in range(3):
        api.engine.finish(TaskId(f"{job}.{index}", 1, 0))
        api.job(f"{job}.{index}")
        trials(api, job)
    api.job(job)
    told = [event["text"] for event in api.client.get(f"{JOBS}/{job}/events").json()["events"]]
    how = "report it with millpond.job.report(**{'val/loss': 0.5}), or print a line such as 'loss: 0.5'"
    assert told[1:] == [
        f"{job}.0 has succeeded and reported no val/loss; {how}",
        "succeeded: 3/3 done; no trial reported val/loss",
    ]


def test_a_trial_that_tells_nothing_beside_one_that_does_is_no_news(api: Api) -> None:
    job = api.submit(name="tune", sweep={"parameters": {"a": [1, 2]}, "metric": "loss"}).id
    api.job(job)
    prints(api.state_dir, f"{job}.1", "loss=2\n")
    api.engine.finish(TaskId(f"{job}.0", 1, 0))
    api.job(f"{job}.0")
    trials(api, job)
    assert len(api.client.get(f"{JOBS}/{job}/events").json()["events"]) == 1
