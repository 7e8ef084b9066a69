"""A log stream: every piece once, in order, whatever happens to the connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import httpx2
import pytest

from millpond.client.sdk.resources.logs import follow, read
from millpond.client.sdk.transport.discovery import Address
from millpond.client.sdk.transport.reconnecting import PATIENCE_S, Patience
from millpond.model.errors import MillpondError, NotFoundError, UnavailableError


class Connection:
    """Plays prepared streams: bytes arrive, an exception breaks off."""

    address = Address("http://pool:1", "secret")

    def __init__(self, *streams: list[bytes | Exception]) -> None:
        self.streams = list(streams)
        self.asked: list[dict[str, object]] = []
        self.reconnects = 0

    def stream(self, path: str, params: dict[str, object], silence_s: float) -> Iterator[bytes]:
        self.asked.append(dict(params))
        for part in self.streams.pop(0):
            if isinstance(part, Exception):
                raise part
            yield part

    def reconnect(self) -> None:
        self.reconnects += 1


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def followed(connection: Connection, **params: object) -> list[str]:
    clock = Clock()
    patience = Patience(connection, clock.sleep, clock)
    return [chunk.data for chunk in follow(connection, patience, "/logs", {"follow": True, **params})]


def line(chunk) -> bytes:
    return json.dumps(asdict(chunk)).encode() + b"\n"


def test_pieces_come_as_they_were_sent(make_chunk):
    connection = Connection([line(make_chunk("a\n")) + line(make_chunk("b\n")), b"", line(make_chunk(job_over=True))])
    assert followed(connection) == ["a\n", "b\n", ""]


def test_a_piece_cut_anywhere_arrives_whole(make_chunk):
    whole = line(make_chunk("grüße\u2028\x85\n"))
    connection = Connection([bytes([byte]) for byte in whole] + [line(make_chunk(job_over=True))])
    assert followed(connection) == ["grüße\u2028\x85\n", ""]


def test_after_a_loss_it_goes_on_behind_the_last_whole_piece(make_chunk):
    half = line(make_chunk("b", cursor="2"))[:-5]
    connection = Connection(
        [line(make_chunk("a", cursor="1")), half, httpx2.ReadError("lost")],
        [line(make_chunk("b", cursor="2")), line(make_chunk(job_over=True))],
    )
    assert followed(connection) == ["a", "b", ""]
    assert connection.asked[1]["cursor"] == "1"
    assert connection.reconnects == 1


def test_an_answer_that_ends_early_is_asked_for_again(make_chunk):
    connection = Connection([line(make_chunk("a", cursor="1"))], [line(make_chunk(job_over=True))])
    assert followed(connection) == ["a", ""]


def test_a_silent_connection_is_asked_for_anew_without_a_pause(make_chunk):
    connection = Connection([httpx2.ReadTimeout("silence")], [line(make_chunk(job_over=True))])
    assert followed(connection) == [""]
    assert connection.reconnects == 0


def test_a_named_attempt_ends_with_its_answer(make_chunk):
    connection = Connection([line(make_chunk("a", attempt_over=True))])
    assert followed(connection, attempt=1) == ["a"]


def test_a_named_attempt_whose_answer_ends_early_is_asked_for_again(make_chunk):
    connection = Connection([line(make_chunk("a", cursor="1"))], [line(make_chunk("b", attempt_over=True))])
    assert followed(connection, attempt=1) == ["a", "b"]


def test_patience_with_an_absent_server_ends(make_chunk):
    streams = [[httpx2.ConnectError("refused")] for _ in range(200)]
    connection = Connection(*streams)
    with pytest.raises(UnavailableError, match="no Millpond server answers"):
        followed(connection)
    assert PATIENCE_S / 2 <= connection.reconnects <= PATIENCE_S


def test_patience_counts_from_when_a_server_last_answered_though_the_job_be_silent(make_chunk):
    absent = [[httpx2.ConnectError("refused")] for _ in range(40)]
    there = [b"", httpx2.ReadError("lost")]
    connection = Connection(*absent, there, *absent, there, *absent, [line(make_chunk("a\n", job_over=True))])
    assert followed(connection) == ["a\n"]


def test_a_server_that_keeps_ending_its_answer_is_given_up(make_chunk):
    with pytest.raises(UnavailableError, match="keeps ending its answer early"):
        followed(Connection(*([b""] for _ in range(200))))


def test_a_job_that_does_not_exist_is_told_at_once():
    connection = Connection([NotFoundError("no job 'x'")])
    with pytest.raises(NotFoundError):
        followed(connection)


def test_nonsense_in_the_stream_is_an_error_and_not_a_loss():
    with pytest.raises(MillpondError, match="not understood"):
        followed(Connection([b"{}\n"]))


def test_without_following_a_loss_is_told(make_chunk):
    connection = Connection([line(make_chunk("a")), httpx2.ReadError("lost")])
    pieces = read(connection, "/logs", {})
    assert next(pieces).data == "a"
    with pytest.raises(httpx2.ReadError):
        next(pieces)
