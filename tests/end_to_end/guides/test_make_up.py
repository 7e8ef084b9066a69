"""``make up`` and ``make down`` in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_pond import PATIENCE_S, REPOSITORY, alive

pytestmark = pytest.mark.long

NEEDED = ("Makefile", "pyproject.toml", "examples")
"""The rest may change under the hands of whoever copies it: other tests run, and leave their traces."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy whose environment is the one that runs this test: what pip does is not what is tested here."""
    copy = tmp_path / "a clone for Zoë"
    copy.mkdir()
    for name in NEEDED:
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, copy / name)
    scripts = copy / ".venv" / "bin"
    scripts.mkdir(parents=True)
    for program in ("python", "pond"):
        script = scripts / program
        script.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).with_name(program)}" "$@"\n')
        script.chmod(0o755)
    for stamp in (".installed", ".installed-dev"):
        (copy / ".venv" / stamp).touch()
    return copy


def make(clone: Path, *arguments: str) -> str:
    """What make printed; it must have succeeded."""
    command = ["make", "--no-print-directory", *arguments, "PORT=0", "FAKE_GPUS=1x4:V100-32GB"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MILLPOND_", "MAKE"))}
    done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_make_up_trains_a_gang_and_tells_its_result_and_the_address(clone):
    printed = make(clone, "up")
    try:
        again = make(clone, "up")
        pid = int(re.search(r'"pid": ?(\d+)', (clone / ".millpond" / "server.json").read_text())[1])
    finally:
        down = make(clone, "down")
    for text in (printed, again):
        assert re.search(r"^\[0\] result: loss=[\d.]+ accuracy=[\d.]+$", text, re.MULTILINE)
        assert re.search(r"^gang-\w+: succeeded$", text, re.MULTILINE)
        assert re.search(r"^the server listens at http://127\.0\.0\.1:\d+$", text, re.MULTILINE)
        assert "fake" in text
    assert "the server is up already" in again
    assert "stopped the server" in down
    assert not alive(pid)


def test_make_down_without_a_server_is_no_error(clone):
    assert "no server is running" in make(clone, "down")
