"""One agent for each machine."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from millpond.node.sharing.agent_lock import AgentLock, AnotherAgentError


def test_the_second_is_told_who_was_first_and_gets_the_lock_after_it(tmp_path: Path) -> None:
    first, second = AgentLock(tmp_path / "lock"), AgentLock(tmp_path / "lock")
    first.take("process 7")
    with pytest.raises(AnotherAgentError, match=r"another server shares out .* \(process 7\)"):
        second.take("process 8")
    assert second.holder() == "process 7"
    first.release()
    assert second.holder() == ""
    second.take("process 8")
    with pytest.raises(AnotherAgentError, match="process 8"):
        first.take("process 7")
    second.release()


def test_a_file_that_a_link_in_place_of_the_lock_leads_to_is_left_as_it_is(tmp_path: Path) -> None:
    victim, lock = tmp_path / "victim", tmp_path / "lock"
    victim.write_text("a file of the server's account")
    lock.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        AgentLock(lock).take("process 7")
    assert victim.read_text() == "a file of the server's account"


def test_what_removes_old_files_is_told_to_leave_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(0o644)
    AgentLock(lock).take("process 7")
    assert lock.stat().st_mode & stat.S_ISVTX
