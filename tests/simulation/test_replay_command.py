"""``pond replay`` as a person or a program meets it."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from millpond.client.cli.commands.simulation.replay import command
from millpond.client.cli.commands.simulation.replay_table import duration, number
from millpond.client.cli.error_output import BROKEN_PIPE
from millpond.model.errors import MillpondError
from millpond.simulation import kernel_warmup

DATA = Path(__file__).parent.parent / "data"
CASE = ("--format", "philly", "--jobs", str(DATA / "case.csv"), "--cluster", "2x8")
OPENB = ("--format", "openb", "--jobs", str(DATA / "openb_pods.csv"), "--nodes", str(DATA / "openb_nodes.csv"))


def pond(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def figures(*arguments: str) -> dict[str, Any]:
    result = pond(*arguments, "--json", "-")
    assert result.exception is None, result.output
    plain: dict[str, Any] = json.loads(result.stdout)
    return plain


def refusal(*arguments: str) -> MillpondError:
    error = pond(*arguments).exception
    assert isinstance(error, MillpondError)
    return error


@pytest.mark.parametrize("before", [None, "the figures of yesterday"])
def test_a_result_that_finds_the_disk_full_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    result = tmp_path / "figures.json"
    if before is not None:
        result.write_text(before)

    def full(path: Path, *_: Any, **__: Any) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    assert refusal(*CASE, "--json", str(result)).cause == f"{result} cannot be written (No space left on device)"
    assert [path.read_text() for path in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_result_is_written_through_a_link_and_keeps_the_rights_of_the_file(tmp_path: Path) -> None:
    result, link = tmp_path / "figures.json", tmp_path / "link"
    result.touch(0o600)
    link.symlink_to(result)
    assert pond(*CASE, "--json", str(link)).exception is None
    assert link.is_symlink()
    assert json.loads(result.read_text())["jobs"] == 3
    assert result.stat().st_mode & 0o777 == 0o600
    assert pond(*CASE, "--json", os.devnull).exception is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "link"]


def test_figures_of_a_schedule_computed_by_hand() -> None:
    plain = figures(*CASE, "--ordering", "fifo")
    # a and c run at once on the cards they need; b needs a whole node and two cards more, and there is room
    assert plain["jobs"] == 3
    assert plain["avg_jct_s"] == pytest.approx((100 + 50 + 30.5) / 3, abs=1e-5)
    assert plain["avg_wait_s"] == 0
    assert plain["makespan_s"] == 100
    assert plain["preemptions"] == 0


def test_every_promised_figure_and_parameter_is_there() -> None:
    plain = figures(*CASE)
    for key in ("avg_jct_s", "p99_jct_s", "avg_wait_s", "p99_wait_s", "cpu_s", "process_cpu_s", "jobs_per_cpu_s"):
        assert plain[key] is not None
    parameters = plain["parameters"]
    assert parameters["durations"] == "none"
    assert parameters["preemption_cost"] == {"small_s": 40.0, "large_s": 60.0, "large_above_gpus": 8}
    assert parameters["ordering"] == "default"


def test_muri_preempts_for_nothing_unless_told_otherwise() -> None:
    muri = ("--format", "muri", "--jobs", str(DATA / "muri.csv"), "--cluster", "1x4")
    assert figures(*muri)["parameters"]["costs"]["preemption"]["small_s"] == 0
    assert figures(*muri, "--preemption-cost", "30")["parameters"]["costs"]["preemption"]["large_s"] == 30


def test_where_no_job_asks_for_a_gpu_none_counts_as_fragmented(tmp_path: Path) -> None:
    trace = tmp_path / "cpu.csv"
    trace.write_text("job,submit_s,duration_s,gpus,cpu_milli\na,0,60,0,1000\nb,5,60,0,1000\n")
    replayed = ("--format", "native", "--jobs", str(trace), "--cluster", "1x4")
    assert figures(*replayed)["fragmentation_percent"] is None
    assert [line.split()[-1] for line in pond(*replayed).stdout.splitlines() if "fragmented" in line] == ["n/a"]


def test_json_to_a_file_leaves_the_table_on_the_terminal_within_80_columns(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    result = pond(*CASE, "--json", str(target))
    assert json.loads(target.read_text())["jobs"] == 3
    assert "completion" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert result.stderr == ""


def test_a_packing_replay_says_what_was_allocated_with_the_mix_known_and_learnt() -> None:
    plain = figures(*OPENB, "--seed", "1")
    assert set(plain["allocated_gpu_percent"]) == {"95", "100", "130"}
    assert plain["placed"] + plain["failed"] == plain["arrivals"]
    assert set(plain["learnt_mix"]) >= {"allocated_gpu_percent", "unallocated_gpus", "fragmented_gpu_milli"}
    allocated = plain["allocated_gpu_percent"]["130"]
    assert plain["unallocated_gpus"] == pytest.approx(4 * (1 - allocated / 100), abs=1e-3)


def test_a_packing_replay_repeats_for_a_seed() -> None:
    def outcome(seed: int) -> Any:
        plain = figures(*OPENB, "--seed", str(seed), "--until", "3")
        return plain["allocated_gpu_percent"], plain["arrivals"]

    assert outcome(1) == outcome(1)
    assert len({str(outcome(seed)) for seed in range(6)}) > 1


def test_pods_in_a_given_order_are_placed_for_good_or_fail_for_good(tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text("seq,source_pod\n0,pair\n1,pair\n2,half\n3,idle\n")
    plain = figures(*OPENB, "--order", str(order))
    assert (plain["placed"], plain["failed"]) == (3, 1)
    assert plain["allocated_gpu_percent"]["100"] == 100
    assert plain["allocated_gpu_percent"]["130"] is None


def test_without_durations_no_column_but_submission_and_gpus_changes_the_schedule(tmp_path: Path) -> None:
    draws = random.Random(11)
    header = "submit_s,duration_s,gpus,job,user,queue,name,cpu_milli,memory_mib,gpu_models,priority,deadline_s\n"
    rows = [(draws.randrange(2000), draws.randrange(1, 900), draws.choice([1, 1, 2, 4, 8])) for _ in range(60)]

    def outcome(name: str) -> dict[str, Any]:
        path = tmp_path / name
        lines = [
            f"{at},{length},{gpus},{name}-{number},u{draws.randrange(5)},q{draws.randrange(3)},n{draws.randrange(9)},"
            f"{draws.randrange(9000)},{draws.randrange(9000)},{draws.choice(['', 'GPU'])},"
            f"{draws.choice(['low', 'high', ''])},{draws.choice(['', '50', '5000'])}\n"
            for number, (at, length, gpus) in enumerate(rows)
        ]
        path.write_text(header + "".join(lines))
        plain = figures("--format", "native", "--jobs", str(path), "--cluster", "2x4")
        return {key: plain[key] for key in ("avg_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s", "preemptions")}

    assert outcome("one") == outcome("other")


def test_a_synthetic_workload_can_be_kept_and_played_again(tmp_path: Path) -> None:
    kept = tmp_path / "jobs.csv"
    made = figures(
        "--format", "synthetic", "--jobs", "60", "--cluster", "2x8", "--seed", "4", "--write-jobs", str(kept)
    )
    again = figures("--format", "native", "--jobs", str(kept), "--cluster", "2x8")
    assert again["avg_jct_s"] == pytest.approx(made["avg_jct_s"], abs=0.01)


def test_bad_rows_are_left_out_and_counted_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit_s,duration_s,gpus\n0,10,1\nx,10,1\n5,10,1\n")
    result = pond("--format", "native", "--jobs", str(path), "--cluster", "1x4", "--skip-bad-rows", "--json", "-")
    assert json.loads(result.stdout)["skipped_rows"] == 1
    assert "left out 1 bad rows" in result.stderr
    assert ":3: column 1 (submit_s)" in result.stderr


def test_a_trace_comes_through_a_pipe_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=["submit_s,duration_s,gpus\n0,60,1\n"], daemon=True)
    writer.start()
    assert figures("--format", "native", "--jobs", str(pipe), "--cluster", "1x8")["jobs"] == 1
    writer.join(10)


def test_a_job_larger_than_the_cluster_is_refused_before_anything_runs() -> None:
    error = refusal("--format", "philly", "--jobs", str(DATA / "case.csv"), "--cluster", "1x8")
    assert "case.csv:3: job 'b' can never run here" in error.cause
    assert "larger cluster" in error.remedy
    assert error.exit_code == 2


def test_an_unknown_card_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit_s,duration_s,gpus,gpu_models\n0,10,1,B7\n")
    error = refusal("--format", "native", "--jobs", str(path), "--cluster", "1x4:A100", "--durations", "exact")
    assert "B7" in error.cause


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--format", "philly", "--jobs", "/nowhere.csv", "--cluster", "2x8"), "no trace file"),
        (("--format", "philly", "--jobs", str(DATA / "case.csv")), "no cluster is given"),
        ((*CASE, "--nodes", str(DATA / "openb_nodes.csv")), "two clusters are given"),
        ((*CASE, "--until", "2"), "--until has no meaning for --format philly"),
        ((*OPENB, "--durations", "exact"), "--durations has no meaning for --format openb"),
        ((*CASE, "--load", "0.5"), "--load has no meaning for --format philly"),
        ((*CASE, "--seed", str(2**64)), f"a seed of {2**64}"),
        (("--format", "synthetic", "--jobs", "many", "--cluster", "2x8"), "--jobs 'many'"),
        ((*CASE, "--json", "/nowhere/result.json"), "cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence_with_a_remedy(arguments: tuple[str, ...], complaint: str) -> None:
    error = refusal(*arguments)
    assert complaint in error.cause
    assert error.remedy


@pytest.mark.parametrize("option", ["--load", "--preemption-cost", "--start-cost", "--until", "--replan-period"])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_a_number_that_is_not_finite_is_refused_before_anything_runs(option: str, number: str) -> None:
    result = CliRunner().invoke(command, [*CASE, option, number], standalone_mode=False)
    assert isinstance(result.exception, click.BadParameter)
    assert f"{number} is not a finite number" in result.exception.message


@pytest.mark.parametrize(
    ("option", "number", "bounds"),
    [
        ("--preemption-cost", "-3", "x>=0"),
        ("--sharing-speed", "0", "0<x<=1"),
        ("--replan-period", "-1", "x>=0"),
        ("--load", "0", "x>0"),
    ],
)
def test_a_number_out_of_bounds_is_refused_and_the_help_names_the_bounds(option: str, number: str, bounds: str) -> None:
    result = CliRunner().invoke(command, [*CASE, option, number], standalone_mode=False)
    assert isinstance(result.exception, click.BadParameter)
    assert result.exception.message.endswith(f"is not in the range {bounds}.")
    assert f"[{bounds}]" in CliRunner().invoke(command, ["--help"]).output


def test_an_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("millpond.simulation.queueing.replay", interrupted)
    result = CliRunner().invoke(command, CASE, standalone_mode=False)
    assert result.return_value == 130
    assert result.stderr == "pond: interrupted after 0 jobs; nothing was written\n"
    assert result.stdout == ""


@pytest.mark.long
def test_a_reader_of_the_table_that_has_gone_gives_the_exit_code_of_a_broken_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        program = [sys.executable, "-c", "from millpond.client.cli.main import main; main()", "replay", *CASE]
        ended = subprocess.run(program, stdout=gone, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (BROKEN_PIPE, "")


def test_numbers_are_shown_in_the_unit_that_reads_best() -> None:
    assert [duration(value) for value in (1.25, 130, 7300, 200_000, None)] == [
        "1.2 s",
        "2.17 min",
        "2.03 h",
        "2.31 d",
        "-",
    ]
    assert [number(value) for value in (0.1234, 12.345, 4321.9, None)] == ["0.123", "12.3", "4,322", "-"]


def test_what_takes_long_the_first_time_is_said_before_and_nothing_where_all_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def compiling(on_compiled: Callable[[int], None]) -> Iterator[None]:
        for compiled in range(3):
            on_compiled(compiled)
        yield

    assert "compiling" not in pond(*CASE).stderr
    monkeypatch.setattr(kernel_warmup, "kernel_progress", compiling)
    assert pond(*CASE).stderr.count("compiling kernels, once on this machine") == 1


def test_cards_are_shared_by_what_is_measured_and_not_beside_suspensions(tmp_path: Path) -> None:
    speeds = tmp_path / "speeds.json"
    speeds.write_text(json.dumps({"v100": {"('lm', 1)": {"null": 1.0}}}))
    assert "--speeds" in str(refusal(*CASE, "--packs"))
    assert "--suspends" in str(refusal(*CASE, "--packs", "--speeds", str(speeds), "--suspends"))
    assert "--packs" in str(refusal(*OPENB, "--packs"))
