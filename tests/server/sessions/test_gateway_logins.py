"""How many connections may be about to log in: one address does not keep the others out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import asyncssh
import pytest

from millpond.server.sessions.ssh.control import GatewayControl
from millpond.server.sessions.ssh.gateway import MOST_LOGINS, SshConnection


class Opened:
    """A connection that was made and says nothing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_open = True
        self.login = SshConnection(cast(GatewayControl, None))
        self.login.connection_made(cast(asyncssh.SSHServerConnection, self))

    def get_extra_info(self, _name: str) -> Any:
        return (self.address, 1)

    def abort(self) -> None:
        self.is_open = False
        self.login.connection_lost(None)


@pytest.fixture(autouse=True)
def _none_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(SshConnection, "logins", [])
    yield
    assert len(SshConnection.logins) <= MOST_LOGINS


def test_the_address_with_most_silent_connections_loses_its_oldest_to_any_other() -> None:
    early = Opened("10.0.0.1")
    flood = [Opened("10.0.0.2") for _ in range(MOST_LOGINS - 1)]
    late = [Opened("10.0.0.3"), Opened("10.0.0.2")]
    assert early.is_open
    assert all(each.is_open for each in late)
    assert [each.is_open for each in flood] == [False, False] + [True] * (MOST_LOGINS - 3)


def test_a_connection_that_is_lost_makes_room() -> None:
    first, *others = (Opened("10.0.0.1") for _ in range(MOST_LOGINS))
    first.abort()
    Opened("10.0.0.1")
    assert all(each.is_open for each in others)
