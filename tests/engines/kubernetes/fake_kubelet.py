"""The sockets of a kubelet for device plugins, and of what it tells of pods; the test decides what it asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.server import Server

from millpond.engines.kubernetes.agent.kubelet_messages import messages
from millpond.node.host.files import short_name


class FakeKubelet:
    """One kubelet, and what it knows.

    Attributes:
        registered: what plugins have said of themselves.
        pods: devices by resource of each pod, by namespace and name.
        takes_drivers: it registers drivers of claims that it finds.
    """

    def __init__(self, folder: Path) -> None:
        self.plugins, self.resources = folder / "plugins", folder / "resources.sock"
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.registered: list[Any] = []
        self.registry, self.drivers = folder / "registry", folder / "drivers"
        self.takes_drivers = True
        self.pods: dict[tuple[str, str], dict[str, Sequence[str]]] = {}
        self._servers: list[Server] = []

    async def start(self) -> None:
        """As a kubelet does: sockets of plugins that registered with an earlier one are removed."""
        for path in (*self.plugins.iterdir(), self.resources):
            path.unlink(missing_ok=True)
        for path in (self.plugins / "kubelet.sock", self.resources):
            server = Server([self])
            await server.start(path=str(path))
            self._servers.append(server)

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def __mapping__(self) -> dict[str, Handler]:
        one = Cardinality.UNARY_UNARY
        return {
            "/v1beta1.Registration/Register": Handler(self._register, one, messages.RegisterRequest, messages.Empty),
            "/v1.PodResourcesLister/List": Handler(self._list, one, messages.Empty, messages.ListPodResourcesResponse),
        }

    async def _register(self, stream: Any) -> None:
        self.registered.append(await stream.recv_message())
        await stream.send_message(messages.Empty())

    async def _list(self, stream: Any) -> None:
        await stream.recv_message()
        pods = [
            {
                "namespace": namespace,
                "name": name,
                "containers": [
                    {"devices": [{"resource_name": resource, "device_ids": ids} for resource, ids in has.items()]}
                ],
            }
            for (namespace, name), has in self.pods.items()
        ]
        await stream.send_message(messages.ListPodResourcesResponse(pod_resources=pods))

    @contextlib.asynccontextmanager
    async def _plugin(self) -> AsyncIterator[Channel]:
        with (
            short_name(self.plugins / self.registered[-1].endpoint) as path,
            contextlib.closing(Channel(path=path)) as channel,
        ):
            yield channel

    async def devices(self) -> dict[str, str]:
        """What the plugin offers now: health by name."""
        async with self._plugin() as channel:
            listing = UnaryStreamMethod(
                channel, "/v1beta1.DevicePlugin/ListAndWatch", messages.Empty, messages.ListAndWatchResponse
            )
            async with listing.open() as stream:
                await stream.send_message(messages.Empty(), end=True)
                answer = None
                while answer is None or not answer.devices:
                    answer = await stream.recv_message()
                    assert answer is not None
                await stream.cancel()
                return {each.ID: each.health for each in answer.devices}

    async def allocate(self, pod: tuple[str, str], ids: Sequence[str]) -> tuple[dict[str, str], dict[str, bool]]:
        """A pod is admitted: variables of its container, and places that it has of the node, with whether to read."""
        async with self._plugin() as channel:
            allocating = UnaryUnaryMethod(
                channel, "/v1beta1.DevicePlugin/Allocate", messages.AllocateRequest, messages.AllocateResponse
            )
            answer = await allocating(messages.AllocateRequest(container_requests=[{"devicesIDs": ids}]))
        self.pods[pod] = {self.registered[-1].resource_name: ids}
        (given,) = answer.container_responses
        mounts = {each.host_path: each.read_only for each in given.mounts}
        assert all(each.host_path == each.container_path for each in given.mounts)
        return {each.key: each.value for each in given.envs}, mounts

    # ---- drivers of claims ----------------------------------------------------------------------------------------

    async def register_driver(self) -> Any:
        """What a kubelet does with the socket of a driver that it finds; returns what the driver says of itself."""
        socket = await until(lambda: next(self.registry.glob("*-reg.sock"), None))
        info = await call(socket, "/pluginregistration.Registration/GetInfo", messages.Empty(), messages.PluginInfo)
        status = messages.RegistrationStatus(
            plugin_registered=self.takes_drivers, error="" if self.takes_drivers else "too old"
        )
        await call(socket, "/pluginregistration.Registration/NotifyRegistrationStatus", status, messages.Empty)
        self.endpoint = Path(info.endpoint)
        return info

    async def prepare(self, *claims: tuple[str, str, str]) -> dict[str, Any]:
        """Claims, by their namespaces, uids and names, are prepared; answers by uid."""
        answer = await self._call_driver("NodePrepareResources", claims, messages.PrepareResponse)
        return {each.key: each.value for each in answer.claims}

    async def unprepare(self, *claims: tuple[str, str, str]) -> dict[str, str]:
        """They are used no more; errors by uid."""
        answer = await self._call_driver("NodeUnprepareResources", claims, messages.UnprepareResponse)
        return {each.key: each.value.error for each in answer.claims}

    async def _call_driver(self, name: str, claims: Sequence[tuple[str, str, str]], answer: Any) -> Any:
        named = [messages.Claim(namespace=namespace, uid=uid, name=name) for namespace, uid, name in claims]
        asked = messages.ClaimsRequest(claims=named)
        return await call(self.endpoint, f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{name}", asked, answer)


async def call(socket: Path, name: str, asked: Any, answer: Any) -> Any:
    """What a plugin answers at a socket."""
    with short_name(socket) as path, contextlib.closing(Channel(path=path)) as channel:
        return await UnaryUnaryMethod(channel, name, type(asked), answer)(asked)


async def until(holds: Any) -> Any:
    """What a condition comes to, as soon as it holds."""
    async with asyncio.timeout(60):
        while not (found := holds()):
            await asyncio.sleep(0.005)
    return found
