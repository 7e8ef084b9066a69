"""The units for systemd: that they run this installation, and that nothing of somebody else's is overwritten."""

from __future__ import annotations

import configparser
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from millpond.client.cli.main import cli
from millpond.model.errors import ConflictError, UnavailableError
from millpond.node.host.controllers import TASKS_UNIT
from millpond.node.task.launch import LONGEST_SHUTDOWN_GRACE_S
from millpond.server.operations.unit import UNIT, require_systemd, unit_folder, unit_texts, write_units
from millpond.server.startup.command_line import parse_options

STATE = Path('/srv/state of "ours", 50%')


def section(text: str, name: str = "Service") -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return dict(parser[name])


def server_unit(*arguments: str) -> str:
    return unit_texts(arguments, STATE, for_user=False)[UNIT]


def test_the_command_is_one_that_the_server_understands(tmp_path):
    text = server_unit("--state-dir", str(tmp_path / "with blank"), "--port", "8000")
    python, _, _, module, *rest = shlex.split(section(text)["ExecStart"])
    assert (python, module) == (sys.executable, "millpond.server")
    assert parse_options(rest).state_dir == tmp_path / "with blank"


@pytest.mark.parametrize(("written", "read"), [(["--config", "pond.yaml"], "pond.yaml"), (["--config=none"], "none")])
def test_the_unit_names_the_configuration_wherever_systemd_starts_it(tmp_path, monkeypatch, written, read):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["service", "install", "--print", "--system", "--state-dir", "state", *written])
    assert done.exit_code == 0, done.output
    command = next(line for line in done.output.splitlines() if line.startswith("ExecStart=") and "server" in line)
    options = parse_options(shlex.split(command.removeprefix("ExecStart="))[4:])
    assert options.state_dir == tmp_path / "state"
    assert options.config == (Path(read) if read == "none" else tmp_path / read)


def test_a_percent_sign_in_a_path_is_no_specifier_and_a_dollar_sign_no_variable():
    assert "100%%$$HOME" in section(server_unit("--state-dir", "/srv/100%$HOME"))["ExecStart"]


def test_the_server_waits_for_the_file_system_of_its_state():
    assert section(server_unit(), "Unit")["RequiresMountsFor"] == r'''"/srv/state of \"ours\", 50%%"'''


def test_jobs_are_not_ended_with_the_service_and_a_wrong_configuration_is_not_retried():
    lines = section(server_unit())
    assert lines["KillMode"] == "process"
    assert lines["RestartPreventExitStatus"] == "2"


def test_the_machine_waits_longer_for_tasks_than_the_longest_grace_that_they_may_have():
    assert (
        float(section(unit_texts([], STATE, for_user=False)[TASKS_UNIT])["TimeoutStopSec"]) > LONGEST_SHUTDOWN_GRACE_S
    )


def test_the_group_that_is_divided_among_tasks_is_not_the_servers_own():
    """systemd can start nothing in a group that has been divided: a server would not come back while tasks run."""
    tasks = section(unit_texts([], STATE, for_user=False)[TASKS_UNIT])
    assert tasks["Delegate"].split() == ["cpu", "memory", "pids"]
    assert tasks["KillMode"] == "process"
    assert "Delegate" not in section(server_unit())
    assert section(server_unit(), "Unit")["Wants"] == TASKS_UNIT
    assert TASKS_UNIT in section(server_unit(), "Unit")["After"].split()


def test_all_tasks_together_have_no_bound_on_processes_beside_that_of_each():
    """systemd's own default is a share of the machine's, which one task that forks without end could use up."""
    assert {section(text)["TasksMax"] for text in unit_texts([], STATE, for_user=False).values()} == {"infinity"}


def test_a_users_units_belong_to_their_configuration(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert unit_folder(for_user=True) == tmp_path / "systemd" / "user"
    assert str(unit_folder(for_user=False)) == "/etc/systemd/system"


def test_units_that_say_something_else_are_kept_unless_told_otherwise(tmp_path):
    folder = tmp_path / "deep"
    write_units(folder, {"b": "first"}, replace=False)
    write_units(folder, {"b": "first"}, replace=False)
    with pytest.raises(ConflictError, match="says something else"):
        write_units(folder, {"a": "new", "b": "second"}, replace=False)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"b": "first"}
    write_units(folder, {"a": "new", "b": "second"}, replace=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "new", "b": "second"}


def test_a_place_that_cannot_be_written_is_told_with_a_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot be written") as raised:
        write_units(tmp_path / "file", {UNIT: "x"}, replace=False)
    assert "--user" in raised.value.remedy


def test_a_unit_is_refused_where_systemd_does_not_run_the_machine(tmp_path):
    require_systemd(tmp_path)
    with pytest.raises(UnavailableError, match=r"systemd does not look after this machine.*--print"):
        require_systemd(tmp_path / "none")
