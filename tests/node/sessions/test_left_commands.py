"""Commands beside a task whose client has left."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.node.sessions import session


@pytest.fixture
def heedless() -> Iterator[None]:
    """Commands that are started now ignore what asks them to end."""
    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heedless")
def test_a_command_that_does_not_heed_that_its_client_has_left_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = dict.fromkeys(("sandbox", "network", "container", "identity"))
    place = {"env": dict(os.environ), "workdir": str(tmp_path), **nowhere}
    client, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.send(json.dumps({"argv": ["sh", "-c", "sleep 20; touch outlived"]}).encode())
    client.close()
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(place)))
    monkeypatch.setattr(session, "_LEFT_ALONE_S", 0.0, raising=False)
    monkeypatch.chdir(tmp_path)
    assert session.main(["session", str(served.detach())]) == 0
    assert not (tmp_path / "outlived").exists()
