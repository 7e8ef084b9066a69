"""What is left of the SSH gateway's rights once it has given them up."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from typing import Any

import pytest

UID = 265_009
LOOK = """
import json, os, socket, sys
from pathlib import Path
from millpond.server.sessions.ssh.confinement import give_up_rights
own = socket.create_server(("127.0.0.1", 0))
give_up_rights(int(sys.argv[1]) if sys.argv[1:] else None)
refused = {}
for name, attempt in {
    "start": lambda: os.execv("/bin/true", ["true"]),
    "become root": lambda: os.setuid(0),
    "shadow": lambda: Path("/etc/shadow").read_text(),
    "kill": lambda: os.kill(os.getppid(), 0),
}.items():
    try:
        attempt()
    except OSError as error:
        refused[name] = error.errno
with socket.create_connection(own.getsockname()) as near:
    far, _ = own.accept()
    far.sendall(b"heard")
    spoken = near.recv(5).decode()
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
status = {name: value.split() for name, value in status.items()}
print(json.dumps({"status": status, "refused": refused, "spoken": spoken}))
"""


def rights_left(*uid: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", LOOK, *uid], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def has_libseccomp() -> bool:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return False
    return True


def test_it_keeps_no_capability_gains_none_again_and_speaks_on() -> None:
    found = rights_left()
    assert {tuple(found["status"][name]) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {("0" * 16,)}
    assert (found["status"]["NoNewPrivs"], found["spoken"]) == (["1"], "heard")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_of_roots_it_becomes_an_account_of_its_own() -> None:
    found = rights_left(str(UID))
    status = found["status"]
    assert set(status["Uid"]) == set(status["Gid"]) == {str(UID)}
    assert (status["Groups"], status["CapBnd"], found["spoken"]) == ([], ["0" * 16], "heard")
    assert found["refused"].keys() >= {"become root", "shadow", "kill"}


@pytest.mark.skipif(not has_libseccomp(), reason="libseccomp is not installed")
def test_it_starts_no_program_where_the_kernel_can_be_told_so() -> None:
    found = rights_left()
    assert "start" in found["refused"]
    assert found["status"]["Seccomp"] == ["2"]
