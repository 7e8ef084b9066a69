"""The unit for systemd: that it runs this installation, and that nothing of somebody else's is overwritten."""

from __future__ import annotations

import configparser
import shlex
import sys

import pytest

from millpond.model.errors import ConflictError, UnavailableError
from millpond.node.cgroups import SERVER_GROUP
from millpond.server.operating.unit import unit_path, unit_text, write_unit
from millpond.server.options import parse_options


def service(text: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return dict(parser["Service"])


def test_the_command_is_one_that_the_server_understands(tmp_path):
    arguments = ["--state-dir", str(tmp_path / "with blank"), "--port", "8000"]
    python, _, _, module, *rest = shlex.split(service(unit_text(arguments, for_user=True))["ExecStart"])
    assert (python, module) == (sys.executable, "millpond.server")
    assert parse_options(rest).state_dir == tmp_path / "with blank"


def test_a_percent_sign_in_a_path_is_no_specifier():
    assert "100%%" in service(unit_text(["--state-dir", "/srv/100%"], for_user=False))["ExecStart"]


def test_jobs_are_not_ended_with_the_service_and_a_wrong_configuration_is_not_retried():
    lines = service(unit_text([], for_user=False))
    assert lines["KillMode"] == "process"
    assert lines["RestartPreventExitStatus"] == "2"


def test_the_service_is_handed_its_control_group_for_those_of_its_tasks():
    lines = service(unit_text([], for_user=False))
    assert lines["Delegate"].split() == ["cpu", "memory", "pids"]
    assert lines["DelegateSubgroup"] == SERVER_GROUP


def test_a_users_unit_belongs_to_their_configuration(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert unit_path(for_user=True) == tmp_path / "systemd" / "user" / "millpond.service"
    assert str(unit_path(for_user=False)).startswith("/etc/systemd/system/")


def test_a_unit_that_says_something_else_is_kept_unless_told_otherwise(tmp_path):
    path = tmp_path / "deep" / "millpond.service"
    write_unit(path, "first", replace=False)
    write_unit(path, "first", replace=False)
    with pytest.raises(ConflictError, match="says something else"):
        write_unit(path, "second", replace=False)
    assert path.read_text() == "first"
    write_unit(path, "second", replace=True)
    assert path.read_text() == "second"


def test_a_place_that_cannot_be_written_is_told_with_a_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot be written") as raised:
        write_unit(tmp_path / "file" / "millpond.service", "x", replace=False)
    assert "--user" in raised.value.remedy
