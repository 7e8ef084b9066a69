"""Streams into pods, through the API server: WebSockets whose messages each begin with the number of a channel.

The protocol ``v4.channel.k8s.io`` is spoken by every API server and kubelet since Kubernetes 1.6, those of today too
(``k8s.io/kubelet/pkg/cri/streaming``). Its successor can end single streams as well; what that is needed for is done in
the pod instead (``pod_session``), for all versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpx2
import msgspec
from lightkube.config.client_adapter import user_auth, verify_cluster
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from millpond.engines.kubernetes.cluster.objects import StatusObject
from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

PROTOCOL: Final = Subprotocol("v4.channel.k8s.io")
OPEN_WITHIN_S: Final = 15.0
_PING_EVERY_S: Final = 30.0
"""What lies between counts silent connections as dead after a minute or more."""
_LARGEST_MESSAGE: Final = 2**24
_UNAUTHORIZED: Final = 401


class PodChannels:
    """Opens streams into the pods of a namespace. For one event loop.

    Raises:
        UnavailableError: a certificate cannot be read.
    """

    def __init__(self, config: SingleConfig, namespace: str) -> None:
        server = urlsplit(config.cluster.server)
        self._base = server._replace(
            scheme="wss" if server.scheme == "https" else "ws",
            path=f"{server.path.rstrip('/')}/api/v1/namespaces/{namespace}/pods",
        )
        self._auth = user_auth(config.user)
        self._trust = None
        if server.scheme == "https" and config.user is not None:
            try:
                self._trust = verify_cluster(config.cluster, config.user, config.abs_file)
            except (OSError, ValueError) as error:
                raise UnavailableError(
                    f"the credentials of the cluster cannot be used: {error}", "see the kubeconfig"
                ) from error

    async def open(self, pod: str, part: str, query: Sequence[tuple[str, str]]) -> ClientConnection:
        """A stream into a pod.

        Args:
            part: ``exec`` or ``portforward``.

        Raises:
            UnavailableError: the cluster does not answer, or gives none: its own words.
        """
        url = urlunsplit(self._base._replace(path=f"{self._base.path}/{pod}/{part}", query=urlencode(query)))
        try:
            return await self._opened(url)
        except InvalidStatus as error:
            raise UnavailableError(f"pod {pod} cannot be entered: {_words_of(error)}", _remedy(error)) from error
        except (InvalidHandshake, EOFError, OSError) as error:  # TimeoutError is an OSError
            what = str(error) or type(error).__name__
            raise UnavailableError(f"pod {pod} cannot be reached: {what}", "try again when the cluster does") from error

    async def _opened(self, url: str) -> ClientConnection:
        """With the credentials that the client has, renewed once where the cluster no longer takes them."""
        if self._auth is None:
            return await self._connect(url, {})
        flow = self._auth.async_auth_flow(httpx2.Request("GET", url))
        try:
            request = await anext(flow)
            try:
                return await self._connect(url, request.headers)
            except InvalidStatus as error:
                if error.response.status_code != _UNAUTHORIZED:
                    raise
                try:
                    request = await flow.asend(httpx2.Response(_UNAUTHORIZED))
                except StopAsyncIteration:
                    raise error from None
                return await self._connect(url, request.headers)
        finally:
            await flow.aclose()

    async def _connect(self, url: str, headers: httpx2.Headers | dict[str, str]) -> ClientConnection:
        shown = {name: headers[name] for name in ("Authorization",) if name in headers}
        return await connect(
            url,
            ssl=self._trust,
            additional_headers=shown,
            subprotocols=[PROTOCOL],
            compression=None,
            open_timeout=OPEN_WITHIN_S,
            ping_interval=_PING_EVERY_S,
            ping_timeout=None,  # whoever reads slowly hears the answers late
            close_timeout=1.0,
            max_size=_LARGEST_MESSAGE,
        )


def _words_of(error: InvalidStatus) -> str:
    body = error.response.body or b""
    try:
        status = msgspec.json.decode(body, type=StatusObject)
    except msgspec.DecodeError:
        status = StatusObject(message=body.decode(errors="replace").strip()[:200])
    return status.message or f"the cluster answers {error.response.status_code} {error.response.reason_phrase}"


def _remedy(error: InvalidStatus) -> str:
    forbidden = error.response.status_code in (_UNAUTHORIZED, 403)
    return "`pond kube check` says which rights are missing" if forbidden else "see `pond ps` for what became of it"
