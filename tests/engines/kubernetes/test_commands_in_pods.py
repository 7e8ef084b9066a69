"""Commands beside the programs of pods: as local tasks have them, on a stand-in whose containers are this machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pod_bench import PodBench, eventually
from standin_cluster import Plain, StandinCluster, refusal
from starlette.responses import JSONResponse
from websockets.exceptions import ConnectionClosedOK

from millpond.engines.kubernetes.cluster import silent_peers
from millpond.engines.kubernetes.streams.channels import PodChannels
from millpond.engines.kubernetes.streams.pod_session import PodSession
from millpond.model.errors import UnavailableError
from millpond.node.sessions.session import LARGEST_MESSAGE
from millpond.node.task.records import TaskId

TASK = TaskId("train-abcde", 1, 0)
POD = "train-abcde-1-0"
WITHIN_S = 60.0
UNTIL_HUNG_UP = """trap '' TERM; trap 'echo hup > "$0"; exit 0' HUP; echo ready; while true; do sleep 0.05; done"""


class Client:
    """The other end of one command."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.seen = {1: b"", 2: b""}
        self.last: dict[str, Any] = {}
        connection.setblocking(True)
        connection.settimeout(WITHIN_S)

    def say(self, **message: Any) -> None:
        self.connection.send(json.dumps(message).encode())

    def type(self, data: bytes) -> None:
        self.connection.send(b"\x00" + data)

    def hear(self) -> bool:
        message = self.connection.recv(LARGEST_MESSAGE)
        if message[:1] == b"{":
            self.last = json.loads(message)
        elif message:
            self.seen[message[0]] += message[1:]
        return bool(message)

    def until(self, text: bytes) -> None:
        while text not in self.seen[1]:
            assert self.hear(), self.seen

    def end(self) -> dict[str, Any]:
        while not self.last and self.hear():
            continue
        return self.last


@contextmanager
def command(bench: PodBench, *words: str, **order: Any) -> Iterator[Client]:
    client = Client(asyncio.run(bench.engine.access.open_session(TASK)))
    with client.connection:
        client.say(argv=words, **order)
        yield client


@pytest.fixture
def running(bench: PodBench) -> PodBench:
    bench.started()
    eventually(lambda: bench.engine.access.serving(TASK))
    return bench


def test_a_command_whose_other_end_is_gone_without_a_word_ends_for_its_client(
    running: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_peers, "LOOK_EVERY_S", 0.01)
    with command(running, "sh", "-c", "echo ready; sleep 600") as client:
        client.until(b"ready")
        monkeypatch.setattr(silent_peers, "MOST_UNANSWERED", 0)  # as if all had been sent again and again
        assert "broke off" in client.end()["error"]


def test_a_command_has_its_streams_and_its_exit_code(running: PodBench) -> None:
    with command(running, "sh", "-c", "echo out; echo err >&2; exit 7") as client:
        assert client.end() == {"exit": 7}
    assert client.seen == {1: b"out\n", 2: b"err\n"}


def test_one_that_a_signal_ends_has_the_code_that_shells_show(running: PodBench) -> None:
    with command(running, "sh", "-c", "kill -9 $$") as client:
        assert client.end() == {"exit": 137}


def test_what_is_not_there_is_said_as_a_shell_says_it(running: PodBench) -> None:
    with command(running, "/nosuch") as client:
        assert client.end() == {"exit": 127}
    assert b"/nosuch" in client.seen[2]


def test_input_arrives_whole_with_its_end(running: PodBench) -> None:
    data = os.urandom(300_000)
    with command(running, "cat") as client:
        for begin in range(0, len(data), 30_000):
            client.type(data[begin : begin + 30_000])
        client.say(eof=True)
        assert client.end() == {"exit": 0}
    assert client.seen[1] == data


def test_a_command_that_reads_no_more_input_ends_nevertheless(running: PodBench) -> None:
    with command(running, "head", "-c", "2") as client:
        client.type(b"abc")
        client.until(b"ab")
        client.type(b"d" * 50_000)
        assert client.end() == {"exit": 0}


