"""A connection to one server: how requests travel, and which errors come back.

A server that was restarted on another port is found again; threads that ask meanwhile are never without a connection.
A process that was forked connects anew: on one connection, each of the two would get answers that are the other's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from millpond.client.sdk.transport import failures
from millpond.client.sdk.transport.discovery import Address, find_server, is_on_this_machine
from millpond.client.sdk.transport.local_http import LocalHttp, as_json, not_utf8
from millpond.client.sdk.transport.trust import encrypts, trust
from millpond.model.errors import BusyError, InvalidInputError, UnavailableError
from millpond.specs.api.base import API_PREFIX
from millpond.specs.api.codec import from_json

if TYPE_CHECKING:
    import httpx2

_LOCALLY = frozenset({"params", "json", "headers", "timeout"})
"""What a request may have that goes by ``LocalHttp``."""

_JSON: Final = {"Content-Type": "application/json"}

BUSY_FOR_S: Final = 60.0
"""So long a request waits for others of the same user, such as those of other threads."""
_BUSY_PAUSE_S: Final = 0.25

_Answer = TypeVar("_Answer")


def segment(text: str) -> str:
    """A name or an id as one segment of a path.

    Raises:
        InvalidInputError: it would name another path (no name or id has a slash), or is not UTF-8.
    """
    if text in ("", ".", "..") or "/" in text:  # a server reads an encoded slash as any other
        raise InvalidInputError(
            f"'{text}' is no name or id", "name what is meant; a variable of the shell may be empty"
        )
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise not_utf8(error) from error


def given(**params: Any) -> dict[str, Any]:
    """Those of some parameters that have a value."""
    return {name: value for name, value in params.items() if value is not None}


class ServerConnection:
    """Carries requests to a server.

    Args:
        where: its URL, a token and its state directory, as far as they are given; see ``find_server``.
        timeout_s: how long one answer may take.
        transport: how requests travel; None: over the network.

    Raises:
        UnavailableError: no server is running there.
    """

    def __init__(
        self,
        where: tuple[str | None, str | None, Path | None],
        timeout_s: float,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._where = where
        self._timeout_s = timeout_s
        self._transport = transport
        self._present = _Transports(find_server(*where), timeout_s, transport)
        self._process = os.getpid()

    @property
    def _transports(self) -> _Transports:
        """The transports of this process, made anew after a fork.

        Those that the fork copied are left as they are: the parent would see their end, and a thread that is not here
        may hold their locks.
        """
        if self._process != (process := os.getpid()):
            self._present = _Transports(self._present.address, self._timeout_s, self._transport)
            self._process = process
        return self._present

    @property
    def address(self) -> Address:
        """The address of the server that it was last connected to."""
        return self._transports.address

    def found_again_by(self) -> tuple[str, None, Path | None, float]:
        """URL, token (none), state directory and bound in time of a connection to the same server in another process.

        Raises:
            TypeError: no other process could be given its transport.
        """
        if self._transport is not None:
            raise TypeError("a client with a transport of its own cannot be pickled")
        return self.address.url, None, self._where[2], self._timeout_s

    def close(self) -> None:
        """Close the connections to the server."""
        self._transports.close()

    def reconnect(self) -> None:
        """Find the server anew and connect: it may have been restarted on another port.

        Raises:
            UnavailableError: no server is running.
        """
        found = _Transports(find_server(*self._where), self._timeout_s, self._transport)
        before, self._present = self._transports, found  # other threads ask meanwhile, and are never without
        before.close()

    def ask(self, answer: type[_Answer], method: str, path: str, **request: Any) -> _Answer:
        """Send a request and read the body of its answer.

        Raises:
            MillpondError: as the server says, or there is no answer that can be read.
        """
        response = self.send(method, path, **request)
        try:
            return from_json(answer, response.content)
        except ValueError as error:
            raise UnavailableError(
                f"the answer of {self.address.url} is not understood", "client and server should be of one version"
            ) from error

    def send(self, method: str, path: str, **request: Any) -> failures.HttpAnswer:
        """Send a request; the answer is a success. While too much of the user's is under way, it is sent again.

        Raises:
            MillpondError: as the server says, or there is no answer.
        """
        give_up_at = time.monotonic() + BUSY_FOR_S
        while True:
            transports = self._transports
            response = transports.answer(method, API_PREFIX + path, request)
            if response.is_success:
                return response
            error = failures.from_response(response, transports.address.url)
            if not isinstance(error, BusyError) or time.monotonic() >= give_up_at:
                raise error
            time.sleep(_BUSY_PAUSE_S)

    def stream(
        self, path: str, params: Mapping[str, Any], silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """The raw body of a streamed answer, behind an empty piece; fails when nothing comes for ``silence_s``."""
        with self._streamed("GET", path, silence_s, params=dict(params), headers=headers) as response:
            yield b""
            yield from response.iter_bytes()

    def read(
        self, path: str, params: Mapping[str, Any], silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """A streamed answer that is read once; what is lost is an error."""
        import httpx2

        try:
            yield from self.stream(path, params, silence_s, headers)
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error

    def post(self, path: str, body: Any, silence_s: float) -> Iterator[bytes]:
        """A streamed answer to a body; what is lost is an error."""
        import httpx2

        try:
            with self._streamed("POST", path, silence_s, content=as_json(body), headers=_JSON) as response:
                yield from response.iter_bytes()
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error

    @contextlib.contextmanager
    def _streamed(self, method: str, path: str, silence_s: float, **request: Any) -> Iterator[httpx2.Response]:
        """Send a request; the answer is a success whose body has not been read."""
        import httpx2

        timeout = httpx2.Timeout(self._timeout_s, read=silence_s)
        with (
            self._transports.http() as http,
            http.stream(method, API_PREFIX + path, timeout=timeout, **request) as response,
        ):
            if not response.is_success:
                response.read()
                raise failures.from_response(response, self.address.url)
            yield response

    def status_of(self, path: str) -> int:
        """The status of what stands at a path of the server, outside the API.

        Raises:
            UnavailableError: there is no answer.
        """
        return self._transports.answer("GET", path, {}).status_code


class Requests:
    """The requests of one subject, by a connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._ask = connection.ask


