"""The SFTP server that is started within images: what it needs there, and what it says where it cannot be had."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.node.sessions import sftp, sftp_wire
from millpond.node.sessions.sftp_inside import command_inside, program
from millpond.node.sessions.sftp_wire import SftpAnswer, SftpRequest, number, text

HELLO = text(bytes([SftpRequest.INIT]) + number(3))
WHERE = text(bytes([SftpRequest.REALPATH]) + number(1) + text(b"."))
LONGEST_ARGUMENT = 131_072
"""Of a command on Linux (MAX_ARG_STRLEN)."""


@pytest.mark.parametrize("module", [sftp, sftp_wire])
def test_an_older_python_can_read_it(module: object) -> None:
    ast.parse(Path(str(vars(module)["__file__"])).read_text(), feature_version=(3, 8))


def test_it_serves_with_nothing_of_ours_installed(tmp_path: Path) -> None:
    assert len(program()) < LONGEST_ARGUMENT
    command = [sys.executable, "-I", "-S", "-c", program()]
    done = subprocess.run(command, input=HELLO + WHERE, capture_output=True, cwd=tmp_path, timeout=120, check=True)
    assert done.stdout[4] == SftpAnswer.VERSION
    assert text(str(tmp_path.resolve()).encode()) in done.stdout
    assert done.stderr == b""


def test_an_image_with_a_python_serves_by_that(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    done = subprocess.run(_in_image(tmp_path), input=HELLO, capture_output=True, timeout=120)
    assert done.stdout[4] == SftpAnswer.VERSION, done.stderr


def test_an_image_with_nothing_that_serves_says_what_it_lacks(tmp_path: Path) -> None:
    done = subprocess.run(_in_image(tmp_path), input=HELLO, capture_output=True, text=False, timeout=120)
    assert done.returncode == 127
    assert b"neither python3 nor OpenSSH's sftp-server" in done.stderr


def _in_image(programs: Path) -> list[str]:
    """The command where these are all programs but the shell."""
    shell, *arguments = command_inside()
    arguments[1] = arguments[1].replace("/usr/", "/nowhere/")
    found = shutil.which(shell)
    assert found is not None
    return ["env", f"PATH={programs}", found, *arguments]
