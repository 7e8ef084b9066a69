"""A connection to one server: how requests travel, and which errors come back.

A server that was restarted on another port is found again; threads that ask meanwhile are never without a connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from millpond.client.sdk import failures
from millpond.client.sdk.discovery import Address, find_server, is_on_this_machine
from millpond.client.sdk.trust import trust
from millpond.model.errors import UnavailableError
from millpond.specs.api import API_PREFIX

_Answer = TypeVar("_Answer", bound=BaseModel)


class Connection:
    """Carries requests to a server.

    Args:
        where: its URL, a token and its state directory, as far as they are given; see ``find_server``.
        timeout_s: how long one answer may take.
        transport: how requests travel; None: over the network.

    Attributes:
        address: of the server it was last connected to.

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
        self.address = find_server(*where)
        self._http = self._connect(self.address)

    def close(self) -> None:
        """End it."""
        self._http.close()

    def reconnect(self) -> None:
        """Find the server anew and connect: it may have been restarted on another port.

        Raises:
            UnavailableError: no server is running.
        """
        address = find_server(*self._where)
        before, self._http = self._http, self._connect(address)  # other threads ask meanwhile, and are never without
        self.address = address
        before.close()

    def ask(self, answer: type[_Answer], method: str, path: str, **request: Any) -> _Answer:
        """Send a request and read the body of its answer.

        Raises:
            MillpondError: as the server says, or there is no answer that can be read.
        """
        response = self.send(method, path, **request)
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            raise UnavailableError(
                f"the answer of {self.address.url} is not understood", "client and server should be of one version"
            ) from error

    def send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Send a request; the answer is a success.

        Raises:
            MillpondError: as the server says, or there is no answer.
        """
        try:
            response = self._http.request(method, API_PREFIX + path, **request)
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error
        if not response.is_success:
            raise failures.from_response(response, self.address.url)
        return response

    def stream(
        self, path: str, params: Mapping[str, Any], silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """The raw body of a streamed answer, behind an empty piece; fails when nothing comes for ``silence_s``."""
        timeout = httpx2.Timeout(self._timeout_s, read=silence_s)
        url = API_PREFIX + path
        with self._http.stream("GET", url, params=dict(params), timeout=timeout, headers=headers) as response:
            if not response.is_success:
                response.read()
                raise failures.from_response(response, self.address.url)
            yield b""
            yield from response.iter_bytes()

    def read(
        self, path: str, params: Mapping[str, Any], silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """A streamed answer that is read once; what is lost is an error."""
        try:
            yield from self.stream(path, params, silence_s, headers)
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error

    def post(self, path: str, body: Any, silence_s: float) -> Iterator[bytes]:
        """A streamed answer to a body; what is lost is an error."""
        timeout = httpx2.Timeout(self._timeout_s, read=silence_s)
        try:
            with self._http.stream("POST", API_PREFIX + path, json=body, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise failures.from_response(response, self.address.url)
                yield from response.iter_bytes()
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error

    def status_of(self, path: str) -> int:
        """The status of what stands at a path of the server, outside the API.

        Raises:
            UnavailableError: there is no answer.
        """
        try:
            return self._http.get(path).status_code
        except httpx2.TransportError as error:
            raise failures.from_transport(error, self.address.url) from error

    def _connect(self, address: Address) -> httpx2.Client:
        return httpx2.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=self._timeout_s,
            transport=self._transport,
            trust_env=not is_on_this_machine(address.url),
            verify=trust(address),
        )
