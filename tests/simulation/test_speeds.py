"""Jobs are as fast as the world's table says, and the policy learns only what is measured of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.model.decisions import Decision, Start, Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import DurationPredicted, Event, JobSubmitted, ProgressMeasured, Tick
from millpond.model.reasons import Cause
from millpond.model.resources import SliceRequest, TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.readers import gavel
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.speeds import SpeedTable, read_speeds

SPEEDS: dict[str, Any] = {
    "v100": {
        "('bert', 1)": {"null": 10.0, "('lm', 1)": [6.0, 3.0], "('bert', 1)": [0.0, 0.0]},
        "('bert', 4)": {"null": 30.0},
        "('lm', 1)": {"null": 5.0, "('bert', 1)": [3.0, 6.0]},
    },
    "v100_unconsolidated": {"('bert', 1)": {"null": 10.0}, "('bert', 4)": {"null": 15.0}},
    "k80": {"('bert', 1)": {"null": 2.0}, "('lm', 1)": {"null": 5.0}},
}


def table(folder: Path, speeds: Mapping[str, Any] = SPEEDS) -> SpeedTable:
    path = folder / "speeds.json"
    path.write_text(json.dumps(speeds))
    return read_speeds(path)


def job(name: str, cards: int = 1, milli: int = 1000, at: float = 0.0, lasts: float = 100.0) -> TraceJob:
    piece = SliceRequest(milli, limit_milli=milli) if milli < 1000 else SliceRequest()
    roles = (Role.rigid(TaskRequest(0, 0, 1, piece), 1),) if milli < 1000 else gang_roles(cards, 2)
    return TraceJob(Job(f"{name}-{at:g}-{cards}", roles, name=name), at, lasts)


def played(world: World) -> tuple[Simulation, list[Any]]:
    simulation = Simulation(world, make_scheduler(Settings(ordering="fifo")), record=True)
    simulation.run()
    return simulation, [event for event in simulation.log if isinstance(event, ProgressMeasured)]


def world(folder: Path, cluster: str, *jobs: TraceJob) -> World:
    return World(uniform_cluster(cluster), Workload(jobs, "made"), speeds=table(folder))


def test_a_job_lasts_as_long_as_its_cards_are_slow(tmp_path: Path) -> None:
    for cluster, ended_at in (("1x1:V100-32GB", 100.0), ("1x1:K80", 500.0)):
        simulation, _ = played(world(tmp_path, cluster, job("bert")))
        assert simulation.works[0].ended_at == pytest.approx(ended_at)


def test_a_gang_that_is_spread_over_nodes_is_slower(tmp_path: Path) -> None:
    simulation, (measured,) = played(world(tmp_path, "2x2:V100", job("bert", 4)))
    assert simulation.works[0].ended_at == pytest.approx(200.0)
    assert (measured.at, measured.steps_per_s, measured.gpu_milli) == (30.0, pytest.approx(15.0), 4_000)


def test_two_jobs_on_a_card_are_as_fast_as_their_pair_and_that_is_measured(tmp_path: Path) -> None:
    first, second = job("bert", milli=500, lasts=60.0), job("lm", milli=500, lasts=60.0)
    simulation, measured = played(world(tmp_path, "1x1:V100", first, second))
    ends = [work.ended_at for work in simulation.works]
    assert ends == [pytest.approx(100.0), pytest.approx(100.0)]
    assert [(each.at, each.steps_per_s) for each in measured] == [
        (30.0, pytest.approx(6.0)),
        (30.0, pytest.approx(3.0)),
    ]


def test_a_job_is_measured_anew_when_the_other_on_its_card_has_ended(tmp_path: Path) -> None:
    first, second = job("bert", milli=500, lasts=600.0), job("lm", milli=500, lasts=60.0)
    _, measured = played(world(tmp_path, "1x1:V100", first, second))
    assert [(each.at, each.steps_per_s) for each in measured if each.job == "job-0"] == [
        (30.0, pytest.approx(6.0)),
        (130.0, pytest.approx(10.0)),
    ]


def test_two_jobs_that_do_not_fit_together_hardly_go_on(tmp_path: Path) -> None:
    pair = [job("bert", milli=500, at=at, lasts=10.0) for at in (0.0, 1.0)]
    simulation, _ = played(replace(world(tmp_path, "1x1:V100", *pair), until=1e6))
    assert all(work.ended_at != work.ended_at for work in simulation.works)


def test_speeds_lie_between_known_numbers_of_cards_and_stay_beyond_them(tmp_path: Path) -> None:
    known = table(tmp_path)
    speeds = [known.of("bert", cards, "V100", is_spread=False) for cards in (1, 2, 3, 4, 8)]
    assert speeds == pytest.approx([10.0, 10.0 + 20 / 3, 10.0 + 40 / 3, 30.0, 30.0])


def test_jobs_without_speeds_are_as_fast_everywhere_and_not_measured(tmp_path: Path) -> None:
    simulation, measured = played(world(tmp_path, "1x1:K80", job("other")))
    assert (simulation.works[0].ended_at, measured) == (100.0, [])


def test_until_something_is_measured_no_decision_depends_on_the_truth(tmp_path: Path) -> None:
    jobs = [job("bert", 1 + number % 3, at=5.0 * number, lasts=90.0) for number in range(8)]
    honest = world(tmp_path, "2x2:V100", *jobs)
    other = replace(
        honest, speeds=table(tmp_path, {"v100": {"('bert', 1)": {"null": 7.0}, "('bert', 4)": {"null": 9}}})
    )
    first, second = (_until_measured(played(each)[0].log) for each in (honest, other))
    assert first == second
    assert any(isinstance(event, JobSubmitted) for event in first)
    assert not any(isinstance(event, DurationPredicted) for event in first)


PAIRED: dict[str, Any] = {
    "v100": {
        "('bert', 1)": {"null": 10.0, "('lm', 1)": [8.0, 4.5], "('bert', 1)": [7.0, 7.0]},
        "('lm', 1)": {"null": 5.0, "('bert', 1)": [4.5, 8.0], "('lm', 1)": [3.5, 3.5]},
    }
}


def with_pairs(part: float) -> dict[str, Any]:
    """The same, where jobs in pairs are so much slower."""
    return {
        "v100": {
            job: {other: speed if other == "null" else [part * each for each in speed] for other, speed in jobs.items()}
            for job, jobs in PAIRED["v100"].items()
        }
    }


def test_until_a_pair_is_measured_no_decision_depends_on_how_fast_pairs_are(tmp_path: Path) -> None:
    jobs = [job(("bert", "lm")[number % 2], at=30.0 * number, lasts=600.0) for number in range(10)]
    honest, logs = world(tmp_path, "1x2:V100", *jobs), []
    for part in (1.0, 0.8, 0.1):
        played_on = replace(honest, packs=True, speeds=table(tmp_path, with_pairs(part)))
        observer = Observer()
        Simulation(played_on, make_scheduler(Settings(ordering="fifo")), observer=observer).run()
        logs.append(observer.log)
    firsts = [next(at for at, what in enumerate(log) if _is_of_a_pair(what)) for log in logs]
    assert logs[0][: firsts[0]] == logs[1][: firsts[1]] == logs[2][: firsts[2]]
    assert any(isinstance(what, Start) and what.cause is Cause.SHARES for what in logs[0][: firsts[0]])
    ends = [sum(isinstance(what, Stop) and what.cause is Cause.UNPACKED for what in log) for log in logs]
    assert ends[0] == 0 < ends[2]


class Observer:
    """Events and decisions in their order."""

    def __init__(self) -> None:
        self.log: list[Event | Decision] = []

    def happened(self, event: Event) -> None:
        self.log.append(event)

    def decided(self, at: float, decisions: Sequence[Decision]) -> None:
        self.log += decisions


def _is_of_a_pair(what: Event | Decision) -> bool:
    """Whether it tells of another speed than those alone."""
    return isinstance(what, ProgressMeasured) and what.steps_per_s not in (10.0, 5.0)


def test_jobs_that_share_cards_are_done_sooner_together(tmp_path: Path) -> None:
    jobs = [job(("bert", "lm")[number % 2], at=30.0 * number, lasts=600.0) for number in range(10)]
    alone = replace(world(tmp_path, "1x2:V100", *jobs), speeds=table(tmp_path, PAIRED))
    ends = []
    for each in (alone, replace(alone, packs=True)):
        simulation = Simulation(each, make_scheduler(Settings(ordering="fifo")))
        simulation.run()
        ends.append(max(work.ended_at for work in simulation.works))
    assert ends[1] < 0.8 * ends[0]


def _until_measured(log: list[Event]) -> list[Event]:
    first = next(index for index, event in enumerate(log) if isinstance(event, ProgressMeasured))
    while isinstance(log[first - 1], Tick):
        first -= 1
    return log[:first]


def test_gavel_jobs_last_as_long_as_their_steps_take_on_the_fastest_cards(tmp_path: Path) -> None:
    path = tmp_path / "gavel.trace"
    cells = ["bert", "python3 main.py -b 16", "cv", "--steps", "1", "3000", "4", "1", "-1.0", "25"]
    path.write_text("\t".join(cells) + "\n" + "\t".join(["lm", *cells[1:6], "1", *cells[7:]]) + "\n")
    first, second = gavel.read(path, 8, table(tmp_path), skip_bad_rows=False).jobs
    assert (first.job.name, first.job.gpu_milli, first.submit_at, first.duration_s) == ("bert", 4_000, 25.0, 100.0)
    assert (second.job.name, second.duration_s) == ("lm", 600.0)


@pytest.mark.parametrize(
    ("column", "cell", "complaint"),
    [(0, "gpt", "job_type"), (5, "many", "total_steps"), (6, "0", "scale_factor"), (9, "-1", "arrival_time")],
)
def test_a_wrong_cell_of_a_gavel_trace_is_named(tmp_path: Path, column: int, cell: str, complaint: str) -> None:
    cells = ["bert", "python3 main.py", "cv", "--steps", "1", "3000", "4", "1", "-1.0", "25"]
    cells[column] = cell
    (tmp_path / "gavel.trace").write_text("\t".join(cells) + "\n")
    with pytest.raises(InvalidInputError, match=f"gavel.trace:1: column {column + 1} \\({complaint}\\)"):
        gavel.read(tmp_path / "gavel.trace", 8, table(tmp_path), skip_bad_rows=False)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"v100": 3}', '{"v100": {"bert": {"null": 1}}}', '{"v100": {"(\'bert\', 0)": {"null": 1}}}',
     '{"v100": {"(\'bert\', 1)": {"null": NaN}}}', '{"v100": {"(\'bert\', 1)": {"null": 0}}}', "[" * 100_000,
     '{"v100": {"(\'bert\', 1)": {"null": 1, "x": [1, 1]}}}', '{"v100": {"__import__(\'os\')": {"null": 1}}}'],
)  # fmt: skip
def test_a_file_that_has_no_speeds_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=r"speeds\.json"):
        read_speeds(path)
