"""The program that measures on a card, tried on a pretended one: shape and outcome, never speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import run
from benchmarks.gpu.bench import Measurement
from benchmarks.gpu.catalogue import CATALOGUE, ON_REQUEST, file_of
from benchmarks.gpu.results import Result, Status, append
from benchmarks.gpu.swapping import move, state, undone
from fake_driver.driver import MIB, Action, FakeDriver
from fake_driver.program import Program
from millpond.node.sharing.helper import CheckpointHelper, ProcessState

PROGRAM = Path(run.__file__)


def measured(driver: FakeDriver, folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code, and what was said on standard error."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--out", str(folder), *arguments],
        env={**os.environ, **driver.env()},
        capture_output=True,
        text=True,
        timeout=280,
    )
    return done.returncode, done.stderr


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def until(holds: Callable[[], bool]) -> None:
    """Wait for real processes."""
    give_up = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_a_machine_without_a_card_is_told_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == run.NO_CARD
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_card_with_work_on_it_is_not_measured(fake_driver: FakeDriver, tmp_path: Path) -> None:
    with Program(fake_driver.env()) as somebody:
        assert somebody("start") == [0]
        assert somebody("alloc", MIB)[0] == 0
        code, said = measured(fake_driver, tmp_path, "--only", "m00")
    assert code == run.NO_CARD
    assert said.count("\n") == 1


@pytest.mark.long
def test_what_was_found_is_there_though_the_program_is_killed_before_its_end(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    earlier = {"measurement": "m00_probe", "case": "of an earlier run"}
    append(tmp_path / "truth.jsonl", earlier)
    fake_driver.plan("cuCheckpointProcessGetState", Action.HANG)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--out", str(tmp_path), "--only", "m00"],
        env={**os.environ, **fake_driver.env()},
        stderr=subprocess.DEVNULL,
    )
    until(lambda: len(lines(tmp_path / "truth.jsonl")) > 2)
    process.kill()
    process.wait()
    found = lines(tmp_path / "truth.jsonl")
    assert found[0] == earlier
    assert [line["case"] for line in found[1:]] == ["driver's exports", "look-ups"]
    until(lambda: fake_driver.used_bytes(fake_driver.cards[0]) == 0)


def test_what_is_not_known_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["--only", "m77", "--out", str(tmp_path)])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        run.main(["--limit-s", "0", "--out", str(tmp_path)])
    assert ended.value.code == 2


@pytest.mark.parametrize("limit_s", [60.0, 600.0])
def test_what_is_planned_takes_four_fifths_of_the_limit(limit_s: float) -> None:
    planned = run.planned_s(run.choose(""), limit_s)
    assert sum(planned.values()) == pytest.approx(0.8 * limit_s)
    assert next(iter(planned)) == "m00_probe"
    assert not planned.keys() & ON_REQUEST


def test_what_takes_longer_than_planned_leaves_out_nothing_of_what_comes_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]

    def measured(each: Measurement, seconds: float, left_s: float, *_: object) -> Result:
        hangs = each.name in ("m02_memcap", "m08_ckpt_edges")
        now[0] += left_s if hangs else seconds
        return Result(each.name, each.question, each.pass_line, Status.PASS, "", "", seconds)

    monkeypatch.setattr(run, "measure_alone", measured)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    results = run.measure_all(run.choose(""), 600.0, tmp_path, 0)
    assert {result.status for result in results} == {Status.PASS}
    assert now[0] <= 600.0


def test_what_is_planned_for_each_is_listed_by_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list", "--limit-s", "300", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["planned_s"] == run.planned_s(run.choose(""), 300.0)


def test_truth_comes_before_time_and_moves_come_last() -> None:
    files = [file_of(each.name, Path()).stem for each in run.choose("")]
    assert list(dict.fromkeys(files)) == ["truth", "time", "moves"]
    assert [each.name for each in run.choose("m00")] == ["m00_probe"]
    assert [each.name for each in run.choose("m")] == list(CATALOGUE)


def test_a_measurement_that_is_ended_says_how_long_it_had(tmp_path: Path) -> None:
    result = run.measure_alone(CATALOGUE["m00_probe"], 60.0, 0.1, tmp_path, 0)
    assert (result.status, result.reason) == (Status.FAIL, "it broke off: it did not end within 0 s")
    assert result.seconds >= 0.1
    assert lines(tmp_path / "truth.jsonl")[-1]["seconds"] == result.seconds


@pytest.mark.long
def test_a_measurement_that_breaks_off_is_a_failure_with_its_last_word(fake_driver: FakeDriver, tmp_path: Path) -> None:
    fake_driver.plan("cuDevicePrimaryCtxRetain", result=2)
    code, _ = measured(fake_driver, tmp_path, "--only", "m00")
    assert code == 1
    result = Result.read(tmp_path / "truth.jsonl", "m00_probe")
    assert result is not None
    assert result.status is Status.FAIL
    assert "CUDA_ERROR_OUT_OF_MEMORY" in result.reason


@pytest.mark.long
def test_cheap_measurements_say_where_they_were_made_and_what_was_found(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    all_of_it = tmp_path / "all.json"
    code, said = measured(fake_driver, tmp_path, "--only", "m00,m13", "--json", str(all_of_it))
    assert code == 0, said
    assert [line.split()[:2] for line in said.splitlines()] == [["m00_probe", "pass"], ["m13_remap", "pass"]]
    told = lines(tmp_path / "truth.jsonl")[-1]
    assert json.loads(all_of_it.read_text())["results"][0] == told
    assert told["status"] == "pass"
    assert told["place"]["card"] == "NVIDIA H200"
    assert told["place"]["driver"]
    assert told["figures"]["checkpoints"]["usable"]
    assert len(told["figures"]["checkpoint_calls"]) == 6
    parts = {line["case"]: line["found"] for line in lines(tmp_path / "truth.jsonl")[:-1]}
    assert parts["look-ups"]["cuMemAlloc"]["12000, flags 0"] == "cuMemAlloc_v2"
    assert parts["states of processes"]["computes"] == "running"
    assert parts["states of processes"]["uses no card"] == "no device"
    assert parts["states of processes"]["has ended"] == "CUDA_ERROR_OPERATING_SYSTEM"
    assert [True, 0] not in parts["listed processes"]["Compute"]
    assert "cuMemAlloc_v2" in (tmp_path / "driver-symbols.txt").read_text().split()
    moved = Result.read(tmp_path / "moves.jsonl", "m13_remap")
    assert moved is not None
    assert moved.figures["identity"] == ["ok", "locked"]
    assert len(list(tmp_path.iterdir())) <= 6
    assert fake_driver.used_bytes(fake_driver.cards[0]) == 0


FIND = """
import os, sys
from benchmarks.gpu.bench import find_card
from millpond.model.errors import UnavailableError
for visible in sys.argv[1:]:
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        print(find_card()[0].index)
    except UnavailableError as error:
        print("CUDA_VISIBLE_DEVICES" in str(error))
