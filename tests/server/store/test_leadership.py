"""Who may write to a database that two servers can reach: on PostgreSQL itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from millpond.model import events
from millpond.model.errors import UnavailableError
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.records import User
from millpond.server.store.connection import leadership
from millpond.server.store.connection.database import connect_to_read
from millpond.server.store.connection.leadership import Leadership, NotLeadingError, Seat, WritesLostError
from millpond.server.store.histories import LogEntry
from millpond.server.store.store import Store

FIRST = Seat("http://127.0.0.1:1", "host", "boot", 11, "/state")
SECOND = Seat("http://127.0.0.1:2", "host", "boot", 22, "/state")


class Lead:
    """A store whose server leads, and what takes the lead from it."""

    def __init__(self, url: str, seat: Seat) -> None:
        self.leadership = Leadership(url, seat)
        self.store = Store(url, self.leadership)

    def append(self, seq: int) -> None:
        self.store.append([LogEntry(seq, events.Tick(float(seq)))])

    def lose_lock(self) -> None:
        """PostgreSQL ends the session that holds the lock, as it does with a server that stands still."""
        with self.store.database.connect() as connection:
            holders = sa.text("SELECT pid FROM pg_locks WHERE locktype = 'advisory'")
            for pid in connection.execute(holders).scalars().all():
                ended = sa.text("SELECT pg_terminate_backend(:pid, 60000)")  # with a patience, it waits for the end
                assert connection.execute(ended, {"pid": pid}).scalar_one()


@pytest.fixture
def leads(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Lead]]:
    """Those who lead, or believe so; closed in the end. They show themselves only where a test has them do so."""
    monkeypatch.setattr(leadership, "SHOWS_EVERY_S", 3_600.0)
    monkeypatch.setattr(leadership, "LEASE_S", 600.0)
    leads: list[Lead] = [Lead(postgresql_url, FIRST)]
    yield leads
    for lead in leads:
        lead.store.close()


def seqs(lead: Lead) -> list[int]:
    return [entry.seq for entry in lead.store.events_after(0)]


def test_a_second_server_is_told_who_leads(leads: list[Lead], postgresql_url: str) -> None:
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1, process 11 on host.*--standby"):
        Store(postgresql_url)
    assert leads[0].leadership.show()


def test_the_lead_goes_on_to_the_next_when_a_server_ends(leads: list[Lead], postgresql_url: str) -> None:
    leads[0].append(1)
    leads[0].store.close()
    leads[0] = Lead(postgresql_url, SECOND)
    assert seqs(leads[0]) == [1]
    assert leads[0].leadership.leader() == SECOND


def test_the_lead_is_free_at_once_though_postgresql_has_not_noticed_the_end_of_a_session(
    leads: list[Lead], postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(leads[0].leadership, "_hang_up", lambda: None)
        leads[0].store.close()
        leads.append(Lead(postgresql_url, SECOND))
    assert leads[1].leadership.leader() == SECOND


def test_the_lock_of_a_server_that_was_killed_on_this_machine_is_waited_for(
    leads: list[Lead], postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads[0].store.close()
    gone = 2**22 + 1  # no process has such a number
    leads[0] = Lead(postgresql_url, replace(FIRST, pid=gone))
    pauses = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: leads[0].lose_lock())
    monkeypatch.setattr(leadership, "time", pauses)
    leads.append(Lead(postgresql_url, SECOND))
    assert leads[1].leadership.leader() == SECOND
    refuse = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waits for one that may live"))
    monkeypatch.setattr(leadership, "time", refuse)
    with pytest.raises(UnavailableError, match="another server"):
        Lead(postgresql_url, replace(SECOND, host="another"))


def test_a_server_that_begins_to_lead_while_it_shows_itself_leads_on(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "SHOWS_EVERY_S", 3_600.0)
    beginning = Leadership(postgresql_url, FIRST)
    assert beginning.take_lock()

    def begin(_connection: object, _cursor: object, _statement: str, *_: object) -> None:
        beginning.epoch = 1

    sa.event.listen(beginning._engine, "after_cursor_execute", begin)
    try:
        assert beginning.show()
        assert not beginning.lost
    finally:
        beginning.close()


def test_a_server_that_was_replaced_writes_nothing_more(leads: list[Lead], postgresql_url: str) -> None:
    former = leads[0]
    former.append(1)
    former.lose_lock()
    leads.append(Lead(postgresql_url, SECOND))
    leads[1].append(2)
    with pytest.raises(NotLeadingError, match="another server leads"):
        former.append(3)
    with pytest.raises(NotLeadingError):
        AccountStore(former.store.database).save(User("eve"))
    assert seqs(leads[1]) == [1, 2]
    assert AccountStore(leads[1].store.database).users() == []
    assert not former.leadership.show()
    assert former.leadership.lost
    assert leads[1].leadership.show()


def test_what_was_begun_before_the_lead_was_lost_is_not_committed_after(leads: list[Lead], postgresql_url: str) -> None:
    former = leads[0]
    connection = former.store.database.connect()
    connection.execute(sa.text("CREATE TABLE half_done (id integer)"))
    former.lose_lock()
    leads.append(Lead(postgresql_url, SECOND))
    with pytest.raises(NotLeadingError):
        connection.commit()
    connection.close()
    assert not sa.inspect(leads[1].store.database).has_table("half_done")


def run_unfenced(url: str, statement: str) -> None:
    """What no leader checks, such as a database that is restored."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()


