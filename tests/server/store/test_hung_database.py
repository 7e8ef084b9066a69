"""A database that takes connections and then says nothing, or whose machine is gone."""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from millpond.model.errors import UnavailableError
from millpond.server.store.connection import database
from millpond.server.store.connection.database import claim, connect
from millpond.server.store.connection.leadership import CONNECTS_WITHIN_S, Seat, postgresql_options


def test_a_connection_whose_other_end_is_gone_is_given_up_within_seconds_unless_the_url_says_when() -> None:
    url = sa.make_url("postgresql+psycopg://u@127.0.0.1/x?tcp_user_timeout=77000")
    ends = postgresql_options(url)["connect_args"]
    assert "tcp_user_timeout" not in ends
    assert ends["keepalives_idle"] + ends["keepalives_interval"] * ends["keepalives_count"] < 15
    assert postgresql_options(url.set(query={}))["connect_args"]["tcp_user_timeout"] == 10_000


@pytest.mark.parametrize(("query", "within_s"), [("", CONNECTS_WITHIN_S), ("?connect_timeout=77", "77")])
def test_a_connection_to_it_is_given_up_soon_unless_its_url_says_when(
    monkeypatch: pytest.MonkeyPatch, query: str, within_s: object
) -> None:
    asked: list[object] = []

    def hang(*_: object, **options: Any) -> None:
        asked.append(options["connect_timeout"])
        raise psycopg.OperationalError("connection timeout expired")

    monkeypatch.setattr(psycopg.Connection, "connect", hang)
    monkeypatch.setattr(psycopg, "connect", hang)
    url = f"postgresql+psycopg://u:secret@127.0.0.1:1/x{query}"
    with pytest.raises(UnavailableError, match=r"cannot be opened \(connection timeout expired\)"):
        connect(url, claim(url, Seat()))
    assert asked == [within_s]


def test_a_start_that_waits_for_it_says_so_without_the_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = threading.Event()
    monkeypatch.setattr(database, "SILENT_S", 0.0)

    def warn(text: str, *values: object) -> None:
        logging.warning(text, *values)
        said.set()

    monkeypatch.setattr(database.log, "warning", warn)

    def hang(*_: object, **__: object) -> None:
        assert said.wait(30)
        raise psycopg.OperationalError("connection timeout expired")

    monkeypatch.setattr(psycopg.Connection, "connect", hang)
    monkeypatch.setattr(psycopg, "connect", hang)
    url = "postgresql+psycopg://u:secret@127.0.0.1:1/x"
    with pytest.raises(UnavailableError, match="timeout expired"):
        connect(url, claim(url, Seat()))
    assert "the start waits for postgresql+psycopg://u:***@127.0.0.1:1/x" in caplog.text
