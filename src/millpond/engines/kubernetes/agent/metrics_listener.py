"""The page that a Prometheus reads of an agent: plain HTTP, one path, and bounds that a stranger cannot get beyond.

There is nothing to be read here but figures of cards, by number: no user, no job, no pod.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final

from millpond.model.errors import InvalidInputError, UnavailableError

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
MOST_AT_ONCE: Final = 8
"""Connections; further ones are told to come again."""
ANSWERED_WITHIN_S: Final = 10.0
"""A connection is cut off then, however far it is: that is the time that a Prometheus waits by default."""
SAME_FOR_S: Final = 0.5
"""A page is answered with again for so long: however many ask, making them takes a few hundredths of a core."""
_LOOK_EVERY_S: Final = 0.5
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ADDRESS: Final = re.compile(r"((\[(?P<ip6>[0-9a-fA-F:.]+)\]|(?P<host>[\w.-]+)):)?(?P<port>[0-9]{1,5})", re.ASCII)
_LAST_PORT: Final = 65_535
_LOOPBACK: Final = "127.0.0.1"
_FULL: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where the listener is."""

    host: str
    port: int

    @staticmethod
    def of(text: str) -> MetricsAddress:
        """``PORT`` of the loopback interface, or ``HOST:PORT``.

        Raises:
            InvalidInputError: it is neither.
        """
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found["port"]) > _LAST_PORT:
            raise InvalidInputError(
                f"{text!r} is no address to listen at",
                "give a port, such as 7435, or an address and a port, such as 0.0.0.0:7435 or [::]:7435",
            )
        return MetricsAddress(found["ip6"] or found["host"] or _LOOPBACK, int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MetricsListener(ThreadingTCPServer):
    """Answers on threads of its own, while the agent's event loop does its work.

    Args:
        page: makes the page; any thread calls it.
        clock: seconds, monotonic.

    Raises:
        UnavailableError: it cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 2 * MOST_AT_ONCE

    def __init__(
        self, address: MetricsAddress, page: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make_page = page
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._made: tuple[float, bytes] | None = None
        self._guard = threading.Lock()
        self._open: dict[Any, float] = {}
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((address.host, address.port), _Handler)
        except OSError as error:
            raise UnavailableError(f"the agent cannot listen at {address}: {error}", _remedy(error)) from error

    def page(self) -> bytes:
        """All figures, as of a moment ago."""
        with self._one_at_a_time:
            if self._made is None or self._clock() - self._made[0] >= SAME_FOR_S:
                self._made = self._clock(), self._make_page()
            return self._made[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection on a thread, unless there are too many."""
        with self._guard:
            is_full = len(self._open) >= MOST_AT_ONCE
            if not is_full:
                self._open[request] = self._clock()
        if not is_full:
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.sendall(_FULL)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """A connection is over."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off those that have taken too long; called again and again."""
        with self._guard:
            late = [each for each, since in self._open.items() if self._clock() - since > ANSWERED_WITHIN_S]
        for request in late:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or was cut off, is no trouble of ours."""
        log.debug("a request for the figures was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsListener
    server_version, sys_version = "millpond-agent", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"There is nothing here but {PATH}.\n".encode())
            return
        try:
            page = self.server.page()
        except Exception:
            log.exception("the figures of the cards cannot be written")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"The agent's log says what went wrong.\n")
            return
        self._answer(HTTPStatus.OK, page)

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        log.debug("%s: %s", self.address_string(), format % args)


@contextmanager
def metrics_served(
    address: MetricsAddress, page: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
) -> Iterator[MetricsListener]:
    """A listener until the end of the block.

    Raises:
        UnavailableError: it cannot listen there.
    """
    with MetricsListener(address, page, clock) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(_LOOK_EVERY_S,), name="metrics", daemon=True)
        thread.start()
        log.info("figures for Prometheus at http://%s%s", address, PATH)
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()


def _remedy(error: Exception) -> str:
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return "another program has that port: end it, or name another with --metrics-listen"
        case errno.EACCES:
            return "ports below 1024 are root's: name another with --metrics-listen"
        case _:
            return "name an address of this node, and a port from 1 to 65535, with --metrics-listen"
