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

from millpond.engines.kubernetes.agent import kubelet_messages as messages


class FakeKubelet:
    """One kubelet, and what it knows.

    Attributes:
        registered: what plugins have said of themselves.
        pods: devices by resource of each pod, by namespace and name.
    """

    def __init__(self, folder: Path) -> None:
        self.plugins, self.resources = folder / "plugins", folder / "resources.sock"
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.registered: list[Any] = []
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
        channel = Channel(path=str(self.plugins / self.registered[-1].endpoint))
        try:
            yield channel
        finally:
            channel.close()

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


async def until(holds: Any) -> Any:
    """What a condition comes to, as soon as it holds."""
    async with asyncio.timeout(20):
        while not (found := holds()):
            await asyncio.sleep(0.005)
    return found