"""


def test_only_cards_that_may_be_seen_are_measured(fake_driver: FakeDriver) -> None:
    fake_driver.add_card(4096)
    found = {"1": "1", "GPU-00000002": "1", "7,0": "0", "GPU-f": "True", "": "True"}
    done = subprocess.run(
        [sys.executable, "-c", FIND, *found],
        env={**os.environ, **fake_driver.env(), "PYTHONPATH": str(PROGRAM.parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == list(found.values())


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, run.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)])
def test_whatever_ends_the_program_ends_all_that_it_started(
    fake_driver: FakeDriver, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    [card] = fake_driver.cards
    fake_driver.set("context_bytes", 300 * MIB)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--out", str(tmp_path), "--only", "m06"],
        env={**os.environ, **fake_driver.env()},
        stderr=subprocess.DEVNULL,
    )
    until(lambda: fake_driver.used_bytes(card) > 0)
    process.send_signal(number)
    assert process.wait(180) == code
    until(lambda: fake_driver.used_bytes(card) == 0)
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_program_whose_move_is_under_way_is_brought_back_once_it_is_done(fake_driver: FakeDriver) -> None:
    driver, other = (CheckpointHelper({**os.environ, **fake_driver.env()}) for _ in range(2))
    with Program(fake_driver.env()) as program, ThreadPoolExecutor() as pool:
        assert program("start") == [0]
        move(other, program.pid, "lock")
        fake_driver.take_time()
        out = pool.submit(move, other, program.pid, "checkpoint")
        until(lambda: state(driver, program.pid) == ProcessState.MOVING)
        back = pool.submit(undone, driver, program.pid)
        with pytest.raises(TimeoutError):
            back.result(0.2)
        while not back.done():
            fake_driver.pass_time(0.1)
        assert back.result() == {"restore": "ok", "unlock": "ok"}
        assert list(out.result()) == ["checkpoint_s"]
    driver.close(), other.close()


@pytest.mark.long
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_measurement_runs_to_its_end_and_leaves_the_card_empty(
    fake_driver: FakeDriver, tmp_path: Path, name: str
) -> None:
    [card] = fake_driver.cards
    fake_driver.set("context_bytes", 200 * MIB)
    fake_driver.set("bytes_per_second", 100_000 * MIB)
    subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.alone", name, "2", str(tmp_path), "4096", str(os.getpid())],
        env={**os.environ, **fake_driver.env(), "PYTHONPATH": str(PROGRAM.parents[2])},
        check=True,
        timeout=180,
    )
    result = Result.read(file_of(name, tmp_path), name)
    assert result is not None
    assert "broke off" not in result.reason
    assert result.figures or result.status is Status.UNSUPPORTED
    assert result.place.card == "NVIDIA H200"
    assert fake_driver.used_bytes(card) == 0