def test_nothing_is_written_into_a_database_that_lost_what_its_leader_wrote_until_it_has_it_again(
    leads: list[Lead], postgresql_url: str
) -> None:
    lead = leads[0]
    for seq in (1, 2):
        lead.append(seq)
    run_unfenced(postgresql_url, "CREATE TABLE kept AS SELECT * FROM events")
    run_unfenced(postgresql_url, "DELETE FROM events WHERE seq = 2")
    with pytest.raises(WritesLostError, match=r"lacks what .*, up to entry 2 .*standby.*ended first"):
        lead.append(3)
    with pytest.raises(WritesLostError):
        AccountStore(lead.store.database).save(User("eve"))
    assert seqs(lead) == [1]
    run_unfenced(postgresql_url, "INSERT INTO events SELECT * FROM kept WHERE seq = 2")
    lead.append(3)
    assert seqs(lead) == [1, 2, 3]


def test_nothing_is_written_into_a_database_that_never_had_the_last_transaction_of_its_leader(
    leads: list[Lead],
) -> None:
    lead = leads[0]
    lead.append(1)
    lead.leadership.written_number += 1_000_000  # as of a server whose database was ahead of this one
    with pytest.raises(WritesLostError):
        lead.append(2)
    assert seqs(lead) == [1]


def test_a_doubtful_transaction_that_the_database_never_had_is_not_durable(leads: list[Lead]) -> None:
    lead = leads[0]
    lead.append(1)
    lead.store.writes.in_doubt = lead.leadership.written_number
    assert lead.store.is_durable()
    lead.store.writes.in_doubt = lead.leadership.written_number + 1_000_000
    assert not lead.store.is_durable()
    lead.append(2)
    assert seqs(lead) == [1, 2]


def test_a_lost_lock_is_taken_again_when_nobody_led_meanwhile(leads: list[Lead], postgresql_url: str) -> None:
    leads[0].lose_lock()
    assert leads[0].leadership.show()
    with pytest.raises(UnavailableError, match="another server"):
        Store(postgresql_url)
    leads[0].append(1)
    assert seqs(leads[0]) == [1]


def test_who_holds_the_lock_and_has_not_begun_does_not_lead_yet(leads: list[Lead], postgresql_url: str) -> None:
    leads[0].lose_lock()
    next_one = Leadership(postgresql_url, SECOND)
    assert next_one.take_lock()
    assert leads[0].leadership.show()
    leads[0].append(1)
    next_one.close()
    assert leads[0].leadership.show()
    assert not leads[0].leadership.lost


def test_who_only_reads_keeps_servers_off_and_replaces_none(leads: list[Lead], postgresql_url: str) -> None:
    leads[0].store.close()
    reader = Store(postgresql_url, opens=connect_to_read)
    with pytest.raises(UnavailableError, match="another server uses this database"):
        Lead(postgresql_url, replace(SECOND, boot_id="another boot"))
    with pytest.raises(sa.exc.DBAPIError, match="read-only"):
        reader.append([LogEntry(1, events.Tick(1.0))])
    assert reader.leadership.leader() == FIRST
    reader.close()
    leads.append(Lead(postgresql_url, SECOND))
    assert leads[1].leadership.epoch == 2
