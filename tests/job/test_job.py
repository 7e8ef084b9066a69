"""What a program asks and tells while it runs as a task, and that the same works on a laptop."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path

import cloudpickle
import pytest

from millpond import job
from millpond.job import call
from millpond.job.envelopes import pack, python_version, unpack
from millpond.model.errors import InvalidInputError, NotFoundError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is a task because whoever runs it is one."""
    for name in [name for name in os.environ if name.startswith("MILLPOND_") or name in VARIABLES]:
        monkeypatch.delenv(name)


def test_outside_a_job_there_is_one_process_and_the_first_attempt() -> None:
    assert (job.inside(), job.job_id()) == (False, "")
    assert (job.rank(), job.world_size(), job.local_rank()) == (0, 1, 0)
    assert (job.task(), job.attempt(), job.array_index(), job.output_dir()) == (0, 1, None, Path())


def test_inside_a_job_the_place_is_what_millpond_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"MILLPOND_JOB_ID": "j", "RANK": "3", "WORLD_SIZE": "4", "MILLPOND_TASK": "3", "MILLPOND_ATTEMPT": "2"}
    said |= {"MILLPOND_ARRAY_INDEX": "7", "MILLPOND_OUTPUT": "/o", "MILLPOND_DATA_MINI_SET": "/d"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert (job.inside(), job.job_id(), job.rank(), job.world_size()) == (True, "j", 3, 4)
    assert (job.task(), job.attempt(), job.array_index()) == (3, 2, 7)
    assert (job.output_dir(), job.data_dir("mini-set")) == (Path("/o"), Path("/d"))


def test_data_that_the_job_has_not_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(NotFoundError, match="MILLPOND_DATA_TRAIN"):
        job.data_dir("train")


def test_metrics_are_lines_of_a_file_in_a_job_and_printed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.report(loss=0.5, step=1)
    assert capsys.readouterr().out == "step=1 loss=0.5\n"
    monkeypatch.setenv("MILLPOND_METRICS", str(tmp_path / "m"))
    job.report(loss=0.5, step=1)
    job.report(loss=float("nan"))
    first, second = (json.loads(line) for line in (tmp_path / "m").read_text().splitlines())
    assert (first["step"], first["values"]) == (1.0, {"loss": 0.5})
    assert (second["step"], second["values"]) == (None, {"loss": None})
    assert capsys.readouterr().out == ""


def test_a_metric_that_is_no_number_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="loss"):
        job.report(loss="low")  # type: ignore[arg-type]


def test_metrics_that_cannot_be_written_are_lost_with_a_warning_and_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLPOND_METRICS", str(tmp_path / "no folder/m"))
    monkeypatch.setattr("millpond.job.metrics._warned", False)
    job.report(loss=1)
    job.report(loss=1)
    assert capsys.readouterr().err.count("metrics are lost") == 1


def ends(program: str, number: int = signal.SIGTERM, **variables: str) -> tuple[int, str]:
    """Exit code and output of a program that is sent a signal as soon as it prints."""
    env = {**os.environ, **variables}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    rest = process.stdout.read()
    return process.wait(60), rest


def test_a_program_that_asks_hears_the_notice_and_goes_in_its_own_time() -> None:
    program = (
        "from millpond import job\nimport time\nassert not job.should_stop()\nprint('ready', flush=True)\n"
        "while not job.should_stop(): time.sleep(0.01)\nprint('left')"
    )
    assert ends(program) == (0, "left\n")
    assert ends(program, signal.SIGUSR1, MILLPOND_NOTICE_SIGNAL="SIGUSR1") == (0, "left\n")


