"""The store on PostgreSQL."""

from __future__ import annotations

import pytest

from millpond.model import events
from millpond.model.errors import UnavailableError
from millpond.server.store.histories import LogEntry
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Snapshot, Store


def test_the_store_works_on_postgresql_and_keeps_a_second_server_off(postgresql_url: str) -> None:
    store = Store(postgresql_url)
    store.append([LogEntry(1, events.Tick(1.0))], [NewJob("j", "ada", 1.0, {"command": "x"}, "key", "digest")])
    store.save_snapshot(Snapshot(1, 1.0, "v", {"a": 1}))
    assert [entry.event for entry in store.events_after(0)] == [events.Tick(1.0)]
    assert store.jobs.repeated("key") == ("j", "digest")
    with pytest.raises(UnavailableError, match="another server"):
        Store(postgresql_url)
    store.close()
    again = Store(postgresql_url)
    assert again.latest_snapshot() == Snapshot(1, 1.0, "v", {"a": 1})
    again.close()
