"""How many connections there may be and how long they may wait, by a clock of the tests' own."""

from __future__ import annotations

import pytest
from server_world import Clock

from millpond.server.auth.throttle import network_of
from millpond.server.http.connections import (
    HEAD_WITHIN_S,
    MOST_UNFINISHED_BYTES,
    MOST_UNTAKEN_BYTES,
    STALLED_S,
    ConnectionLimits,
    Connections,
)


class Client:
    """A connection that remembers how it ended."""

    def __init__(self, connections: Connections, address: str = "10.0.0.1") -> None:
        self.is_open = True
        connections.opened(self, address)

    def abort(self) -> None:
        self.is_open = False


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


def connections_of(clock: Clock, total: int = 100, per_address: int = 50, trusted: tuple[str, ...] = ()) -> Connections:
    return Connections(ConnectionLimits(total, per_address), clock, trusted)


def test_a_connection_that_never_ends_its_head_is_closed_and_one_that_works_is_not(clock):
    connections = connections_of(clock)
    slow, working, idle = (Client(connections) for _ in range(3))
    connections.works(working)
    connections.works(idle)
    clock.now = HEAD_WITHIN_S / 2
    connections.waits(idle)
    clock.now = HEAD_WITHIN_S
    connections.close_overdue()
    assert (slow.is_open, working.is_open, idle.is_open) == (False, True, True)
    clock.now = HEAD_WITHIN_S * 1.5
    connections.close_overdue()
    assert (working.is_open, idle.is_open) == (True, False)


def test_an_address_without_room_loses_the_connection_that_has_waited_longest(clock):
    connections = connections_of(clock, per_address=3)
    busy, *waiting = (Client(connections) for _ in range(4))
    assert not busy.is_open, "it waited longest"
    connections.works(waiting[0])
    newcomer, other = Client(connections), Client(connections, "10.0.0.2")
    assert [client.is_open for client in (*waiting, newcomer, other)] == [True, False, True, True, True]


def test_an_address_whose_connections_all_work_gets_no_further_one(clock):
    connections = connections_of(clock, per_address=2)
    for _ in range(2):
        connections.works(Client(connections))
    newcomer = Client(connections)
    assert not newcomer.is_open
    connections.closed(newcomer)
    assert not Client(connections).is_open, "what was closed twice is counted once"


def test_the_addresses_of_one_ipv6_network_count_as_one_and_mapped_ipv4_ones_do_not(clock):
    connections = connections_of(clock, per_address=1)
    first = Client(connections, "2001:db8::1")
    Client(connections, "2001:db8::2")
    assert not first.is_open
    mapped = [Client(connections, f"::ffff:10.0.0.{number}") for number in range(3)]
    assert all(client.is_open for client in mapped)
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1")


def test_a_trusted_proxy_brings_as_many_as_the_server_takes(clock):
    connections = connections_of(clock, total=3, per_address=1, trusted=("10.0.0.0/8",))
    clients = [Client(connections) for _ in range(4)]
    assert [client.is_open for client in clients] == [False, True, True, True]


def test_heads_that_have_come_in_part_have_a_bound_together(clock):
    connections = connections_of(clock)
    first, second = Client(connections), Client(connections)
    connections.begins(first, MOST_UNFINISHED_BYTES)
    connections.begins(second, 1)
    assert (first.is_open, second.is_open) == (True, False)
    connections.works(first)
    third = Client(connections)
    connections.begins(third, MOST_UNFINISHED_BYTES)
    assert third.is_open


def test_a_client_that_takes_nothing_of_its_answer_is_given_up(clock):
    connections = connections_of(clock)
    slow, gone = Client(connections), Client(connections)
    for client in (slow, gone):
        connections.works(client)
        connections.stalls(client, 1)
    connections.flows(slow)
    clock.now = STALLED_S
    connections.close_overdue()
    assert (slow.is_open, gone.is_open) == (True, False)


def test_answers_that_nobody_takes_have_a_bound_together_and_the_oldest_give_way(clock):
    connections = connections_of(clock)
    clients = [Client(connections) for _ in range(4)]
    for client in clients:
        connections.works(client)
        connections.stalls(client, MOST_UNTAKEN_BYTES // 3)
    assert [client.is_open for client in clients] == [False, True, True, True]
    connections.flows(clients[1])
    connections.stalls(clients[1], MOST_UNTAKEN_BYTES // 3)
    connections.stalls(Client(connections), MOST_UNTAKEN_BYTES // 3)
    assert [client.is_open for client in clients] == [False, True, False, True]
    connections.stalls(clients[3], MOST_UNTAKEN_BYTES + 1)
    assert not any(client.is_open for client in clients)
