"""Training curves: reports and TensorBoard files as they grow, several attempts as one curve, what is sampled, who sees
which."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_infos import job_info
from millpond.model.errors import InvalidInputError
from millpond.node.task.records import TaskFiles, TaskId, attempt_dir
from millpond.node.task.workspace import OUTPUT
from millpond.server.jobs.curves import reports, service
from millpond.server.jobs.curves.curve import KEPT, Curve, CurvePoints, thinned
from millpond.server.jobs.curves.event_files import LARGEST_READ, EventFile, masked_crc32c, scalars_of
from millpond.server.jobs.curves.growing_files import GrowingFile
from millpond.server.jobs.curves.service import Curves, CurvesRequest
from millpond.server.store.jobs import Owners
from millpond.server.views.visibility import EVERYBODY, Reader
from millpond.server.web.charts.curves_page import (
    Across,
    CurvesView,
    MetricGoal,
    VerticalScale,
    best_so_far,
    goal_by_name,
    metric_chart,
)
from millpond.specs.api.jobs.curves import CurveInfo
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.api.jobs.trials import TrialList

JOB = job_info(name="net", tasks=[TaskInfo(task=0, role="", state="running")])


class Runs:
    """Runs that write what their programs write, and whoever compares them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.infos = {JOB.id: JOB}
        self.curves = Curves(folder, self.infos.get, _never, _no_trials, lambda array: [])

    def report(self, lines: Iterable[str], attempt: int = 1, job: str = JOB.id) -> None:
        path = TaskFiles.of(self.folder, TaskId(job, attempt, 0)).metrics
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(lines)

    def events(self, name: str, data: bytes, attempt: int = 1) -> Path:
        path = attempt_dir(self.folder, JOB.id, attempt) / OUTPUT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        return path

    def one(self, metric: str, points: int = 500, folder: str = "") -> CurveInfo:
        found = self.curves.compare(CurvesRequest((JOB.id,), (metric,), points), EVERYBODY)
        [curve] = [each for each in found.curves if each.folder == folder]
        return curve


def _never(job: str) -> object:
    raise AssertionError(job)


def _no_trials(array: JobInfo, most: int) -> TrialList:
    return TrialList(job=array.id, trials=[])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr("millpond.server.jobs.curves.service.READ_FOR_S", 3_600.0)  # on a machine that is busy, too
    return Runs(tmp_path)


def report(step: float | None, at: float = 1.0, **values: float | None) -> str:
    return json.dumps({"at": at, "step": step, "values": values}) + "\n"


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data if len(data) < 128 else _long(number, data)


def _long(number: int, data: bytes) -> bytes:
    size, head = len(data), bytearray([number << 3 | 2])
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + data


def event(step: int, tag: str, value: float, at: float = 5.0, as_tensor: bool = False) -> bytes:
    tensor = b"\x08\x01" + field(4, struct.pack("<f", value))
    number = field(8, tensor) if as_tensor else b"\x15" + struct.pack("<f", value)
    part = field(1, tag.encode()) + number
    return b"\x09" + struct.pack("<d", at) + b"\x10" + bytes([step]) + field(5, field(1, part))


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


# ---- what programs report -------------------------------------------------------------------------------------------


def test_reports_are_read_as_they_come_and_a_line_that_is_not_whole_waits(runs: Runs) -> None:
    line = report(2, loss=0.5)
    runs.report([report(1, loss=1.0), line[:10]])
    assert runs.one("loss").steps == [1.0]
    runs.report([line[10:]])
    found = runs.one("loss")
    assert (found.steps, found.values, found.last, found.count) == ([1.0, 2.0], [1.0, 0.5], 0.5, 2)


def test_a_program_that_writes_faster_than_it_is_read_is_read_up_to_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "task-0.metrics"
    place.write_text(report(0, loss=1.0))
    parsed = reports.reported_values

    def parsed_while_more_comes(plain: object) -> object:
        with place.open("a") as file:
            file.write(report(1, loss=1.0))
        return parsed(plain)

    monkeypatch.setattr(reports, "reported_values", parsed_while_more_comes)
    file = GrowingFile(tmp_path, place.name)
    assert [len(list(itertools.islice(reports.fresh_reports(file), 100))) for _ in range(3)] == [1, 1, 1]


