"""Many small requests to the API, and what it tells of all pods as they change, at little cost.

Every task takes two requests and comes by in several changes. On each, httpx spends 0.7 ms of CPU; aiohttp, which
parses in C, spends 0.2 ms. Connections are a channel's own: requests do not wait for whatever else is open to the
cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import msgspec
from lightkube.config.kubeconfig import SingleConfig
from yarl import URL

from millpond.engines.kubernetes.cluster.credentials import Credentials
from millpond.engines.kubernetes.cluster.kubeconfig import connection_to
from millpond.engines.kubernetes.cluster.objects import StatusObject
from millpond.engines.kubernetes.cluster.silent_peers import probe

REQUEST_WITHIN_S: Final = 10.0
"""A request is answered, or given up, within so long."""
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Answers after which asking again may help."""
_KEPT_OPEN_S: Final = 60.0
_OK: Final = 200
_UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What the API server, or something before it, has answered.

    Attributes:
        retry_after_s: how long it asks to be left alone; 0: it does not say.
    """

    status_code: int
    reason_phrase: str
    content: bytes
    retry_after_s: float = 0.0

    @property
    def is_success(self) -> bool:
        """Whether it did what was asked."""
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        """For people."""
        return self.content.decode(errors="replace")


def status_of(answer: ApiAnswer) -> StatusObject:
    """The cluster's own words; those of a proxy before it where there are none."""
    try:
        status = msgspec.json.decode(answer.content, type=StatusObject)
    except msgspec.DecodeError:
        return StatusObject(answer.status_code, answer.reason_phrase, answer.text[:200])
    return status if status.code else StatusObject(answer.status_code, status.reason, status.message)


