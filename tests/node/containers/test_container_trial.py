"""A runtime is asked to run one container: what came of it, and that nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.node.containers.apptainer import Apptainer
from millpond.node.containers.container import Runtime
from millpond.node.containers.detection import Containers, trouble_with_start
from millpond.node.containers.images import OciImages
from millpond.node.containers.oci import Docker, Podman

LAST_WORDS = "error setting rlimits for ready process: operation not permitted"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A runtime that writes down what it is told, and does what the file ``body`` says."""
    (tmp_path / "body").write_text("")
    program = tmp_path / "runtime"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n. {tmp_path}/body\n')
    program.chmod(0o755)
    return program


@pytest.fixture(params=["podman", "docker", "apptainer"])
def found(request: pytest.FixtureRequest, program: Path, tmp_path: Path) -> Containers:
    path = str(program)
    made: dict[str, Runtime] = {
        "podman": Podman(path),
        "docker": Docker(path),
        "apptainer": Apptainer(path, tmp_path),
    }
    return Containers(made[request.param], "1", OciImages(path, {}, tmp_path), {})


def test_one_that_runs_a_container_has_no_trouble_and_keeps_nothing(found: Containers, tmp_path: Path) -> None:
    assert trouble_with_start(found) == ""
    told = (tmp_path / "told").read_text().splitlines()
    assert sum(line.endswith("/true") and line.split()[0] in ("run", "exec") for line in told) == 1
    if found.runtime.name == "docker":
        assert told[-1].split()[:2] == ["rmi", "--force"]
        assert told[0].split()[2] == told[-1].split()[2]


def test_one_that_starts_none_is_told_in_its_own_words(found: Containers, tmp_path: Path) -> None:
    (tmp_path / "body").write_text(f'case $1 in run|exec) echo first >&2; echo "{LAST_WORDS}" >&2; exit 126;; esac\n')
    assert trouble_with_start(found) == LAST_WORDS


def test_one_that_cannot_be_run_at_all_is_told(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    found = Containers(Podman(missing), "1", OciImages(missing, {}, tmp_path), {})
    assert "No such file" in trouble_with_start(found)
