"""What ``pond run`` and ``pond submit`` make of a command line."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from millpond.client.cli.commands.submission import submit
from millpond.client.cli.commands.submission.run import job_from
from millpond.client.cli.follow import STOPPED, accounts_of, exit_code_of
from millpond.client.cli.terminal.interrupts import held_back
from millpond.client.sdk.environment import environment_for
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.errors import SpecError


def spec_of(**changes):
    asked = {"gpus": "0", "tasks": 1, "gpu_models": (), "variables": (), "workdir": None, "words": ("python3", "a.py")}
    return job_from(**asked | changes)


def test_a_command_runs_in_the_present_directory_under_the_programs_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    spec = spec_of(words=("./Train Model.sh", "--lr", "1"))
    assert spec["command"] == ["./Train Model.sh", "--lr", "1"]
    assert spec["workdir"] == str(tmp_path.resolve())
    assert spec["name"] == "train-model"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("echo $RANK; exit 3",), "echo $RANK; exit 3"),
        (("nvidia-smi",), ["nvidia-smi"]),
        (("sh", "-c", "exit 3"), ["sh", "-c", "exit 3"]),
    ],
)
def test_one_quoted_word_with_blanks_is_a_line_for_the_shell(words, command):
    assert spec_of(words=words)["command"] == command


def test_data_without_a_name_is_refused_with_both_forms_of_a_source():
    with pytest.raises(InvalidInputError, match="train=/datasets/train, or --data train=dataset/mnist"):
        spec_of(sources=("dataset/mnist",))


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("0.25", 0.25), ("25%", "25%")])
def test_gpus_are_numbers_where_they_look_like_numbers(text, value):
    assert spec_of(gpus=text)["gpus"] == value


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("0.5", 0.5), ("500m", "500m"), ("nan", "nan"), ("inf", "inf")])
def test_cpus_are_finite_numbers_or_what_the_server_judges(text, value):
    assert spec_of(cpus=text)["cpus"] == value


def test_a_part_of_a_card_is_written_as_in_a_job_file():
    assert spec_of(gpus="{memory: 4GiB, compute: 25%}")["gpus"] == {"memory": "4GiB", "compute": "25%"}


def test_the_command_finds_the_programs_that_this_shell_finds(monkeypatch):
    monkeypatch.setenv("PATH", "/opt/bin:/bin")
    monkeypatch.setenv("SECRET", "s")
    environment = environment_for("local")
    assert environment["PATH"] == "/opt/bin:/bin"
    assert "SECRET" not in environment


def test_a_command_in_a_pod_has_the_surroundings_of_its_image(monkeypatch):
    monkeypatch.setenv("PATH", "/opt/bin:/bin")
    assert environment_for("kubernetes") == {}


def test_variables_are_set_or_passed_on(monkeypatch):
    monkeypatch.setenv("PASSED", "on")
    environment = spec_of(variables=("A=b=c", "EMPTY=", "PASSED"))["env"]
    assert (environment["A"], environment["EMPTY"], environment["PASSED"]) == ("b=c", "", "on")


def test_a_variable_to_pass_on_must_exist(monkeypatch):
    monkeypatch.delenv("MISSING", raising=False)
    with pytest.raises(InvalidInputError, match="MISSING"):
        spec_of(variables=("MISSING",))


def test_what_was_not_asked_for_is_left_to_the_server():
    assert spec_of(queue=None, priority=None).keys() == {"gpus", "tasks", "command", "workdir", "env", "name"}


@pytest.mark.parametrize(
    ("state", "job_code", "code"),
    [("succeeded", 0, 0), ("failed", 7, 7), ("failed", None, 1), ("cancelled", 0, STOPPED)],
)
def test_the_exit_code_is_the_jobs(make_job, state, job_code, code):
    assert exit_code_of(make_job(state=state, exit_code=job_code)) == code


def task_of(number, exit_code, detail=""):
    return {"task": number, "role": "worker", "state": "failed", "exit_code": exit_code, "detail": detail}


def test_an_end_that_the_exit_code_does_not_explain_is_told_once(make_job):
    lost = [task_of(number, None, "command 'trian' was not found") for number in range(2)]
    assert accounts_of(make_job(state="failed", tasks=lost)) == ["train-abcde failed: command 'trian' was not found"]


def test_of_several_tasks_the_one_that_failed_is_named(make_job):
    tasks = [task_of(0, 143, "exit code 143: ended by SIGTERM"), task_of(1, 3, "exit code 3"), task_of(2, 0)]
    assert "train-abcde failed: task 1 (worker): exit code 3" in accounts_of(make_job(state="failed", tasks=tasks))


def test_an_end_that_the_exit_code_explains_needs_no_words(make_job):
    assert accounts_of(make_job(state="failed", tasks=[task_of(0, 3, "exit code 3")])) == []
    assert accounts_of(make_job(state="succeeded", tasks=[task_of(0, 0)])) == []


def test_a_job_that_was_cancelled_before_it_could_run_says_why(make_job):
    lost = [task_of(0, None, "the image cannot be fetched")]
    job = make_job(state="cancelled", attempt=0, tasks=lost)
    assert accounts_of(job) == ["train-abcde was cancelled: the image cannot be fetched"]


@pytest.mark.usefixtures("_ctrl_c_interrupts")
def test_an_interruption_waits_for_the_answer_to_a_submission():
    reached = False

    def submit_while_interrupted():
        nonlocal reached
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            reached = True

    with pytest.raises(KeyboardInterrupt):
        submit_while_interrupted()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def read(tmp_path: Path, text: str, *changes: str):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return [spec.document for spec in submit.read(str(path), changes)]


def test_a_working_directory_that_is_a_circle_of_links_is_refused_in_words(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InvalidInputError, match=r"the working directory .*circle leads nowhere"):
        spec_of(workdir=tmp_path / "circle")


def test_a_relative_workdir_is_relative_to_the_file(tmp_path):
    (document,) = read(tmp_path, "command: 'true'\nworkdir: sub\n")
    assert document["workdir"] == str(tmp_path / "sub")


def test_every_document_of_a_file_is_a_job(tmp_path):
    assert len(read(tmp_path, "command: a\n---\ncommand: b\n")) == 2


def test_a_fault_is_told_with_line_and_column_before_anything_is_sent(tmp_path):
    with pytest.raises(SpecError, match=r"job\.yaml:2:1: comand"):
        read(tmp_path, "gpus: 1\ncomand: a\n")


def test_fields_can_be_changed_from_the_command_line(tmp_path):
    text = "command: a\ngpus: 1\nroles: [{name: w}, {name: ps}]\n"
    changes = ("gpus=2", "env.A=b: c", "roles.1.cpus=500m", "gpu_models=[A100, H100]")
    (document,) = read(tmp_path, text, *changes)
    assert document["gpus"] == 2
    assert document["env"] == {"A": "b: c"}
    assert document["roles"][1]["cpus"] == "500m"
    assert document["gpu_models"] == ["A100", "H100"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [("gpus", "FIELD=VALUE"), ("roles.5.gpus=1", "no entry '5'"), ("command.x=1", "no fields of its own")],
)
def test_a_change_that_has_no_place_is_refused(tmp_path, change, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        read(tmp_path, "command: a\nroles: [{name: w}]\n", change)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UnavailableError, match=r"none\.yaml cannot be read \(No such file"):
        submit.read(str(tmp_path / "none.yaml"))