def test_a_program_that_saves_on_notice_leaves_with_code_zero() -> None:
    program = (
        "from millpond import job\nimport time\njob.on_checkpoint(lambda: print('saved', flush=True))\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    assert ends(program) == (0, "saved\n")


STUCK = (
    "from millpond import job\nfrom millpond.job import notices\nimport pathlib, signal, time\n"
    "kill, losses = signal.pthread_kill, [{losses}]\n"
    "def maybe(*args): losses.__setitem__(0, losses[0] - 1) if losses[0] else kill(*args)\n"
    "signal.pthread_kill = maybe\n"
    "job.on_checkpoint(lambda: pathlib.Path('saved').touch())\njob.on_checkpoint(lambda: print('saved', flush=True))\n"
    "notices._PATIENCE_S = {patience}\nprint('ready', flush=True)\n"
    "print('x' * 1_000_000 + '\\n', end='', flush=True)\ntime.sleep(600)"
)
"""Prints more than its reader has taken when the notice comes; signals to itself may come too early, and be lost."""


def stuck(folder: Path, patience: float, losses: int = 0) -> subprocess.Popen[bytes]:
    """Such a program, told to leave while it waits for its reader."""
    command = [sys.executable, "-c", STUCK.format(patience=patience, losses=losses)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=env)
    assert process.stdout is not None
    unread, full = bytearray(4), fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ) - 2 * mmap.PAGESIZE
    while int.from_bytes(unread, sys.byteorder) < full:
        fcntl.ioctl(process.stdout, termios.FIONREAD, unread)
    process.send_signal(signal.SIGTERM)
    return process


@pytest.mark.parametrize("losses", [0, 1])
def test_a_notice_amid_a_print_is_heeded_once_it_is_printed(tmp_path: Path, losses: int) -> None:
    process = stuck(tmp_path, 600, losses)
    seen = f"/proc/{process.pid}/status"
    while "ShdPnd:\t0000000000000000" not in Path(seen).read_text():
        pass
    out, errors = process.communicate(timeout=60)
    assert (out.splitlines()[-1], errors, process.returncode) == (b"saved", b"", 0)


def test_a_notice_amid_a_print_that_nobody_reads_is_heeded_all_the_same(tmp_path: Path) -> None:
    with stuck(tmp_path, 0.05) as process:
        while not (tmp_path / "saved").exists() and process.poll() is None:
            pass
        assert (tmp_path / "saved").exists()
        process.kill()
        process.communicate()


def test_the_notice_is_listened_to_from_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.job.notices._Notice.is_installed", False)
    seen: list[Exception] = []

    def ask() -> None:
        try:
            job.should_stop()
        except InvalidInputError as error:
            seen.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(seen[0])


def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: bytes) -> tuple[int, dict[str, str], bytes]:
    (tmp_path / "payload").write_bytes(payload)
    monkeypatch.setenv("MILLPOND_PAYLOAD", str(tmp_path / "payload"))
    monkeypatch.setenv("MILLPOND_RESULT", str(tmp_path / "result"))
    code = call.main()
    return code, *unpack((tmp_path / "result").read_bytes())


def test_a_function_from_another_python_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = pack({"python": "2.7"}, b"not even a pickle")
    code, header, _ = called(tmp_path, monkeypatch, payload)
    assert (code, header["outcome"]) == (1, "raised")
    assert f"sent from Python 2.7, and this is Python {python_version()}" in header["message"]


def test_a_result_that_is_too_large_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "LARGEST_RESULT", 1_000)
    payload = pack({}, cloudpickle.dumps((bytes, (2_000,))))
    code, header, _ = called(tmp_path, monkeypatch, payload)
    assert code == 1
    assert "output_dir" in header["message"]


def test_a_result_that_has_no_room_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def write_half(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left")

    payload = pack({}, cloudpickle.dumps((str.upper, ["a"])))
    (tmp_path / "payload").write_bytes(payload)
    monkeypatch.setattr(Path, "write_bytes", write_half)
    monkeypatch.setenv("MILLPOND_PAYLOAD", str(tmp_path / "payload"))
    monkeypatch.setenv("MILLPOND_RESULT", str(tmp_path / "result"))
    with pytest.raises(OSError, match="no space left"):
        call.main()
    assert [left.name for left in tmp_path.iterdir()] == ["payload"]


def test_a_member_of_an_array_is_called_with_its_own_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_ARRAY_INDEX", "2")
    payload = pack({"each": 3}, cloudpickle.dumps((str.upper, ["a", "b", "c"])))
    code, header, body = called(tmp_path, monkeypatch, payload)
    assert (code, header["outcome"], cloudpickle.loads(body)) == (0, "returned", "C")


def test_parameters_of_a_trial_are_there_and_none_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.parameters() == {}
    monkeypatch.setenv("MILLPOND_PARAMETERS", '{"lr": 0.1, "on": true}')
    assert job.parameters() == {"lr": 0.1, "on": True}


def test_the_payload_must_be_a_function() -> None:
    for data in (b"", b"[]\n", b"{}\n", b"\xff\n", b"[" * 100_000):
        with pytest.raises(InvalidInputError, match="neither a function nor a result"):
            unpack(data)
