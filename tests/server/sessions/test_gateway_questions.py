"""How what the gateway asks is answered: a program that lets nobody in holds up nobody else's question."""

from __future__ import annotations

import socket
import subprocess
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from millpond.server.sessions.ssh import gateway_process
from millpond.server.sessions.ssh.authorizer import SshAuthorizer
from millpond.server.sessions.ssh.gateway_process import Gateway, HostKey
from millpond.server.sessions.ssh.messages import receive, send

WITHIN_S = 30.0


class SlowProgram:
    """A gatekeeper; the program that somebody wants to reach takes its time."""

    def __init__(self, *defects: Exception) -> None:
        self.defects = list(defects)
        self.lets_in = threading.Event()
        self.looked = threading.Event()

    def answer(self, question: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
        if question["ask"] in ("forward", "session"):
            self.lets_in.wait(WITHIN_S)
        return {"said": question["ask"]}, None

    def cut_off(self) -> None:
        if self.defects:
            raise self.defects.pop()
        self.looked.set()

    def close(self) -> None:
        """Nobody is there."""


def test_a_defect_in_an_answer_does_not_end_ssh_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[socket.socket] = []

    def spawn(_gateway: Gateway, theirs: socket.socket) -> subprocess.Popen[bytes]:
        ends.append(theirs.dup())
        return subprocess.Popen(["true"])

    monkeypatch.setattr(Gateway, "_spawn", spawn)
    monkeypatch.setattr(gateway_process, "_AFTER_TROUBLE_S", 0.01)
    keeper = SlowProgram(RuntimeError("odd"))
    gateway = Gateway(socket.socket(), cast(HostKey, None), cast(SshAuthorizer, keeper))
    gateway.start()
    try:
        assert keeper.looked.wait(WITHIN_S)
    finally:
        gateway.close()
        for end in ends:
            end.close()
    assert len(ends) == 2


def test_sessions_go_on_while_nobody_can_say_whether_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise OperationalError("select", {}, Exception("the database is away"))

    monkeypatch.setattr(SshAuthorizer, "_bearer", silent)
    authorizer = SshAuthorizer(*[cast(Any, None)] * 5)
    own, other = socket.socketpair()
    with own, other:
        authorizer._sessions[1] = cast(Any, SimpleNamespace(question={}, connection=own))
        authorizer.cut_off()
        other.sendall(b"still here")
        assert own.recv(100) == b"still here"


@pytest.mark.parametrize("way", ["forward", "session"])
def test_whoever_logs_in_does_not_wait_for_a_task_that_others_connect_to(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[socket.socket] = []

    def spawn(_gateway: Gateway, theirs: socket.socket) -> subprocess.Popen[bytes]:
        ends.append(theirs.dup())
        spawned.set()
        return subprocess.Popen(["true"])

    spawned = threading.Event()
    monkeypatch.setattr(Gateway, "_spawn", spawn)
    keeper = SlowProgram()
    gateway = Gateway(socket.socket(), cast(HostKey, None), cast(SshAuthorizer, keeper))
    gateway.start()
    assert spawned.wait(WITHIN_S)
    with ends[0] as queries:
        queries.settimeout(WITHIN_S / 2)
        send(queries, {"id": 1, "ask": way})
        send(queries, {"id": 2, "ask": "know"})
        answers = [receive(queries)]
        keeper.lets_in.set()
        answers.append(receive(queries))
        gateway.close()
    assert keeper.looked.is_set(), "sessions of who may no longer be there are looked for"
    assert answers == [({"said": "know", "id": 2}, []), ({"said": way, "id": 1}, [])]


def test_sessions_go_on_where_the_machine_has_no_room_for_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, start, begun = SlowProgram(), threading.Thread.start, list[str]()
    gateway = Gateway(socket.socket(), cast(HostKey, None), cast(SshAuthorizer, keeper))

    def begin(thread: threading.Thread) -> None:
        if thread.name.startswith("ssh-ways"):
            begun.append(thread.name)
            if len(begun) > 1:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.settimeout(WITHIN_S)
    conversation = threading.Thread(target=gateway._converse, args=(own,), daemon=True)
    conversation.start()
    for number in (1, 2):
        send(theirs, {"id": number, "ask": "session"})
    send(theirs, {"id": 3, "ask": "know"})
    answers = [receive(theirs)]
    keeper.lets_in.set()
    answers += [receive(theirs), receive(theirs)]
    assert [answer and answer[0]["id"] for answer in answers] == [3, 1, 2]
    theirs.close()
    conversation.join(WITHIN_S)
    own.close()
    assert len(begun) > 1


def test_a_gateway_that_is_not_understood_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[subprocess.Popen[bytes]] = []

    def spawn(_gateway: Gateway, theirs: socket.socket) -> subprocess.Popen[bytes]:
        theirs.send(b"no question")
        process = subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL)
        spawned.append(process)
        return process

    monkeypatch.setattr(Gateway, "_spawn", spawn)
    gateway = Gateway(socket.socket(), cast(HostKey, None), cast(SshAuthorizer, SlowProgram()))
    gateway._run_one()
    assert [process.returncode for process in spawned] == [0], "it saw the end of the conversation"
