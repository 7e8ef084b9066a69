"""The gateway: a process that speaks SSH with people and asks the authorizer about everything.

Started by the server (``gateway_process``) as ``python -m millpond.server.sessions.ssh.gateway LISTENER CONTROL [UID]``
with the host key on standard input; the first two are descriptors. It is a process of its own because it reads what
clients send before they are known, and because encrypting would take time from the scheduler. It has no
rights (``confinement``).

A person's user name is the job they want to. Commands, shells and SFTP run beside the job's first task, by the very
sessions of ``pond exec`` (``node.sessions.session``); ports are those of the task, as with ``pond forward``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, Final

import asyncssh

from millpond.server.sessions.ssh.channels import TaskChannel, relay_port
from millpond.server.sessions.ssh.confinement import give_up_rights
from millpond.server.sessions.ssh.control import GatewayControl, RefusalError, TaskSession
from millpond.server.sessions.ssh.messages import GatewayRequest

LOGIN_WITHIN_S: Final = 30
MOST_LOGINS: Final = 64
"""Connections that have not shown yet who they are. For one more, the address with most of them loses its oldest."""
MOST_TRIES: Final = 20
"""Keys of one login: each is looked for in the database. OpenSSH itself takes 6."""
MOST_CONNECTIONS: Final = 256
"""Of one user: others need the gateway's memory and files too."""
MOST_CHANNELS: Final = 256
"""Of one user, for commands, whether or not they were named: others need the gateway's memory too."""
_KEYS_AGAIN_S: Final = 0.05
_ASK_IF_THERE_S: Final = 30
_THERE_TRIES: Final = 4
_WEAK: Final = (b"ssh-rsa", b"ssh-dss", b"umac-64")
"""Beside what has SHA-1 in its name: signatures of RSA keys by it, keys of 1024 bits, MACs of 64."""
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class SshConnection(asyncssh.SSHServer):
    """One connection."""

    logins: ClassVar[list[SshConnection]] = []
    """The oldest first."""
    connections: ClassVar[Counter[str]] = Counter()
    """Of each user."""
    channels: ClassVar[Counter[str]] = Counter()
    """For commands, of each user; of each key before its user is known."""

    def __init__(self, control: GatewayControl) -> None:
        self._control = control
        self._connection: asyncssh.SSHServerConnection | None = None
        self._address = ""
        self._job = ""
        self._greeted = False
        self._entered = False
        self._lost = False
        self._user = ""
        self._tries = 0
        self._reads = asyncio.Event()
        self._reads.set()
        self.key = ""

    @property
    def claim(self) -> dict[str, Any]:
        """Who is here, where from, and for which job."""
        return {"address": self._address, "job": self._job, "key": self.key}

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._address = conn.get_extra_info("peername")[0]
        # The library itself does nothing here, and holds all that a client does not read.
        conn.pause_writing = self._pause_writing  # type: ignore[method-assign]
        conn.resume_writing = self._resume_writing  # type: ignore[method-assign]
        if len(self.logins) >= MOST_LOGINS:
            self._give_way()
        self.logins.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._login_over()
        if self._user:
            self.connections[self._user] -= 1
        if self._greeted and not self._entered:
            self._control.notify(GatewayRequest.FAILED, self.claim)

    async def begin_auth(self, username: str) -> bool:
        self._job = username
        try:
            await self._control.ask(GatewayRequest.GREET, self.claim)
        except RefusalError as refusal:
            assert self._connection is not None
            self._connection.disconnect(asyncssh.DISC_TOO_MANY_CONNECTIONS, str(refusal))
        else:
            self._greeted = True
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether the key is a user's; that the client has it is proved by a signature after this."""
        self._tries += 1
        if self._tries > MOST_TRIES:
            assert self._connection is not None
            self._connection.disconnect(asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "too many keys")
            return False
        line = key.export_public_key("openssh").decode()
        try:
            known = (await self._control.ask(GatewayRequest.KNOW, self.claim | {"key": line}))["known"]
        except RefusalError:
            return False
        if known:
            self.key = line
        return bool(known)

    async def auth_completed(self) -> None:
        self._login_over()
        self._entered = True
        assert self._connection is not None
        try:
            user = (await self._control.ask(GatewayRequest.ENTERED, self.claim))["user"]
        except RefusalError as refusal:
            self._connection.disconnect(asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, str(refusal))
            return
        if self.connections[user] >= MOST_CONNECTIONS:
            why = f"{MOST_CONNECTIONS} connections of {user} are open; close some"
            self._connection.disconnect(asyncssh.DISC_TOO_MANY_CONNECTIONS, why)
        elif not self._lost:
            self._user = user
            self.connections[user] += 1

    def session_requested(self) -> TaskChannel:
        holder = self._user or self.key
        if self.channels[holder] >= MOST_CHANNELS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, f"{MOST_CHANNELS} commands are open")
        self.channels[holder] += 1
        return TaskChannel(self._control, self.claim, self._until_room, lambda: self.channels.subtract((holder,)))

    async def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        """A port of the job, as ``pond forward`` gives it."""
        if dest_host not in _LOOPBACK:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, f"only ports at localhost are reached, not {dest_host}"
            )
        try:
            answer = await self._control.ask(GatewayRequest.FORWARD, self.claim | {"port": dest_port})
        except RefusalError as refusal:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, str(refusal)) from refusal
        session, connection = TaskSession(self._control, answer["session"]), answer["connection"]
        if self._lost:  # no channel begins any more, and so none would say that it has ended
            connection.close()
            session.left()
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "the client is gone")
        return relay_port(session, connection, self._until_room)

    async def _until_room(self) -> None:
        """Wait until the client reads, and has ended a key exchange: the library holds what is sent within one."""
        await self._reads.wait()
        while self._connection is not None and self._connection._deferred_packets:
            await asyncio.sleep(_KEYS_AGAIN_S)

    def _pause_writing(self) -> None:
        """The client does not read: take nothing on that would be answered, and nothing from its tasks."""
        self._reads.clear()
        if (transport := self._transport()) is not None:
            transport.pause_reading()

    def _resume_writing(self) -> None:
        """It reads again."""
        self._reads.set()
        if (transport := self._transport()) is not None:
            transport.resume_reading()

    def _transport(self) -> asyncio.Transport | None:
        """None once the connection is lost."""
        return None if self._connection is None else self._connection._transport

    def _login_over(self) -> None:
        if self in self.logins:
            self.logins.remove(self)

    def _give_way(self) -> None:
        """Drop a login for this one: whoever opens many in silence keeps no other address out."""
        by_address = Counter(login._address for login in self.logins)
        dropped = max(self.logins, key=lambda login: by_address[login._address])
        self.logins.remove(dropped)
        assert dropped._connection is not None
        dropped._connection.abort()


