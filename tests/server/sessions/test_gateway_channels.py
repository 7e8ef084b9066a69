"""Channels of a real SSH client: whoever is gone keeps no way into a task open, and who is cut off is told why."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import asyncssh
import pytest
from asyncssh.connection import MSG_IGNORE

from millpond.server.sessions.ssh.channels import TaskChannel
from millpond.server.sessions.ssh.control import GatewayControl
from millpond.server.sessions.ssh.gateway import serve
from millpond.server.sessions.ssh.messages import LARGEST_MESSAGE, GatewayRequest

WITHIN_S = 30.0
INTO_TASKS = (GatewayRequest.SESSION, GatewayRequest.FORWARD)


class SilentTasks:
    """Stands for the control: everybody may enter tasks, which take nothing and say nothing.

    Attributes:
        asked: somebody wants to enter a task.
        lets_in: those who want to are let in.
        over: a session is over, and the end of its connection that is the task's.
    """

    def __init__(self) -> None:
        self.asked, self.lets_in, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.over: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.ends: list[socket.socket] = []
        self.lets_in.set()

    async def ask(self, ask: GatewayRequest, _about: dict[str, Any]) -> dict[str, Any]:
        if ask not in INTO_TASKS:
            return {"known": True, "user": "ada"}
        self.asked.set()
        await self.lets_in.wait()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.ends.append(theirs)
        return {"session": len(self.ends) - 1, "connection": ours}

    def notify(self, ask: GatewayRequest, about: dict[str, Any]) -> None:
        if ask is GatewayRequest.LEFT:
            self.over.put_nowait(self.ends[about["session"]])

    async def until_gone(self) -> None:
        await self.gone.wait()


@contextlib.asynccontextmanager
async def connected(tasks: SilentTasks, **options: Any) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A client of a gateway before such tasks."""
    listener = socket.create_server(("127.0.0.1", 0))
    host_key = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    serving = asyncio.ensure_future(serve(listener, cast(GatewayControl, tasks), host_key))
    own_key = asyncssh.generate_private_key("ssh-ed25519")
    try:
        async with asyncssh.connect(
            *listener.getsockname(),
            username="job",
            known_hosts=None,
            client_keys=[own_key],
            agent_path=None,
            config=None,
            **options,
        ) as client:
            yield client
    finally:
        tasks.gone.set()
        await serving


async def is_let_go(tasks: SilentTasks) -> bool:
    """Whether the next session that is over has left nothing open."""
    end = await asyncio.wait_for(tasks.over.get(), WITHIN_S)
    end.settimeout(WITHIN_S)
    with end:
        while end.recv(65_536):
            pass
    return True


@pytest.mark.parametrize("leave", ["close", "abort"])
def test_a_forwarded_port_whose_program_is_silent_ends_as_the_client_leaves(leave: str) -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            await client.open_connection("localhost", 80)
            getattr(client, leave)()
            assert await is_let_go(tasks)

    asyncio.run(run())


def test_a_command_that_takes_no_input_is_left_as_the_client_leaves() -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            command = await client.create_process("cat", encoding=None)
            command.stdin.write(b"x" * 8_000_000)
            await tasks.asked.wait()
            client.abort()
            assert await is_let_go(tasks)

    asyncio.run(run())


@pytest.mark.parametrize("way", ["port", "command"])
def test_who_leaves_before_the_way_is_open_keeps_none(way: str) -> None:
    async def run() -> None:
        tasks = SilentTasks()
        tasks.lets_in.clear()
        async with connected(tasks) as client:
            opened = client.open_connection("localhost", 80) if way == "port" else client.create_process("true")
            opening = asyncio.ensure_future(opened)
            await tasks.asked.wait()
            client.abort()
            await client.wait_closed()
            with contextlib.suppress(asyncssh.Error, OSError):
                await opening
            tasks.lets_in.set()
            assert await is_let_go(tasks)

    asyncio.run(run())


def test_a_command_that_no_message_holds_is_refused_before_a_way_is_opened() -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            done = await client.run("echo " + "x" * LARGEST_MESSAGE, encoding=None)
            assert done.exit_status == 126
            assert b"at most 65,536 are taken" in cast(bytes, done.stderr)
            assert not tasks.ends

    asyncio.run(run())