class ErrorAnswerError(Exception):
    """The API server, or something before it, answers with an error."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(f"{answer.status_code} {answer.reason_phrase}: {status_of(answer).message.strip()}")
        self.answer, self.status_code = answer, answer.status_code


class UnreadableAnswerError(httpx2.TransportError):
    """What came is no answer of the API server: a page of something before it, or the beginning of an answer."""

    def __init__(self, path: str, content: bytes, error: Exception) -> None:
        begins = content[:80].decode(errors="replace")
        super().__init__(f"what was answered for {path} is no JSON of the cluster ({error}); it begins: {begins}")


class ApiChannel:
    """Sends requests to one API server. Lives on one event loop, on which it is made.

    Args:
        at_once: connections at the most; 0: no bound.

    Attributes:
        base: the server's address, quoted.
        proxy: through which the server is reached; None: straight.
        server_name: of its certificate, where that is not the host of its address.
    """

    def __init__(self, config: SingleConfig, at_once: int) -> None:
        self.base = str(URL(config.cluster.server)).rstrip("/")
        named = connection_to(config)
        self.proxy = named.proxy_url or _proxy_to(self.base)  # asked once: aiohttp would look for every request
        self.server_name = named.tls_server_name or None
        self._credentials = Credentials(config)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=at_once, keepalive_timeout=_KEPT_OPEN_S, socket_factory=_probed_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            proxy=self.proxy,
        )

    async def request(
        self, method: str, path: str, *, content: bytes, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> ApiAnswer:
        """The answer to one request; of one that did what was asked, the content is JSON.

        The path is taken as it is: looking in each for what is to be quoted takes a tenth of the CPU of a request.

        Nothing of it is sent after the time for a request, as what was meant then may be another's to do by then.

        Raises:
            httpx2.TransportError: there is none, or the credentials cannot be had.
        """
        give_up_at = asyncio.get_running_loop().time() + REQUEST_WITHIN_S

        async def send(authorization: Mapping[str, str]) -> ApiAnswer:
            about = {**headers, **authorization}
            async with (
                self._transport_errors(authorization, give_up_at),
                asyncio.timeout_at(give_up_at),
                self._session.request(
                    method,
                    URL(self.base + path, encoded=True),
                    data=content,
                    params=params or None,
                    headers=about,
                    ssl=self.trust,
                    server_hostname=self.server_name,
                ) as answer,
            ):
                return await _answer_of(answer)

        authorization = await self.authorize(give_up_at=give_up_at)
        answer = await send(authorization)
        if answer.status_code == _UNAUTHORIZED:  # a token or certificate has been renewed meanwhile
            answer = await send(await self.authorize(authorization, give_up_at))
        if answer.is_success:
            try:
                msgspec.json.decode(answer.content, type=msgspec.Raw)
            except msgspec.DecodeError as error:
                raise UnreadableAnswerError(path, answer.content, error) from error
        return answer

    async def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """What is found at a path, for as long as something of it comes.

        Raises:
            ErrorAnswerError: the server refuses.
            httpx2.TransportError: there is no answer, or the credentials cannot be had.
        """
        try:
            return await self._read(path, params)
        except ErrorAnswerError as error:
            if error.status_code != _UNAUTHORIZED:
                raise
        return await self._read(path, params)  # the token has been renewed meanwhile

    async def _read(self, path: str, params: Mapping[str, str]) -> bytes:
        return b"".join([piece async for piece in self.follow(path, params, REQUEST_WITHIN_S)])

    async def follow(self, path: str, params: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        """An answer that goes on and on, in pieces as they come; the first is empty, when it begins.

        Args:
            silence_s: without a word for so long it counts as cut.

        Raises:
            ErrorAnswerError: the server refuses.
            httpx2.TransportError: there is no answer, it is cut, or the credentials cannot be had.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_WITHIN_S, sock_read=silence_s)
        authorization = await self.authorize()
        async with (
            self._transport_errors(authorization),
            self._session.get(
                self.base + path,
                params=params,
                headers=authorization,
                timeout=timeout,
                ssl=self.trust,
                server_hostname=self.server_name,
            ) as answer,
        ):
            if answer.status != _OK:
                if answer.status == _UNAUTHORIZED:  # a token or certificate has been renewed meanwhile
                    await self.authorize(instead_of=authorization)
                raise ErrorAnswerError(await _answer_of(answer))
            yield b""
            async for piece in answer.content.iter_any():
                yield piece

    @contextlib.asynccontextmanager
    async def _transport_errors(
        self, authorization: Mapping[str, str], give_up_at: float = math.inf
    ) -> AsyncGenerator[None]:
        """What can go wrong on the way, as one error."""
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):  # the next request has what is valid by then
                await self.authorize(authorization, give_up_at)
            if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
                raise httpx2.ReadTimeout(str(error) or "no answer in time") from error
            raise httpx2.TransportError(_words_of(error)) from error

    async def aclose(self) -> None:
        """Hang up."""
        await self._credentials.aclose()
        await self._session.close()

    @property
    def trust(self) -> ssl.SSLContext:
        """For connections from now on."""
        return self._credentials.trust

    async def authorize(
        self, instead_of: Mapping[str, str] | None = None, give_up_at: float = math.inf
    ) -> Mapping[str, str]:
        """The header that says who asks, made once and made anew when the server no longer takes it.

        Raises:
            httpx2.TransportError: it cannot be had, or not by that time of the loop.
        """
        return await self._credentials.header(instead_of, give_up_at)


def _words_of(error: Exception) -> str:
    """What went wrong on the way, without what aiohttp says of its own settings."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"{error.host}:{error.port} is not trusted: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            return f"{error.host}:{error.port} cannot be reached: {error.os_error}"
    return str(error) or type(error).__name__


async def _answer_of(answer: aiohttp.ClientResponse) -> ApiAnswer:
    patience = answer.headers.get("Retry-After", "")
    retry_after_s = float(patience) if patience.isdecimal() else 0.0
    return ApiAnswer(answer.status, answer.reason or "", await answer.read(), retry_after_s)


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    made = socket.socket(*address[:3])
    probe(made)
    return made


def _proxy_to(url: str) -> str | None:
    """The proxy that the environment names for a server; None: it is reached without."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