def test_a_terminal_has_a_size_a_kind_and_ctrl_c(running: PodBench) -> None:
    with command(running, "sh", "-i", tty=True, term="vt100", rows=33, columns=101) as client:
        client.type(b"stty size; echo kind $TERM\n")
        client.until(b"33 101")
        client.until(b"kind vt100")
        client.say(rows=20, columns=60)
        client.type(b"sleep 0.2; stty size\n")
        client.until(b"20 60")
        # A program of its own says that it waits: the terminal is its by then, and Ctrl-C reaches it, not the shell.
        client.type(b"""sh -c "echo wa''its; exec sleep 1000"\n""")
        client.until(b"waits")
        client.type(b"\x03")
        client.type(b"exit 5\n")
        assert client.end() == {"exit": 5}


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_whose_client_leaves_is_ended(running: PodBench, terminal: bool, tmp_path: Path) -> None:
    with command(running, "sh", "-c", UNTIL_HUNG_UP, str(tmp_path / "told"), tty=terminal) as client:
        client.until(b"ready")
    eventually(lambda: (tmp_path / "told").exists())


def test_a_command_whose_client_has_left_before_its_first_word_is_ended() -> None:
    class Stream:
        """The API server's side of a stream."""

        def __init__(self, *said: bytes) -> None:
            self.said = list(said)

        async def __aenter__(self) -> Stream:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def recv(self, decode: bool) -> bytes:
            if len(asked) > 1:
                raise ConnectionClosedOK(None, None)
            return self.said.pop() if self.said else await asyncio.Future[bytes]()

    class Channels:
        async def open(self, _pod: str, _part: str, query: Sequence[tuple[str, str]]) -> Stream:
            asked.append([word for name, word in query if name == "command"])
            return Stream(b"\x01123\r\nwelcome")

    asked: list[list[str]] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.send(json.dumps({"argv": ["bash"], "tty": True}).encode())
    theirs.close()
    ours.setblocking(False)
    asyncio.run(PodSession(cast(PodChannels, Channels()), POD, ours).run())
    assert asked[1][-1] == "123"
    assert "kill -s $signal" in asked[1][2]


def test_it_is_ended_too_when_the_server_is_gone(running: PodBench, tmp_path: Path) -> None:
    with command(running, "sh", "-c", UNTIL_HUNG_UP, str(tmp_path / "told")) as client:
        client.until(b"ready")
        running.close()
        eventually(lambda: (tmp_path / "told").exists())
        assert client.last == {}


def test_what_it_leaves_in_the_background_goes_on(running: PodBench, tmp_path: Path) -> None:
    line = f"(sleep 0.3; echo done > {tmp_path}/told) >/dev/null 2>&1 & echo begun"
    with command(running, "sh", "-c", line) as client:
        assert client.end() == {"exit": 0}
    eventually(lambda: (tmp_path / "told").exists())


def test_a_cluster_that_refuses_is_quoted(running: PodBench, cluster: StandinCluster) -> None:
    def forbidden(request: str, _body: Plain) -> JSONResponse | None:
        return refusal(403, "Forbidden", "millpond cannot get pods/exec") if request.endswith("/exec") else None

    cluster.refuses = forbidden
    with command(running, "true") as client:
        said = client.end()
    assert "cannot get pods/exec" in said["error"]
    assert "kube check" in said["remedy"]
    assert said["exit"] == 126


def test_a_cluster_that_is_away_is_said_to_be(running: PodBench, cluster: StandinCluster) -> None:
    cluster.stop()
    with command(running, "true") as client:
        assert "cannot be reached" in client.end()["error"]
    cluster.start()


def test_a_stream_that_breaks_is_no_exit_code_of_the_command(running: PodBench, cluster: StandinCluster) -> None:
    with command(running, "sh", "-c", "echo ready; read x") as client:
        client.until(b"ready")
        cluster.stop()
        said = client.end()
    cluster.start()
    assert "broke off" in said["error"]
    assert said["exit"] == 255


def test_a_pod_that_is_over_takes_no_commands(running: PodBench, cluster: StandinCluster) -> None:
    cluster.finish(POD)
    eventually(lambda: running.engine.access.serving(TASK) is None)
    with pytest.raises(UnavailableError, match="it is over"):
        asyncio.run(running.engine.access.open_session(TASK))
