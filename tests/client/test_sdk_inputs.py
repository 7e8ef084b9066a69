"""Standard input on its way to the server: whatever is lost underway, it arrives once and in order."""

from __future__ import annotations

import pytest

from millpond.client.sdk import patience
from millpond.client.sdk.inputs import Inputs
from millpond.model.errors import ConflictError, UnavailableError
from millpond.specs.job_requests import InputInfo


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
    monkeypatch.setattr(patience, "_FIRST_PAUSE_S", 0.0)


def pieces(*data):
    rest = iter(data)
    return lambda _most: next(rest, b"")


@pytest.mark.parametrize("trouble", [[], ["request lost"] * 2, ["answer lost"] * 3, ["", "answer lost"]])
def test_everything_arrives_once_and_then_the_end(trouble):
    server = Server(trouble)
    Inputs(server.ask, server).feed("j", 4, pieces(b"abcdefgh", b"i", b"jklm"))
    assert (server.taken, server.ended) == (b"abcdefghijklm", True)


def test_a_refusal_ends_it():
    server = Server([])
    server.refusal = ConflictError("no", "")
    with pytest.raises(ConflictError):
        Inputs(server.ask, server).feed("j", 4, pieces(b"abc"))
