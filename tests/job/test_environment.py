"""The environment of a template on its machine: made once, whole or not there, and clear about what stands in the way.

``python3 -m venv`` and pip are stood in for by a script that does what it is told.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from millpond.job import environment

FOLDER = "cache/abc"
STAND_IN = """#!/bin/sh
[ "$1" = -c ] && exit 0
echo "$*" >> {calls}
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit {venv}; fi
echo "{said}"
exit {pip}
"""


class Machine:
    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._calls = home / "calls"
        self._python = home / "python3"
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setattr(sys, "executable", str(self._python))
        self.behaves()

    def behaves(self, venv: int = 0, pip: int = 0, said: str = "") -> None:
        self._python.write_text(STAND_IN.format(calls=self._calls, venv=venv, pip=pip, said=said))
        self._python.chmod(0o755)

    @property
    def installed(self) -> list[str]:
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [call.rpartition("--retries 2 ")[2] for call in calls if call.startswith("-m pip")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_it_is_made_once_and_kept(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert environment.main(FOLDER, ["one~=1.0", "two"]) == 0
    assert environment.main(FOLDER, ["one~=1.0", "two"]) == 0
    assert machine.installed == ["one~=1.0 two"]
    assert "the environment is there" in capsys.readouterr().out


def test_what_was_not_completed_or_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.behaves(pip=1)
    assert environment.main(FOLDER, ["one"]) == 1
    machine.behaves()
    assert environment.main(FOLDER, ["one"]) == 0
    (machine.home / FOLDER / "bin" / "python").write_text("#!/bin/sh\nexit 127\n")
    assert environment.main(FOLDER, ["one"]) == 0
    assert machine.installed == ["one"] * 3


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ({"pip": 1, "said": "[Errno -3] Temporary failure in name resolution"}, "the package index cannot be reached"),
        ({"pip": 1, "said": "ProtocolError: ('Connection broken: ..."}, "the package index cannot be reached"),
        ({"pip": 1, "said": "No matching distribution found for one"}, "pip could not install one; its words stand"),
        ({"venv": 1}, "apt install python3-venv"),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_helps(
    machine: Machine, capsys: pytest.CaptureFixture[str], behaviour: dict[str, object], told: str
) -> None:
    machine.behaves(**behaviour)  # type: ignore[arg-type]
    assert environment.main(FOLDER, ["one"]) == 1
    assert told in capsys.readouterr().err


def test_a_home_that_cannot_be_written_is_said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (machine.home / "cache").write_text("a file")
    assert environment.main(FOLDER, ["one"]) == 1
    assert "needs a home that can be written" in capsys.readouterr().err


def test_two_jobs_at_once_make_one(machine: Machine) -> None:
    codes: list[int] = []
    both = [threading.Thread(target=lambda: codes.append(environment.main(FOLDER, ["one"]))) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert (codes, machine.installed) == ([0, 0], ["one"])


def test_variables_that_lead_to_other_modules_do_not_reach_pip(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    machine.behaves(said="path: $PYTHONPATH.")
    assert environment.main(FOLDER, ["one"]) == 0
    assert "path: ." in capfd.readouterr().out
    assert os.environ["PYTHONPATH"] == "/elsewhere"