async def serve(listener: socket.socket, control: GatewayControl, host_key: str) -> None:
    """Take people in until the server is gone."""
    usual = asyncssh.SSHServerConnectionOptions(config=None)
    server = await asyncssh.listen(
        sock=listener,
        server_factory=lambda: SshConnection(control),
        server_host_keys=[asyncssh.import_private_key(host_key)],
        encoding=None,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        line_editor=False,
        compression_algs=None,
        kex_algs=_strong(usual.kex_algs),
        mac_algs=_strong(usual.mac_algs),
        signature_algs=_strong(usual.signature_algs),
        rdns_lookup=False,
        login_timeout=LOGIN_WITHIN_S,
        keepalive_interval=_ASK_IF_THERE_S,
        keepalive_count_max=_THERE_TRIES,
        config=None,
    )
    async with server:
        await control.until_gone()


def _strong(algorithms: Iterable[bytes]) -> list[str]:
    """Those of the usual algorithms that are not weak."""
    return [each.decode() for each in algorithms if not (b"sha1" in each or each.startswith(_WEAK))]


def main(argv: list[str]) -> int:
    """Run the gateway; the two descriptors are arguments, and the number of the account that it becomes, if any."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("asyncssh", "asyncio"):  # what clients send, and how they leave, would fill the log
        logging.getLogger(noisy).setLevel(logging.ERROR)
    listener, control = (socket.socket(fileno=int(descriptor)) for descriptor in argv[1:3])
    host_key = sys.stdin.read()
    give_up_rights(int(argv[3]) if argv[3:] else None)

    async def run() -> None:
        await serve(listener, GatewayControl(control), host_key)

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
