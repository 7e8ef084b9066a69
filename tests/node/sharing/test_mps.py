"""Packs under the multi-process service, with a stand-in for its control program that writes down what it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.model.decisions import Grant
from millpond.model.errors import UnavailableError
from millpond.model.sharing import SliceHold
from millpond.node.sharing.backend import EnforcementRequest
from millpond.node.sharing.mps import MpsEnforcer
from millpond.node.task.records import TaskId

STAND_IN = """#!/bin/sh
if [ "$1" = -d ]; then
    echo "daemon on $CUDA_VISIBLE_DEVICES" >> "$0.told"; touch "$CUDA_MPS_PIPE_DIRECTORY/control"; exit
fi
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { echo "no daemon" >&2; exit 1; }
read command
echo "$command" >> "$0.told"
[ "$command" != quit ] || rm "$CUDA_MPS_PIPE_DIRECTORY/control"
"""
ONE, TWO = TaskId("one", 1, 0), TaskId("two", 1, 0)
SLICE = Grant("GPU-1", 200, 300, 4096)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "control-program"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    return path


@pytest.fixture
def hold(tmp_path: Path, program: Path) -> MpsEnforcer:
    return MpsEnforcer(tmp_path, str(program))


def told(program: Path) -> list[str]:
    return program.with_name(f"{program.name}.told").read_text().splitlines()


def test_a_pack_has_one_daemon_from_its_first_task_to_its_last(
    hold: MpsEnforcer, program: Path, tmp_path: Path
) -> None:
    for task in (ONE, TWO):
        env = hold.prepare(EnforcementRequest(task, tmp_path / task.job, [SLICE]))
    assert env.hold is SliceHold.MPS
    assert env.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert env.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert Path(env.env["CUDA_MPS_PIPE_DIRECTORY"], "control").exists()
    assert hold.fault_domain(ONE) == {TWO}
    hold.release(ONE)
    assert told(program) == ["daemon on GPU-1", "get_server_list"]
    hold.release(TWO)
    assert told(program)[-1] == "quit"


def test_the_next_agent_finds_the_pack_and_ends_it(hold: MpsEnforcer, program: Path, tmp_path: Path) -> None:
    hold.prepare(EnforcementRequest(ONE, tmp_path / "one", [SLICE]))
    following = MpsEnforcer(tmp_path, str(program))
    assert following.adopt(ONE, tmp_path / "one", ["GPU-1"])
    assert not following.adopt(TWO, tmp_path / "two", ["GPU-1"])
    following.release(ONE)
    assert told(program)[-1] == "quit"


def test_a_pack_is_one_users(hold: MpsEnforcer, tmp_path: Path) -> None:
    hold.prepare(EnforcementRequest(ONE, tmp_path / "one", [SLICE]))
    with pytest.raises(UnavailableError, match="serves another user"):
        hold.prepare(EnforcementRequest(TWO, tmp_path / "two", [SLICE], owner=(os.geteuid() + 1, os.getegid())))


def test_a_pack_whose_folders_could_not_be_made_leaves_the_card_to_other_users(
    hold: MpsEnforcer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (os.geteuid() + 1, os.getegid())
    with monkeypatch.context() as full:
        full.setattr(Path, "mkdir", lambda *_, **__: Path("/proc").rmdir())
        with pytest.raises(OSError, match="/proc"):
            hold.prepare(EnforcementRequest(ONE, tmp_path / "one", [SLICE], owner=other))
    assert hold.prepare(EnforcementRequest(TWO, tmp_path / "two", [SLICE])).hold is SliceHold.MPS


def test_a_daemon_that_does_not_come_up_is_told_with_its_words(tmp_path: Path, program: Path) -> None:
    program.write_text("#!/bin/sh\necho 'An instance of this daemon is already running' >&2; exit 1\n")
    hold = MpsEnforcer(tmp_path, str(program))
    with pytest.raises(UnavailableError, match="already running"):
        hold.prepare(EnforcementRequest(ONE, tmp_path / "one", [SLICE]))


def test_without_the_program_the_reason_is_told(tmp_path: Path) -> None:
    assert MpsEnforcer(tmp_path, "no-such-control").why_not() == (
        "no-such-control is not installed; it comes with the NVIDIA driver"
    )
