"""The agent as a driver of resource claims, for its kubelet: it prepares the claims of pods before these start.

The kubelet watches a folder for sockets of plugins, asks each who it is, and calls it at another socket; one that
starts finds those that are there. A call that it repeats is answered in the same way.
Sources: ``pluginregistration/v1/api.proto`` and ``dra/v1/api.proto`` of ``k8s.io/kubelet/pkg/apis``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grpclib.const import Handler
from grpclib.server import Server

from millpond.engines.kubernetes.agent.kubelet_messages import answering, messages
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER
from millpond.model.errors import MillpondError
from millpond.node.host.files import short_name

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
_KIND, _VERSION = "DRAPlugin", "v1.DRAPlugin"
_SERVICE: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_REGISTRATION: Final = "/pluginregistration.Registration"


@dataclass(frozen=True, slots=True)
class NamedClaim:
    """A claim as the kubelet names it."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class PreparedShare:
    """What a kubelet is told of a claim: one of its devices, and by which name of CDI its containers get all of it."""

    pool: str
    device: str
    cdi_id: str


class ClaimPlugin:
    """Answers one kubelet. Lives on one event loop.

    Args:
        registry: where the kubelet looks for plugins.
        folder: for the socket at which it calls, at the same path for both.
        prepare: a MillpondError is the reason why a claim cannot be, with which its pod waits.

    Attributes:
        registered: set when a kubelet has taken it.
    """

    def __init__(
        self,
        registry: Path,
        folder: Path,
        prepare: Callable[[NamedClaim], Awaitable[PreparedShare]],
        unprepare: Callable[[NamedClaim], None],
    ) -> None:
        self._prepare, self._unprepare = prepare, unprepare
        self._sockets = (folder / AGENT_DRIVER / "dra.sock", registry / f"{AGENT_DRIVER}-reg.sock")
        self._servers: list[Server] = []
        self.registered = asyncio.Event()

    async def run(self) -> None:
        """Serve for ever; sockets that somebody removes are made again."""
        try:
            while True:
                if not self._servers or not all(path.exists() for path in self._sockets):
                    try:
                        await self._serve()
                    except OSError as error:
                        log.warning("claims cannot be served: %s", error)
                        self._stop()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._stop()
            for path in self._sockets:
                path.unlink(missing_ok=True)

    async def _serve(self) -> None:
        """The one that is called first, as the kubelet does so as soon as it sees the other."""
        self._stop()
        for path in self._sockets:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            server = Server([self])
            with short_name(path) as short:
                await server.start(path=short)
            self._servers.append(server)

    def _stop(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    # ---- what the kubelet calls ----------------------------------------------------------------------------------

    def __mapping__(self) -> dict[str, Handler]:
        """The calls, as the library looks them up."""
        return {
            f"{_REGISTRATION}/GetInfo": answering(self._info, messages.Empty, messages.PluginInfo),
            f"{_REGISTRATION}/NotifyRegistrationStatus": answering(
                self._notified, messages.RegistrationStatus, messages.Empty
            ),
            f"{_SERVICE}/NodePrepareResources": answering(
                self._prepared, messages.ClaimsRequest, messages.PrepareResponse
            ),
            f"{_SERVICE}/NodeUnprepareResources": answering(
                self._unprepared, messages.ClaimsRequest, messages.UnprepareResponse
            ),
        }

    async def _info(self, _: Any) -> Any:
        endpoint = str(self._sockets[0])
        return messages.PluginInfo(type=_KIND, name=AGENT_DRIVER, endpoint=endpoint, supported_versions=[_VERSION])

    async def _notified(self, status: Any) -> Any:
        if status.plugin_registered:
            log.info("registered %s with the kubelet", AGENT_DRIVER)
            self.registered.set()
        else:
            log.warning("the kubelet does not take %s: %s", AGENT_DRIVER, status.error)
        return messages.Empty()

    async def _prepared(self, asked: Any) -> Any:
        claims = [NamedClaim(each.namespace, each.uid, each.name) for each in asked.claims]
        entries = [messages.PreparedEntry(key=each.uid, value=await self._answer(each)) for each in claims]
        return messages.PrepareResponse(claims=entries)

    async def _answer(self, claim: NamedClaim) -> Any:
        try:
            share = await self._prepare(claim)
        except MillpondError as error:
            log.warning("claim %s/%s cannot be prepared: %s", claim.namespace, claim.name, error)
            return messages.PreparedClaim(error=str(error))
        # Of no single line of the claim, so that a container has it once, however many cards it names.
        device = messages.PreparedDevice(pool_name=share.pool, device_name=share.device, cdi_device_ids=[share.cdi_id])
        return messages.PreparedClaim(devices=[device])

    async def _unprepared(self, asked: Any) -> Any:
        entries = []
        for each in asked.claims:
            try:
                self._unprepare(NamedClaim(each.namespace, each.uid, each.name))
                error = ""
            except OSError as failure:
                error = str(failure)
            entries.append(messages.UnpreparedEntry(key=each.uid, value=messages.UnpreparedClaim(error=error)))
        return messages.UnprepareResponse(claims=entries)