def test_curves_without_a_point_count_as_what_is_kept_in_memory(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "KEPT_IN_ALL", 1_000)
    for number in range(3):
        runs.infos[f"empty-{number}"] = replace(JOB, id=f"empty-{number}")
        runs.report([report(1, **{f"metric-{each}": None for each in range(15)})], job=f"empty-{number}")
        runs.curves.compare(CurvesRequest((f"empty-{number}",)), EVERYBODY)
    assert list(runs.curves._known) == ["empty-2"]


def test_what_is_no_report_and_what_is_not_finite_is_in_no_curve(runs: Runs) -> None:
    hostile = ["[" * 5_000 + "\n", "null\n", "{}\n", '{"at": 1, "step": "x", "values": {}}\n', '1, {"at": 1}\n']
    runs.report([report(1, loss=1.0), *hostile, report(2, loss=None), report(3, loss=0.25)])
    found = runs.one("loss")
    assert (found.steps, found.not_finite) == ([1.0, 3.0], 1)


def test_a_later_attempt_goes_on_from_its_checkpoint(runs: Runs) -> None:
    runs.report(report(step, loss=1.0) for step in range(10))
    assert runs.one("loss").last_step == 9
    runs.infos[JOB.id] = replace(JOB, attempt=2)
    runs.report((report(step, loss=2.0) for step in range(6, 8)), attempt=2)
    found = runs.one("loss")
    assert found.steps == [0, 1, 2, 3, 4, 5, 6, 7]
    assert (found.values[5:], found.count) == ([1.0, 2.0, 2.0], 8)


def test_a_long_curve_is_sampled_keeps_its_peak_and_says_how_long_it_is(runs: Runs) -> None:
    count = 3 * KEPT
    runs.report(report(step, loss=9.0 if step == 777 else step / count) for step in range(count))
    found = runs.one("loss", points=50)
    assert found.count == count
    assert len(found.steps) <= 50
    assert (found.most, found.most_step) == (9.0, 777)
    assert 9.0 in found.values
    assert (found.steps[0], found.steps[-1]) == (0, count - 1)


def test_a_part_of_a_curve_has_more_of_its_points(runs: Runs) -> None:
    runs.report(report(step, loss=step % 7) for step in range(4_000))
    asked = CurvesRequest((JOB.id,), ("loss",), 100, begin=1_000, end=1_040)
    [curve] = runs.curves.compare(asked, EVERYBODY).curves
    assert curve.steps == [float(step) for step in range(999, 1_042)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(4, 40))
def test_thinning_keeps_ends_order_and_extremes(values: list[float], most: int) -> None:
    curve = Curve()
    for step, value in enumerate(values):
        curve.add(float(step), value, 0.0)
    kept = thinned(curve.ordered(), most)
    assert len(kept) <= most or len(kept) == len(values)
    assert list(kept.steps) == sorted(set(kept.steps))
    assert all(values[int(step)] == value for step, value in zip(kept.steps, kept.values, strict=True))
    assert (max(kept.values), min(kept.values)) == (max(values), min(values))
    assert (kept.steps[0], kept.steps[-1]) == (0.0, len(values) - 1.0)


def test_a_curve_of_few_points_is_not_touched() -> None:
    assert len(thinned(CurvePoints(), 4)) == 0


# ---- TensorBoard files ----------------------------------------------------------------------------------------------


def test_scalars_of_event_files_are_curves_of_their_folders(runs: Runs) -> None:
    for folder, value in (("train", 0.5), ("eval", 0.75)):
        data = record(b"\x1a\x05other") + record(event(1, "loss", value)) + record(event(2, "loss", 1, as_tensor=True))
        runs.events(f"logs/{folder}/events.out.tfevents.1.host", data)
    found = runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY)
    assert {(curve.folder, *curve.values) for curve in found.curves} == {
        ("logs/train", 0.5, 1.0),
        ("logs/eval", 0.75, 1.0),
    }
    assert found.metrics == ["loss"]


def test_a_growing_event_file_gives_each_scalar_once_wherever_it_was_cut(tmp_path: Path) -> None:
    data = b"".join(record(event(step, "a", step)) for step in range(40)) + record(b"\0" * (LARGEST_READ + 1))
    data += record(event(99, "a", 99))
    place = tmp_path / "events.out.tfevents.1"
    place.touch()
    file = EventFile(tmp_path, place.name)
    steps: list[int] = []
    for begin in range(0, len(data), 97 if len(data) < 10_000 else 1_009):
        with place.open("ab") as target:
            target.write(data[begin : begin + (97 if len(data) < 10_000 else 1_009)])
        steps += [scalar.step for scalar in file.fresh()]
    assert steps == [*range(40), 99]
    assert file.trouble == ""


