"""A database that takes connections and then says nothing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from millpond.model.errors import UnavailableError
from millpond.server.store.connection.database import claim, connect
from millpond.server.store.connection.leadership import CONNECTS_WITHIN_S, Seat


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
