"""The entry point: quick, and never a traceback."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from millpond.client.cli import main
from millpond.client.cli.command_table import COMMANDS
from millpond.client.cli.error_output import complain, echo_wrapped
from millpond.model.errors import InvalidInputError, MillpondError, UnavailableError

HEAVY = ("pydantic", "httpx2", "rich", "numpy", "yaml", "sqlalchemy", "fastapi")

_NO_SERVER = (
    "pond: no Millpond server is running here; "
    "start one with `pond up`, or log in to one elsewhere with `pond login URL`\n"
)


@pytest.fixture
def run_pond(capsys):
    def run(*arguments):
        code = main.run_line(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def loaded():
    """Which of some modules an interpreter of its own has loaded when a command line is done."""

    def of(names, *arguments):
        program = (
            "import sys; from millpond.client.cli import main; main.run_line(sys.argv[2:])\n"
            "print('loaded:', *(name for name in sys.argv[1].split(',') if name in sys.modules))"
        )
        command = [sys.executable, "-c", program, ",".join(names), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].split()[1:]

    return of


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_version_and_help_load_click_and_nothing_heavy(loaded, argument):
    assert loaded(HEAVY, argument) == []


@pytest.mark.parametrize("command", [["ps"], ["logs", "job"]])
def test_a_daily_command_loads_the_bodies_of_jobs_and_no_other_subject(loaded, tmp_path, command):
    others = ("api.models", "api.accounts", "job.job_file", "api.nodes", "api.events", "api.services", "job.fields")
    names = [*(f"millpond.specs.{other}" for other in others), "millpond.model.workloads", "yaml", "rich", "numpy"]
    assert loaded(["millpond.specs.api.jobs.jobs", *names], *command, "--state-dir", str(tmp_path)) == [
        "millpond.specs.api.jobs.jobs"
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "notify on job.faild",
            "no 'job.faild'; did you mean 'job.failed'?\n      There are job.started, job.succeeded",
        ),
        ("run --priority hgh -- true", "no 'hgh'; did you mean 'high'?"),
        ("run --priority x -- true", "'x' is not one of 'background', 'low', 'normal', 'high', 'critical'"),
    ],
)
def test_of_a_misspelt_word_the_nearest_is_named_and_else_all(run_pond, line, said):
    code, _, err = run_pond(*line.split())
    assert code == 2
    assert said in err


def test_every_command_of_the_table_is_listed_with_its_line(run_pond):
    code, out, _ = run_pond("--help")
    assert code == 0
    for name, entry in COMMANDS.items():
        assert name in out
        assert entry.help in out


def test_every_command_of_the_table_explains_itself_in_80_columns(run_pond, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        below = [words.split()[0] for words in _listed(run_pond(name, "--help")[1])]
        for words in [(name,), *((name, command) for command in below)]:
            code, out, _ = run_pond(*words, "--help")
            assert code == 0
            assert f"Usage: pond {' '.join(words)}" in out
            assert [line for line in out.splitlines() if len(line) > 80] == []


def _listed(help_text):
    """The lines with which a group begins to tell of its commands."""
    lines = help_text.partition("\nCommands:\n")[2].splitlines()
    return [line for line in lines if line.startswith("  ") and line[2:3].strip()]


def test_a_group_lists_its_commands_with_their_whole_first_sentence(run_pond, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run_pond("nodes", "--help")
    assert "Empty each NODE or CARD: nothing new starts there, and preemptible work leaves." in " ".join(out.split())


def test_an_unknown_command_names_the_nearest(run_pond):
    assert run_pond("lgos") == (2, "", "pond: no command 'lgos'; did you mean `pond logs`?\n")


def test_an_unknown_command_like_no_other_points_to_the_list(run_pond):
    assert run_pond("xyzzy")[2] == "pond: no command 'xyzzy'; `pond --help` lists the commands\n"


def test_an_unknown_command_of_a_group_names_the_nearest(run_pond):
    assert run_pond("group", "ad") == (2, "", "pond: no command 'ad'; did you mean `pond group add`?\n")
    assert run_pond("group", "remove")[2] == "pond: no command 'remove'; did you mean `pond group remove-member`?\n"
    assert run_pond("group", "delete")[2] == "pond: no command 'delete'; `pond group --help` lists the commands\n"
    assert run_pond("user", "delete")[2] == "pond: no command 'delete'; did you mean `pond user disable`?\n"
    assert run_pond("nodes", "drian")[2] == "pond: no command 'drian'; did you mean `pond nodes drain`?\n"


def test_help_for_a_command_that_is_not_there_names_the_command_meant_as_its_use_does(run_pond):
    assert run_pond("help", "lgos") == (2, "", "pond: no command 'lgos'; did you mean `pond logs`?\n")
    assert run_pond("help", "group", "ad") == (2, "", "pond: no command 'ad'; did you mean `pond group add`?\n")
    assert run_pond("help", "ps", "jobs")[2] == "pond: 'pond ps' has no commands below it\n"


def test_a_group_that_lists_without_a_command_says_so_to_who_asks_it_to_list(run_pond):
    assert run_pond("nodes", "list")[2] == "pond: no command 'list'; `pond nodes` alone lists them\n"
    assert run_pond("queue", "list")[2] == "pond: no command 'list'; did you mean `pond queue show`?\n"


def test_a_template_in_place_of_a_command_of_dev_is_led_to_the_option_that_takes_it(run_pond):
    assert run_pond("dev", "jupyter")[2] == "pond: no command 'jupyter'; did you mean `pond dev -t jupyterlab`?\n"
    assert run_pond("dev", "opn")[2] == "pond: no command 'opn'; did you mean `pond dev open`?\n"


def test_a_wrong_option_points_to_the_commands_help(run_pond):
    code, _, err = run_pond("ps", "--foo")
    assert code == 2
    assert "--foo" in err.splitlines()[0]
    assert err.splitlines()[1].strip() == "`pond ps --help` explains it"


def test_a_missing_argument_is_named_with_its_choices(run_pond):
    assert run_pond("schema")[2].splitlines()[0] == "pond: missing argument KIND; write one of job, config, codes"
    assert run_pond("get")[2].splitlines()[0] == "pond: missing argument JOB"


def test_a_word_in_place_of_a_whole_number_is_called_no_whole_number(run_pond):
    assert run_pond("logs", "job", "--tail", "x")[2].splitlines()[0] == (
        "pond: invalid value for '--tail': 'x' is not a whole number"
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (("config", "check", ""), "FILE"),
        (("data", "put", "cats", ""), "PATH"),
        (("run", "--workdir", "", "true"), "--workdir"),
        (("data", "get", "cats", "-o", ""), "--into"),
        (("ps", "--state-dir", ""), "--state-dir"),
    ],
)
def test_an_empty_path_is_refused_and_not_taken_for_the_working_directory(run_pond, line, named):
    code, _, err = run_pond(*line)
    assert (code, err.splitlines()[0]) == (2, f"pond: {named} names nothing")


def test_a_mistyped_option_names_those_like_it(run_pond):
    first = run_pond("run", "--datach", "--", "true")[2].splitlines()[0]
    assert first == "pond: no such option '--datach'; did you mean --detach or --data?"
    assert run_pond("run", "--zzz", "--", "true")[2].splitlines()[0] == "pond: no such option '--zzz'"
    assert run_pond("ps", "--json")[2].splitlines()[0] == "pond: no such option '--json'; did you mean -o json?"
    assert "-o json" not in run_pond("run", "--json", "--", "true")[2]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("run --gpu 1 -- true", "--gpus"),
        ("run --partition a100 -- true", "--queue"),
        ("run --time 2h -- true", "--time-limit"),
        ("run --mem 4G -- true", "--memory"),
        ("run --retry 1 -- true", "--retries"),
        ("run --constraint a100 -- true", "--gpu-model"),
        ("run -J fit -- true", "--name"),
        ("ps -u ada", "--user"),
        ("ps -q", "-o name"),
        ("ps --wide", "-o wide"),
        ("submit --gpus 2 job.yaml", "--set gpus=…"),
        ("submit --mem 4G job.yaml", "--set memory=…"),
        ("submit --gpu-type a100 job.yaml", "--set gpu_models=…"),
        ("submit --dry-run job.yaml", "`pond apply --dry-run`"),
        ("submit --test-only job.yaml", "`pond apply --dry-run`"),
        ("apply --test-only job.yaml", "--dry-run"),
        ("dev --name notes", "--set name=…"),
    ],
)
def test_an_option_of_another_tool_or_a_field_of_job_files_names_ours(run_pond, line, meant):
    code, _, err = run_pond(*line.split())
    assert code == 2
    assert err.splitlines()[0].endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("train.sh", "#!/bin/bash\n#SBATCH --gres=gpu:1\nsrun python train.py\n", "bash {file}"),
        ("train.py", "import torch\n", "python {file}"),
        ("train", "#!/usr/bin/env python3\nprint(1)\n", "{file}"),
    ],
)
def test_a_program_in_place_of_a_job_file_is_told_how_to_be_run(run_pond, tmp_path, name, text, remedy):
    file = tmp_path / name
    file.write_text(text)
    code, _, err = run_pond("submit", str(file))
    assert code == 2
    assert f"{file} is a program, not a job file" in err
    assert f"`pond run -d --gpus 1 -- {remedy.format(file=file)}` submits it" in err
    assert ("#SBATCH" in err) == ("#SBATCH" in text)


class Endless(io.StringIO):
    """A text of which there is always more, as ``/dev/zero`` or ``yes`` has."""

    def read(self, size: int | None = -1, /) -> str:
        assert size is not None, "all of it"
        assert size >= 0, "all of it"
        return "a" * size


def test_of_a_job_file_without_end_no_more_is_read_than_it_takes_to_refuse_it(run_pond, monkeypatch):
    monkeypatch.setattr("sys.stdin", Endless())
    code, _, err = run_pond("submit", "-")
    assert code == 2
    assert "standard input: the text is larger than 4 MiB" in err


@pytest.mark.parametrize(
    "arguments",
    [["ps"], ["nodes"], ["logs", "x"], ["why", "x"], ["stop", "x"], ["wait", "x"], ["run", "--", "true"]],
    ids=lambda arguments: arguments[0],
)
def test_with_nobody_listening_one_line_says_pond_up(run_pond, arguments):
    assert run_pond(*arguments) == (2, "", _NO_SERVER)


def test_an_unusable_thing_is_told_in_one_line(capsys):
    complain(UnavailableError("port 80 is taken", "choose another"))
    assert capsys.readouterr().err == "pond: port 80 is taken; choose another\n"


def test_a_wrong_input_is_told_with_its_remedy_below(capsys):
    complain(InvalidInputError("a fault\nanother", "mend both"))
    assert capsys.readouterr().err == "pond: a fault\n      another\n      mend both\n"


def test_of_an_endless_word_that_an_error_repeats_the_ends_are_shown(capsys):
    complain(InvalidInputError(f"no job '{'x' * 100_000}'", "mend it"))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("pond: no job 'xxx")
    assert first.endswith("xxx'")
    assert len(first) < 2_100
    assert second == "      mend it"


@pytest.mark.parametrize(
    ("terminal", "lines"), [(True, ["this server has a copy of", "another server's state"]), (False, None)]
)
def test_on_a_terminal_a_note_is_wrapped_and_elsewhere_it_is_one_line(capsys, monkeypatch, terminal, lines):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "30")
    note = "this server has a copy of another server's state"
    echo_wrapped(note)
    assert capsys.readouterr().out.splitlines() == (lines or [note])


def test_on_a_terminal_an_error_is_wrapped_between_words_and_no_link_is_cut(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    complain(UnavailableError("the server at http://pool-of-the-group.example:8080/ does not answer", "try again"))
    assert capsys.readouterr().err.splitlines() == [
        "pond: the server at",
        "      http://pool-of-the-group.example:8080/",
        "      does not answer; try again",
    ]


def test_the_traceback_is_for_those_who_ask(capsys, monkeypatch):
    monkeypatch.setenv("MILLPOND_DEBUG", "1")
    complain(MillpondError("broken"))
    assert "MillpondError: broken" in capsys.readouterr().err


def test_a_full_disk_is_one_line():
    pond = Path(sys.executable).with_name("pond")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([pond, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "pond: the system says: No space left on device\n      make room there\n",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "aaa"),
            "File name too long: aaa\n      write a shorter path",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "a/b"),
            "Permission denied: a/b\n      check its rights, and ",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files\n      allow more open files (`ulimit -n 1024`)",
        ),
        (OSError("odd"), "odd\n      MILLPOND_DEBUG=1 shows where"),
    ],
)
def test_an_error_of_the_system_comes_with_a_remedy(run_pond, monkeypatch, error, said):
    monkeypatch.setattr(main.cli, "make_context", Mock(side_effect=error))
    monkeypatch.setattr(main, "_abandon_output", lambda: None)
    code, _, err = run_pond("ps")
    assert code == 1
    assert err.startswith(f"pond: the system says: {said}")


def test_where_an_error_of_the_system_comes_from_is_for_those_who_ask(run_pond, monkeypatch):
    monkeypatch.setenv("MILLPOND_DEBUG", "1")
    monkeypatch.setattr(main, "_abandon_output", lambda: None)
    monkeypatch.setattr(main.cli, "make_context", Mock(side_effect=OSError(errno.EIO, "bad disk")))
    assert "OSError: [Errno 5] bad disk" in run_pond("ps")[2]


def test_a_defect_is_two_lines_and_its_own_exit_code(run_pond, monkeypatch):
    monkeypatch.setattr(main, "cli", None)
    code, _, err = run_pond("ps")
    assert code == 70
    assert err.splitlines()[0].startswith("pond: a defect of Millpond: AttributeError")
    assert len(err.splitlines()) == 2


def test_what_the_encoding_of_a_terminal_lacks_is_a_question_mark():
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="latin-1")
    main.print_what_can_be(terminal)
    terminal.write("é → 好")
    terminal.flush()
    assert written.getvalue() == "é ? ?".encode("latin-1")


def test_a_reader_who_leaves_early_is_no_error():
    pond = Path(sys.executable).with_name("pond")
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([pond, "--help"], stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_no_defect(tmp_path, closed):
    pond = Path(sys.executable).with_name("pond")
    state = tmp_path / "state"
    line = f'"{pond}" nodes --state-dir "{state}" {closed}'
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True)
    told = "" if "2>&-" in closed else _NO_SERVER
    assert (done.returncode, done.stdout) == (UnavailableError.exit_code, "")
    assert told in done.stderr


@pytest.mark.parametrize(("loading", "code"), [("click", -signal.SIGINT), ("millpond.client.cli.commands", 130)])
def test_ctrl_c_while_modules_load_leaves_no_trace(loading, code):
    program = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {loading!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from millpond.client.cli.entry import main\n"
        "sys.argv = ['pond', 'ps']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_configuration_is_not_called_good_that_needs_a_package_which_is_not_installed(
    run_pond, tmp_path, monkeypatch
):
    file = tmp_path / "pond.yaml"
    file.write_text("ssh: {port: 0}\n")
    monkeypatch.setattr("millpond.server.sessions.ssh.listener.importlib.util.find_spec", lambda _name: None)
    code, out, err = run_pond("config", "check", str(file))
    assert (code, out) == (2, "")
    assert "pip install 'millpond[ssh]'" in err


@pytest.mark.parametrize(
    ("promised", "place"),
    [
        (
            "guarantee: 9",
            "queues.0.guarantee: all queues together are guaranteed 9 GPUs, but all machines have 8",
        ),
        ("guarantee: 8, cells: {rack of 4 nodes: 1}", "queues.0.cells: queue 'lab' is owed 'rack of 4 nodes'"),
        ("guarantee: 8, pinned: [gone]", "queues.0.pinned: queue 'lab' is owed machine 'gone'"),
    ],
)
def test_a_configuration_is_not_called_good_that_promises_more_than_its_machines_have(
    promised, place, run_pond, tmp_path
):
    file = tmp_path / "pond.yaml"
    file.write_text(f"nodes: [{{name: n, devices: 8, model: A100}}]\nqueues:\n- {{ {promised}, name: lab}}\n")
    code, out, err = run_pond("config", "check", str(file))
    assert (code, out) == (2, "")
    assert re.search(rf"pond.yaml:3:\d+: {place}", err)


def test_cells_of_hived_that_several_kinds_of_hardware_have_are_said_beside_the_queues(run_pond, tmp_path):
    file = tmp_path / "hived.yaml"
    file.write_text(
        "physicalCluster:\n"
        "  cellTypes:\n"
        "    V100-NODE: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}\n"
        "    A100-NODE: {childCellType: A100, childCellNumber: 4, isNodeLevel: true}\n"
        "  physicalCells: [{cellType: V100-NODE, cellAddress: v}, {cellType: A100-NODE, cellAddress: a}]\n"
        "virtualClusters: {vision: {virtualCells: [{cellType: V100-NODE, cellNumber: 1}]}}\n"
    )
    code, out, err = run_pond("config", "from-hived", str(file))
    assert (code, out) == (0, "queues:\n- name: vision\n  guarantee: 4\n  cells: {node: 1}\n")
    assert "vision may get its cells `node` of any of A100, V100" in err


@pytest.mark.parametrize("command", ["ps", "template ls"])
def test_an_account_without_a_home_directory_is_told_to_set_one(run_pond, monkeypatch, command):
    for variable in ("HOME", "MILLPOND_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("posixpath.expanduser", lambda path: path)  # as where no account has the number
    assert run_pond(*command.split()) == (
        UnavailableError.exit_code,
        "",
        f"pond: the account {os.getuid()} has no home directory here; set HOME\n",
    )