@pytest.mark.parametrize("damage", [b"\0" * 64, b"\xff" * 64, record(b"x")[:8] + b"\1\2\3\4" + b"y" * 40])
def test_a_damaged_event_file_is_read_up_to_the_damage_and_that_is_said(runs: Runs, damage: bytes) -> None:
    good = record(event(1, "loss", 0.5))
    runs.events("events.out.tfevents.1", good + damage + record(event(2, "loss", 0.5)))
    found = runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY)
    assert found.curves[0].steps == [1.0]
    assert found.runs[0].notes == [f"events.out.tfevents.1: damaged at byte {len(good)}"]


def test_links_and_pipes_are_not_followed(runs: Runs, tmp_path: Path) -> None:
    elsewhere = tmp_path / "events.out.tfevents.secret"
    elsewhere.write_bytes(record(event(1, "loss", 0.5)))
    place = runs.events("events.out.tfevents.real", record(event(1, "accuracy", 0.5)))
    place.with_name("events.out.tfevents.link").symlink_to(elsewhere)
    assert runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY).metrics == ["accuracy"]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading_of_events(data: bytes) -> None:
    assert all(isinstance(scalar.tag, str) for scalar in scalars_of(data))


# ---- several runs ---------------------------------------------------------------------------------------------------


def test_runs_that_the_reader_may_not_see_are_as_if_they_were_not_there(runs: Runs) -> None:
    runs.infos["theirs"] = replace(JOB, id="theirs", user="eve", group="others")
    runs.report([report(1, loss=1.0)])
    runs.report([report(1, loss=2.0)], job="theirs")
    found = runs.curves.compare(
        CurvesRequest(("theirs", JOB.id, "never")), Reader(Owners("ada", frozenset({"vision"})))
    )
    assert [run.job for run in found.runs] == [JOB.id]
    assert found.missing == ["theirs", "never"]
    assert [curve.values for curve in found.curves] == [[1.0]]


def test_what_takes_long_to_read_follows_with_the_next_answer(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.report(report(step, loss=1.0) for step in range(100))
    monkeypatch.setattr(service, "READ_FOR_S", -1.0)
    found = runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY)
    assert (found.whole, found.curves) == (False, [])
    monkeypatch.undo()
    found = runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY)
    assert (found.whole, found.curves[0].count) == (True, 100)


def test_a_page_of_absurd_numbers_is_drawn(runs: Runs) -> None:
    absurd = (1e308, -1e308, 5e-324, 1e99, -1e99, 0.0)
    runs.report(report(step, at=at, big=value) for step, at, value in zip(absurd, absurd, absurd, strict=True))
    found = runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY)
    for across, scale in itertools.product(Across, VerticalScale):
        chart = metric_chart(found, "big", CurvesView(across, scale, MetricGoal.MINIMIZE, None, None))
        assert not chart.is_empty
    assert best_so_far(found, CurvesView(Across.TIME, VerticalScale.LOG, MetricGoal.MAXIMIZE, None, None)) is not None


@pytest.mark.parametrize(
    ("apart_s", "unit", "end"), [(2.0, "seconds", 6), (50.0, "minutes", 2.5), (3_600.0, "hours", 3)]
)
def test_the_best_so_far_is_shown_over_a_span_in_a_unit_that_suits_it(
    runs: Runs, apart_s: float, unit: str, end: float
) -> None:
    runs.report(report(step, at=1e9 + apart_s * step, loss=1.0 / step) for step in range(1, 5))
    found = runs.curves.compare(CurvesRequest((JOB.id,)), EVERYBODY)
    best = best_so_far(found, CurvesView(Across.STEP, VerticalScale.LINEAR, MetricGoal.MINIMIZE, None, None))
    assert best is not None
    assert (json.loads(best[0].points)["end"], best[1]) == (end, unit)


def test_nothing_named_is_an_error_with_a_remedy(runs: Runs) -> None:
    with pytest.raises(InvalidInputError, match="no job is named"):
        runs.curves.compare(CurvesRequest(()), EVERYBODY)


@pytest.mark.parametrize(
    ("shown", "goal"),
    [
        (["loss", "accuracy"], "minimize"),
        (["val/top1", "loss"], "maximize"),
        (["eval_Accuracy"], "maximize"),
        (["mapped_bytes"], "minimize"),
        ([], "minimize"),
    ],
)
def test_the_name_of_the_first_metric_says_which_values_are_better(shown: list[str], goal: str) -> None:
    assert goal_by_name(shown) == goal
