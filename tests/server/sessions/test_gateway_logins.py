"""How many connections may be about to log in: one address does not keep the others out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import asyncssh
import pytest

from millpond.server.sessions.ssh.control import GatewayControl
from millpond.server.sessions.ssh.gateway import MOST_LOGINS, SshConnection
from millpond.server.sessions.ssh.messages import LARGEST_MESSAGE, GatewayRequest, receive, send


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


def test_a_key_of_any_length_is_nobodys_and_ends_nothing_for_others() -> None:
    endless = SimpleNamespace(export_public_key=lambda _form: b"ssh-rsa " + b"A" * LARGEST_MESSAGE)

    async def run() -> None:
        own, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with own, server:
            server.setblocking(False)
            control = GatewayControl(own)
            assert not await SshConnection(control).validate_public_key("job", cast(asyncssh.SSHKey, endless))
            with pytest.raises(BlockingIOError):
                receive(server)
            asked = asyncio.ensure_future(control.ask(GatewayRequest.KNOW, {"key": "short"}))
            await asyncio.sleep(0)
            question = receive(server)
            assert question is not None
            send(server, {"id": question[0]["id"], "known": True})
            assert (await asked)["known"]

    asyncio.run(run())