class _Transports:
    """How requests reach one server; after ``close`` what another thread still uses lasts until it is done."""

    def __init__(self, address: Address, timeout_s: float, transport: httpx2.BaseTransport | None) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._transport = transport
        self._trusted = trust(address)
        self._lock = threading.Lock()
        self._http: httpx2.Client | None = None
        self._users = 0
        self._is_closed = False
        near = transport is None and is_on_this_machine(address.url) and not encrypts(address.url)
        self._local = LocalHttp(address, timeout_s) if near else None

    @contextlib.contextmanager
    def http(self) -> Iterator[httpx2.Client]:
        """The client of httpx2, which is not closed while it is used.

        Raises:
            InvalidInputError: what is asked for is too long for an address.
        """
        import httpx2

        with self._lock:
            self._http = http = self._http or self._connect()
            self._users += 1
        try:
            yield http
        except httpx2.InvalidURL as error:
            raise InvalidInputError(f"no address can be made of that ({error})", "write a shorter name") from error
        finally:
            with self._lock:
                self._users -= 1
                self._end_if_unused()

    def answer(self, method: str, path: str, request: Mapping[str, Any]) -> failures.HttpAnswer:
        """What the server answers, read to its end.

        Raises:
            InvalidInputError: what is to be sent is no JSON, or not UTF-8.
            UnavailableError: there is no answer.
        """
        if self._local is not None and _LOCALLY.issuperset(request):
            try:
                return self._local.request(method, path, **request)
            except (OSError, HTTPException) as error:
                raise failures.from_local(error, self.address.url) from error
        import httpx2

        sent = dict(request)
        if sent.get("json") is not None:
            sent["content"] = as_json(sent.pop("json"))
            sent["headers"] = {**_JSON, **(sent.get("headers") or {})}
        try:
            with self.http() as http:
                return http.request(method, path, **sent)
        except UnicodeEncodeError as error:
            raise not_utf8(error) from error
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error

    def close(self) -> None:
        """End all connections that nobody uses just now, and the others after that."""
        if self._local is not None:
            self._local.close()
        with self._lock:
            self._is_closed = True
            self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._is_closed and not self._users and self._http is not None:
            self._http.close()
            self._http = None

    def _connect(self) -> httpx2.Client:
        import httpx2

        return httpx2.Client(
            base_url=self.address.url,
            headers={"Authorization": f"Bearer {self.address.token}"},
            timeout=self._timeout_s,
            transport=self._transport,
            trust_env=not is_on_this_machine(self.address.url),
            verify=self._trusted,
        )