def test_a_command_whose_place_closes_without_a_word_says_what_that_may_mean() -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            running = asyncio.ensure_future(client.run("true", encoding=None))
            await tasks.asked.wait()
            tasks.ends[0].close()
            done = await asyncio.wait_for(running, WITHIN_S)
            assert done.exit_status == 255
            assert b"64 commands beside it already" in cast(bytes, done.stderr)

    asyncio.run(run())


def test_what_a_terminal_says_without_end_is_not_held_for_a_task_that_does_not_hear_it() -> None:
    channel = TaskChannel(cast(GatewayControl, None), {}, cast(Any, None), lambda: None)
    channel.pty_requested("xterm", (80, 24, 0, 0), None)
    for number in range(10_000):
        channel.terminal_size_changed(number, 24, 0, 0)
        channel.signal_received("INT")
    channel.eof_received()
    assert len(channel._inward) < 100
    assert channel._inward[-1] == b'{"eof": true}'


async def begin_to_print(client: asyncssh.SSHClientConnection, tasks: SilentTasks) -> None:
    """Run a command whose output the client's window does not bound."""
    await client.create_process("yes", encoding=None, window=2**31)
    while not tasks.ends:
        await asyncio.sleep(0)


async def sent(end: socket.socket) -> int:
    """Bytes that the task can send in many turns of the event loop."""
    end.setblocking(False)
    bytes_sent = 0
    for _ in range(600):
        with contextlib.suppress(BlockingIOError):
            bytes_sent += end.send(b"\x01" * 60_000)
        await asyncio.sleep(0)
    return bytes_sent


@pytest.mark.parametrize("way", ["port", "command"])
def test_what_a_client_does_not_read_stays_with_the_task_however_large_its_window_is(way: str) -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            if way == "port":
                await client.open_connection("localhost", 80, window=2**31)
            else:
                await begin_to_print(client, tasks)
            cast(asyncio.Transport, client._transport).pause_reading()
            assert 60_000 <= await sent(tasks.ends[0]) < 10_000_000
            cast(asyncio.Transport, client._transport).resume_reading()
            assert await sent(tasks.ends[0]) > 1_000_000
            client.abort()

    asyncio.run(run())


def test_no_output_is_taken_for_a_client_that_stays_in_a_key_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            await begin_to_print(client, tasks)
            client._send_kexinit()
            monkeypatch.setattr(client, "data_received", lambda _data, _datatype=None: None)
            assert await sent(tasks.ends[0]) < 10_000_000
            client.abort()

    asyncio.run(run())


def test_nothing_is_taken_on_from_a_client_that_does_not_read() -> None:
    async def run() -> None:
        tasks = SilentTasks()
        async with connected(tasks) as client:
            await begin_to_print(client, tasks)
            transport = cast(asyncio.Transport, client._transport)
            transport.pause_reading()
            await sent(tasks.ends[0])
            for _ in range(1_000):
                client.send_packet(MSG_IGNORE, asyncssh.packet.String(bytes(30_000)))
                await asyncio.sleep(0)
            assert transport.get_write_buffer_size() > 10_000_000
            client.abort()

    asyncio.run(run())


def test_variables_that_a_client_sets_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncssh.SSHServerChannel[bytes]] = []
    begin = TaskChannel.connection_made
    monkeypatch.setattr(TaskChannel, "connection_made", lambda self, chan: (made.append(chan), begin(self, chan)))

    async def run() -> None:
        async with connected(SilentTasks()) as client:
            await client.create_process("true", encoding=None, env={"NAME": "x" * 10_000})
            assert [dict(channel._env) for channel in made] == [{}]

    asyncio.run(run())


def test_sha_1_is_offered_for_nothing() -> None:
    async def run() -> None:
        for old in ({"kex_algs": ["diffie-hellman-group14-sha1"]}, {"mac_algs": ["hmac-sha1"]}):
            with pytest.raises(asyncssh.KeyExchangeFailed):
                async with connected(SilentTasks(), encryption_algs=["aes128-ctr"], **old):
                    pytest.fail("it was")
        async with connected(SilentTasks()) as client:
            assert b"rsa-sha2-256" in client._server_sig_algs
            assert not {b"ssh-rsa", b"ssh-dss"} & client._server_sig_algs

    asyncio.run(run())
