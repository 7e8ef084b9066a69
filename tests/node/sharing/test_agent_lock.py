"""One agent for each machine."""

from __future__ import annotations

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
