"""Traces become jobs, and wrong rows become complaints that say where and what."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from millpond.model.errors import InvalidInputError
from millpond.model.workloads import Priority, Role
from millpond.simulation.readers import read_workload
from millpond.simulation.readers.openb import read_nodes, read_order, read_pods

DATA = Path(__file__).parent.parent / "data"


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_case_form_of_philly_is_seconds_and_jobs_beyond_a_node_get_full_nodes_and_a_remainder() -> None:
    first, second, third = read_workload("philly", DATA / "case.csv", 8).jobs
    assert (first.job.id, first.submit_at, first.duration_s) == ("a", 0, 100)
    assert [(role.desired, role.request.devices) for role in second.job.roles] == [(1, 8), (1, 2)]
    assert third.duration_s == 30.5


def test_reduced_form_of_philly_counts_from_the_first_midnight_and_names_queues() -> None:
    first, second = read_workload("philly", DATA / "reduced.csv", 8).jobs
    assert (first.submit_at, first.job.queue) == (36000, "blue")
    assert (second.submit_at, second.job.queue, second.job.gpu_milli) == (86430, "green", 8000)


def test_muri_times_are_milliseconds_and_its_run_time_is_that_of_its_simulator() -> None:
    jobs = read_workload("muri", DATA / "muri.csv", 8).jobs
    assert [entry.submit_at for entry in jobs] == [0, 1.5, 2]
    assert [entry.duration_s for entry in jobs] == pytest.approx([1.015, 2.03, 0.5075])
    assert jobs[1].job.name == "large-net"


def test_chronus_times_are_minutes_and_jobs_without_gpus_are_counted_out() -> None:
    workload = read_workload("chronus", DATA / "chronus.csv", 8)
    best_effort, strict = workload.jobs
    assert workload.dropped == 1
    assert (strict.submit_at, strict.duration_s, strict.job.deadline_s) == (600, 300, 600 + 480)
    assert best_effort.job.deadline_s is None


@pytest.mark.parametrize("deadline", ["nan", "inf-20", "soon", ""])
def test_a_deadline_of_a_chronus_trace_that_is_no_time_is_refused_with_its_line(tmp_path: Path, deadline: str) -> None:
    header, first, *_ = (DATA / "chronus.csv").read_text(encoding="utf-8").splitlines()
    path = write(tmp_path, f"{header}\n{first.replace('8-20', deadline)}\n")
    with pytest.raises(InvalidInputError, match=r":2: .*expect_time_list"):
        read_workload("chronus", path, 8)


def test_native_columns_reach_the_job() -> None:
    first, second, third, fourth = (entry.job for entry in read_workload("native", DATA / "native.csv", 8).jobs)
    request = first.roles[0].request
    assert (first.user, first.queue, first.priority, first.deadline_s) == ("ada", "vision", Priority.HIGH, 500)
    assert (request.cpu_milli, request.memory_mib, request.models) == (8000, 4096, ("A100", "H100"))
    assert (second.gpu_milli, third.gpu_milli, fourth.gpu_milli) == (250, 500, 0)


def test_a_gzip_compressed_trace_reads_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "case.csv.gz"
    packed.write_bytes(gzip.compress((DATA / "case.csv").read_bytes()))
    assert [entry.job for entry in read_workload("philly", packed, 8).jobs] == [
        entry.job for entry in read_workload("philly", DATA / "case.csv", 8).jobs
    ]


def test_jobs_come_in_order_of_submission_whatever_the_order_of_rows(tmp_path: Path) -> None:
    path = write(tmp_path, "submit_s,duration_s,gpus,job\n9,1,1,late\n3,1,1,early\n9,1,1,later\n")
    assert [entry.job.id for entry in read_workload("native", path, 8).jobs] == ["early", "late", "later"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("0,x,1,", ":2: column 2 (duration_s): expected a number of at least 0, found 'x'"),
        ("0,-4,1,", ":2: column 2 (duration_s): expected a number of at least 0, found '-4'"),
        ("0,nan,1,", ":2: column 2 (duration_s): expected a number of at least 0, found 'nan'"),
        (",5,1,", ":2: column 1 (submit_s): expected a number of at least 0, found nothing"),
        ("0,5,1.5,", ":2: column 3 (gpus): expected a whole number, or one fraction of a card below 1"),
        ("0,5,-1,", ":2: column 3 (gpus): expected a number of at least 0, found '-1'"),
        ("0,5,1,-250", ":2: column 4 (gpu_milli): expected a whole number of at least 0, found '-250'"),
        ("0,5,1,1200", ":2: column 4 (gpu_milli): expected a share of 1 to 1000 milli, found '1200'"),
        ("0,5,2,500", ":2: 500 milli of each of 2 cards"),
        ("0,5,1", ":2: column 4: expected 4 cells, found 3"),
        ("0,5,1,250,9", ":2: column 5: expected 4 cells, found 5"),
    ],
)
def test_a_wrong_cell_is_refused_with_file_line_column_and_expectation(
    tmp_path: Path, row: str, complaint: str
) -> None:
    path = write(tmp_path, f"submit_s,duration_s,gpus,gpu_milli\n{row}\n")
    with pytest.raises(InvalidInputError) as refusal:
        read_workload("native", path, 8)
    assert refusal.value.cause.startswith(f"{path}{complaint}")
    assert "--skip-bad-rows" in refusal.value.remedy


def test_bad_rows_are_left_out_and_counted_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "submit_s,duration_s,gpus\n0,5,1\noops,5,1\n1,5\n2,5,1\n")
    workload = read_workload("native", path, 8, skip_bad_rows=True)
    assert [entry.submit_at for entry in workload.jobs] == [0, 2]
    assert len(workload.skipped) == 2


def test_many_bad_rows_are_told_as_the_first_few_and_a_count(tmp_path: Path) -> None:
    path = write(tmp_path, "submit_s,duration_s,gpus\n" + "x,1,1\n" * 12)
    with pytest.raises(InvalidInputError, match="and 7 more such rows") as refusal:
        read_workload("native", path, 8)
    assert len(refusal.value.cause.splitlines()) == 6


def test_a_job_id_that_repeats_is_refused_with_both_places(tmp_path: Path) -> None:
    path = write(tmp_path, "submit_s,duration_s,gpus,job\n0,5,1,same\n1,5,1,same\n")
    with pytest.raises(InvalidInputError, match=r":3: job id 'same' was used before, at .*:2"):
        read_workload("native", path, 8)


def test_a_header_that_lacks_a_column_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "submit_s,gpus\n0,1\n")
    with pytest.raises(InvalidInputError, match="column 'duration_s' is missing"):
        read_workload("native", path, 8)


def test_a_misspelt_column_of_a_native_trace_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    path = write(tmp_path, "submit_s,duration_s,gpus,gpu_mili\n0,1,1,500\n")
    with pytest.raises(InvalidInputError, match="column 4: unknown name 'gpu_mili'; did you mean 'gpu_milli'"):
        read_workload("native", path, 8)


def test_a_header_of_neither_philly_form_is_refused_with_both(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="neither form of the Philly trace"):
        read_workload("philly", write(tmp_path, "a,b\n1,2\n"), 8)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"submit_s,duration_s,gpus\n", "holds no job"),
        (b"submit_s,duration_s,gpus,user\n0,1,1,\xe9t\xe9\n", "trace.csv:2: not UTF-8 text; save it as UTF-8"),
        (b"submit_s;duration_s;gpus\n0;1;1\n", "separate columns with commas, not ';'"),
        (b"\x1f\x8b\x08broken", "is a broken gzip file"),
        (b"submit_s,submit_s\n", "is there twice"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_a_sentence(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=complaint):
        read_workload("native", path, 8)


def test_openb_pods_ask_for_shares_models_and_cpu() -> None:
    half, most, pair, idle = (
        entry.job.roles[0].request for entry in read_pods(DATA / "openb_pods.csv", skip_bad_rows=False).jobs
    )
    assert (half.devices, half.slice.compute_milli, half.slice.limit_milli) == (1, 500, 500)
    assert (most.models, most.slice.compute_milli) == (("T4",), 800)
    assert (pair.devices, pair.slice.compute_milli) == (2, 1000)
    assert (idle.devices, idle.cpu_milli) == (0, 2000)


def test_openb_nodes_have_their_cards() -> None:
    north, south = read_nodes(DATA / "openb_nodes.csv")
    assert [device.model for device in (*north.devices, *south.devices)] == ["P100", "P100", "T4", "T4"]


def test_an_arrival_order_repeats_pods_as_clones_and_refuses_strangers(tmp_path: Path) -> None:
    pods = read_pods(DATA / "openb_pods.csv", skip_bad_rows=False)
    order = write(tmp_path, "seq,source_pod\n1,half\n0,pair\n2,half\n")
    assert read_order(order, pods) == [2, 0, 0]
    stranger = write(tmp_path, "seq,source_pod\n0,nobody\n")
    with pytest.raises(InvalidInputError, match=r":2: column 2 \(source_pod\): expected the name of a pod"):
        read_order(stranger, pods)


def test_a_node_list_with_a_hole_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nnorth,1000,1000,2,\n")
    with pytest.raises(InvalidInputError, match=r":2: column 5 \(model\)"):
        read_nodes(path)


def native(
    folder: Path, row: str, columns: str = "submit_s,duration_s,gpus,gpu_milli,tasks,cpu_milli,memory_mib"
) -> Role:
    (entry,) = read_workload("native", write(folder, f"{columns}\n{row}\n"), 8).jobs
    (role,) = entry.job.roles
    return role


def test_tasks_divide_what_a_native_job_asks_for(tmp_path: Path) -> None:
    role = native(tmp_path, "0,1,8,,4,4000,8192")
    assert (role.desired, role.request.devices, role.request.cpu_milli, role.request.memory_mib) == (4, 2, 1000, 2048)
    assert native(tmp_path, "0,1,0,,3,300,0").desired == 3


def test_each_task_of_a_gang_may_ask_for_a_part_of_a_card(tmp_path: Path) -> None:
    role = native(tmp_path, "0,1,4,250,4,0,0")
    assert (role.desired, role.request.devices, role.request.slice.compute_milli) == (4, 1, 250)


@pytest.mark.parametrize(
    ("row", "column"), [("0,1,7,,2,0,0", "tasks"), ("0,1,8,250,4,0,0", "2 cards"), ("0,1,1,,0,0,0", "tasks")]
)
def test_tasks_that_cannot_divide_the_cards_are_refused(tmp_path: Path, row: str, column: str) -> None:
    with pytest.raises(InvalidInputError, match=column):
        native(tmp_path, row)
