"""How many connections there may be, of an address about to log in and of a user: none keeps the others out."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import asyncssh
import pytest

from millpond.server.sessions.ssh.control import GatewayControl
from millpond.server.sessions.ssh.gateway import MOST_CHANNELS, MOST_CONNECTIONS, MOST_LOGINS, MOST_TRIES, SshConnection
from millpond.server.sessions.ssh.messages import LARGEST_MESSAGE, GatewayRequest, receive, send


class Opened:
    """A connection that was made and says nothing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_open = True
        self.user = ""
        self.login = SshConnection(cast(GatewayControl, self))
        self.login.connection_made(cast(asyncssh.SSHServerConnection, self))

    def get_extra_info(self, _name: str) -> Any:
        return (self.address, 1)

    async def ask(self, _ask: GatewayRequest, _about: dict[str, Any]) -> dict[str, Any]:
        return {"user": self.user, "known": False}

    def enters(self, user: str) -> bool:
        """Whether the user may stay who has logged in."""
        self.user = user
        asyncio.run(self.login.auth_completed())
        return self.is_open

    def disconnect(self, _code: int, _why: str) -> None:
        self.abort()

    def abort(self) -> None:
        self.is_open = False
        self.login.connection_lost(None)


@pytest.fixture(autouse=True)
def _none_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(SshConnection, "logins", [])
    monkeypatch.setattr(SshConnection, "connections", Counter())
    monkeypatch.setattr(SshConnection, "channels", Counter())
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


def test_of_one_user_so_many_connections_stay_and_others_come_in() -> None:
    opened = [Opened("10.0.0.1") for _ in range(2)]
    assert all(Opened("10.0.0.1").enters("max") for _ in range(MOST_CONNECTIONS - 1))
    assert [each.enters("max") for each in opened] == [True, False]
    assert Opened("10.0.0.1").enters("sam")
    opened[0].abort()
    assert Opened("10.0.0.1").enters("max")


def test_of_one_user_so_many_channels_stay_over_all_connections_and_one_that_ends_makes_room() -> None:
    first, second, other = (Opened("10.0.0.1") for _ in range(3))
    assert all([first.enters("max"), second.enters("max"), other.enters("sam")])
    channel, *_ = [first.login.session_requested() for _ in range(MOST_CHANNELS - 1)]
    second.login.session_requested()
    with pytest.raises(asyncssh.ChannelOpenError, match="256 commands are open"):
        second.login.session_requested()
    other.login.session_requested()
    channel.connection_lost(None)
    second.login.session_requested()


def test_one_login_tries_so_many_keys_and_no_more() -> None:
    key = cast(asyncssh.SSHKey, SimpleNamespace(export_public_key=lambda _form: b"ssh-ed25519 AAAA"))
    opened = Opened("10.0.0.1")
    for _ in range(MOST_TRIES):
        assert not asyncio.run(opened.login.validate_public_key("job", key))
        assert opened.is_open
    assert not asyncio.run(opened.login.validate_public_key("job", key))
    assert not opened.is_open
