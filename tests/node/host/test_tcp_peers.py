"""Who is at the other end of a connection: whoever has accepted it, or whoever must."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from millpond.node.host.tcp_peers import is_held_by

LISTENER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def rightful() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.communicate()


@pytest.mark.parametrize(
    ("address", "family"), [("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)]
)
@pytest.mark.parametrize("accepted", [False, True])
def test_a_connection_is_with_whoever_listens_before_and_after_it_is_accepted(
    address: str, family: socket.AddressFamily, accepted: bool
) -> None:
    listener = socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
    with listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as connection:
        other_end = listener.accept()[0] if accepted else None
        assert is_held_by(connection, [os.getpid()])
        assert not is_held_by(connection, [os.getppid()])
        if other_end is not None:
            other_end.close()


def test_a_connection_that_was_accepted_before_the_rightful_program_listened_is_not_with_it(
    rightful: list[subprocess.Popen[bytes]],
) -> None:
    thief = socket.create_server(("127.0.0.1", 0))
    port = thief.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        taken, _ = thief.accept()
        thief.close()
        program = subprocess.Popen(
            [sys.executable, "-c", LISTENER, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        rightful.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == b"listening\n"
        assert not is_held_by(connection, [program.pid])
        with socket.create_connection(("127.0.0.1", port)) as fresh:
            assert is_held_by(fresh, [program.pid])
        taken.close()


def test_a_listener_for_the_other_family_alone_does_not_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        beside = socket.socket(socket.AF_INET6)
        beside.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        with beside, socket.create_connection(("127.0.0.1", port)) as connection:
            try:
                beside.bind(("::", port))
            except OSError:
                pytest.skip("no IPv6 here")
            beside.listen()
            assert is_held_by(connection, [os.getpid()])
