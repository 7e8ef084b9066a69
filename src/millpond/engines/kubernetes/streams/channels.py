"""Streams into pods, through the API server: WebSockets whose messages each begin with the number of a channel.

The protocol ``v4.channel.k8s.io`` is spoken by every API server and kubelet since Kubernetes 1.6, those of today too
(``k8s.io/kubelet/pkg/cri/streaming``). Its successor can end single streams as well; what that is needed for is done in
the pod instead (``pod_session``), for all versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpx2
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.objects import StatusObject
from millpond.engines.kubernetes.cluster.silent_peers import end_when_gone
from millpond.model.errors import UnavailableError

PROTOCOL: Final = Subprotocol("v4.channel.k8s.io")
OPEN_WITHIN_S: Final = 15.0
_PING_EVERY_S: Final = 30.0
"""What lies between counts silent connections as dead after a minute or more."""
_LARGEST_MESSAGE: Final = 2**24
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class PodEntryForbiddenError(UnavailableError):
    """The server lacks the right to enter pods."""


class PodChannels:
    """Opens streams into the pods of a namespace, with the credentials of a channel. For one event loop."""

    def __init__(self, channel: ApiChannel, namespace: str) -> None:
        self._channel = channel
        server = urlsplit(channel.base)
        self._is_encrypted = server.scheme == "https"
        self._looks: set[asyncio.Task[None]] = set()
        self._base = server._replace(
            scheme="wss" if self._is_encrypted else "ws", path=f"{server.path}/api/v1/namespaces/{namespace}/pods"
        )

    async def open(self, pod: str, part: str, query: Sequence[tuple[str, str]]) -> ClientConnection:
        """A stream into a pod.

        Args:
            part: ``exec`` or ``portforward``.

        Raises:
            UnavailableError: the cluster does not answer, or gives none: its own words.
            PodEntryForbiddenError: it does not let the server in.
        """
        url = urlunsplit(self._base._replace(path=f"{self._base.path}/{pod}/{part}", query=urlencode(query)))
        try:
            return await self._opened(url)
        except InvalidStatus as error:
            cause = f"pod {pod} cannot be entered: {_words_of(error)}"
            if error.response.status_code in (_UNAUTHORIZED, _FORBIDDEN):
                remedy = "`pond kube check` says which rights are missing"
                raise PodEntryForbiddenError(cause, remedy) from error
            raise UnavailableError(cause, "see `pond ps` for what became of it") from error
        except (InvalidHandshake, EOFError, OSError, httpx2.TransportError) as error:  # TimeoutError is an OSError
            what = str(error) or type(error).__name__
            raise UnavailableError(f"pod {pod} cannot be reached: {what}", "try again when the cluster does") from error

    async def _opened(self, url: str) -> ClientConnection:
        """With the credentials that the channel has, renewed once where the cluster no longer takes them."""
        authorization = await self._channel.authorize()
        try:
            return await self._connect(url, authorization)
        except InvalidStatus as error:
            if error.response.status_code != _UNAUTHORIZED:
                raise
        return await self._connect(url, await self._channel.authorize(instead_of=authorization))

    async def _connect(self, url: str, authorization: Mapping[str, str]) -> ClientConnection:
        stream = await connect(
            url,
            ssl=self._channel.trust if self._is_encrypted else None,
            proxy=self._channel.proxy,
            additional_headers=authorization,
            subprotocols=[PROTOCOL],
            compression=None,
            open_timeout=OPEN_WITHIN_S,
            ping_interval=_PING_EVERY_S,
            ping_timeout=None,  # whoever reads slowly hears the answers late
            close_timeout=1.0,
            max_size=_LARGEST_MESSAGE,
            server_hostname=self._channel.server_name or self._base.hostname if self._is_encrypted else None,
        )
        transport = stream.transport
        look = asyncio.create_task(end_when_gone(transport.get_extra_info("socket"), transport.abort))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        return stream


def _words_of(error: InvalidStatus) -> str:
    body = error.response.body or b""
    try:
        status = msgspec.json.decode(body, type=StatusObject)
    except msgspec.DecodeError:
        status = StatusObject(message=body.decode(errors="replace").strip()[:200])
    return status.message or f"the cluster answers {error.response.status_code} {error.response.reason_phrase}"
