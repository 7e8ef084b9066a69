"""Requests to a server of this machine, without encryption: one body in, one body out, by the standard library.

To import httpx2 takes a third of all CPU that a short command needs. So what is asked for with a short answer, where
neither a proxy nor a certificate can stand in between, goes this way; streams, uploads and servers elsewhere go by
httpx2 (``connection``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from millpond.client.sdk.transport.discovery import Address
from millpond.model.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """A whole answer."""

    status_code: int
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the server did what it was asked."""
        return 200 <= self.status_code < 300


class LocalHttp:
    """Connections to one server, kept alive between requests. Any thread may ask.

    Args:
        timeout_s: how long connecting, and each silence of the server, may last.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        parts = urlsplit(address.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"Authorization": f"Bearer {address.token}", "Accept": "*/*"}
        self._timeout_s = timeout_s
        self._idle: deque[http.client.HTTPConnection] = deque()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> LocalAnswer:
        """Ask, and read the whole answer.

        Args:
            timeout: another than that of all requests, in seconds.

        Raises:
            InvalidInputError: ``json`` has what JSON cannot hold, or a text is not UTF-8.
            OSError, http.client.HTTPException: there is no answer.
        """
        body = None if json is None else as_json(json)
        typed = {} if body is None else {"Content-Type": "application/json"}
        connection = self._connection(self._timeout_s if timeout is None else timeout)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it had all
                connection.request(
                    method, path + query_text(params), body, {**self._headers, **typed, **(headers or {})}
                )
            response = connection.getresponse()
            answer = LocalAnswer(response.status, response.read())
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:  # the server keeps it open
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close the unused connections."""
        while (connection := self._unused()) is not None:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """One that is idle, unless the server has closed it meanwhile, or a new one."""
        while (connection := self._unused()) is not None:
            if not _is_readable(connection):
                connection.sock.settimeout(timeout_s)
                return connection
            connection.close()
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _unused(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:  # none, or another thread was quicker
            return None


def as_json(body: Any) -> bytes:
    """The body of a request.

    Raises:
        InvalidInputError: it has what JSON cannot hold.
    """
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise not_utf8(error) from error
    except (TypeError, ValueError) as error:
        remedy = "use texts, finite numbers, true and false, lists, and mappings with texts as keys"
        raise InvalidInputError(f"the request cannot be sent as JSON: {error}", remedy) from error


def not_utf8(error: UnicodeEncodeError) -> InvalidInputError:
    """What is said of a text that cannot be sent; nothing of it is repeated but the first wrong letter."""
    wrong = ascii(error.object[error.start]).strip("'").replace("udc", "x")  # Python's mark of a byte that is no UTF-8
    return InvalidInputError(
        f"a text of the request is not UTF-8 (it has {wrong})", "write it in UTF-8, and binary values in base64"
    )


def query_text(params: Mapping[str, Any] | None) -> str:
    """Parameters behind a path, as httpx2 writes them."""
    if not params:
        return ""
    plain = {name: "" if value is None else value for name, value in params.items()}
    plain |= {name: str(value).lower() for name, value in params.items() if isinstance(value, bool)}
    try:
        return f"?{urlencode(plain, doseq=True)}"
    except UnicodeEncodeError as error:
        raise not_utf8(error) from error


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Whether something unasked came: the end of the connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
