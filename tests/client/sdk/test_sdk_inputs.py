"""Standard input on its way to the server: whatever is lost underway, it arrives once and in order."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from millpond.client.cli.terminal.input_feeder import InputFeeder
from millpond.client.sdk.resources import inputs
from millpond.client.sdk.resources.inputs import Inputs
from millpond.client.sdk.transport import reconnecting
from millpond.model.errors import ConflictError, UnavailableError
from millpond.specs.api.jobs.requests import InputInfo


class Server:
    """Takes at most three bytes at a time, and loses some requests and some answers."""

    def __init__(self, trouble):
        self.taken, self.ended, self.refusal = b"", False, None
        self.address = None
        self._trouble = iter(trouble)

    def reconnect(self):
        """It is where it was."""

    def ask(self, answer, method, path, *, params, content, timeout):
        assert (method, path, params["attempt"]) == ("PUT", "/jobs/j/stdin", 4)
        if self.refusal:
            raise self.refusal
        trouble = next(self._trouble, "")
        if trouble == "request lost":
            raise UnavailableError("away", "")
        fresh = content[len(self.taken) - params["offset"] :]
        self.taken += fresh[:3]
        self.ended = params["end"] and len(fresh) <= 3
        if trouble == "answer lost":
            raise UnavailableError("away", "")
        return InputInfo(received=len(self.taken), open=not self.ended)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(reconnecting, "_FIRST_PAUSE_S", 0.0)


def pieces(*data):
    rest = iter(data)
    return lambda _most: next(rest, b"")


@pytest.mark.parametrize("trouble", [[], ["request lost"] * 2, ["answer lost"] * 3, ["", "answer lost"]])
def test_everything_arrives_once_and_then_the_end(trouble):
    server = Server(trouble)
    Inputs(server).feed("j", 4, pieces(b"abcdefgh", b"i", b"jklm"))
    assert (server.taken, server.ended) == (b"abcdefghijklm", True)


def test_a_sender_that_has_nothing_for_now_says_so_with_an_empty_piece():
    server = Server([])
    sent, answered = [], server.ask

    def ask(answer, method, path, *, content, **rest):
        sent.append(content)
        return answered(answer, method, path, content=content, **rest)

    server.ask = ask
    Inputs(server).feed("j", 4, pieces(None, b"ab", None, b"c"))
    assert sent == [b"", b"ab", b"", b"c", b""]
    assert (server.taken, server.ended) == (b"abc", True)


def test_a_refusal_ends_it():
    server = Server([])
    server.refusal = ConflictError("no", "")
    with pytest.raises(ConflictError):
        Inputs(server).feed("j", 4, pieces(b"abc"))


def test_what_is_piped_into_a_command_is_waited_for_in_turns(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(inputs, "HEARD_EVERY_S", 0.0)
    found = []

    def feed(_job, _attempt, read):
        found.append(read(10))
        os.write(writer, b"abc")
        found.append(read(10))
        os.close(writer)
        found.append(read(10))

    with os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        feeder = InputFeeder(SimpleNamespace(inputs=SimpleNamespace(feed=feed)))
        feeder._run(SimpleNamespace(id="j", attempt=1))
    assert found == [None, b"abc", b""]
    assert feeder.done
