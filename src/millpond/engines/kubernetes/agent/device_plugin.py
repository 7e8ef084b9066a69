"""The agent as a device plugin of its kubelet: one resource, whose devices are thousandths of cards.

The kubelet counts them and chooses some; which card a container gets is another's decision, so their names carry
nothing. A kubelet that starts forgets its plugins and removes their sockets: then the plugin registers again.
Source: kubernetes.io, "Device Plugins".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Server, Stream

from millpond.engines.kubernetes.agent.kubelet_messages import answering, messages
from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI
from millpond.model.errors import MillpondError
from millpond.node.host.files import short_name

log = logging.getLogger(__name__)

KUBELET_SOCKET: Final = "kubelet.sock"
OWN_SOCKET: Final = "millpond.sock"
LOOK_EVERY_S: Final = 1.0
_VERSION: Final = "v1beta1"
_ANSWERS_WITHIN_S: Final = 10.0
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"


@dataclass(frozen=True, slots=True)
class HostMount:
    """A file or folder of the node, as a container has it."""

    host_path: str
    container_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class ContainerGifts:
    """What a container starts with, beside what its pod says."""

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[HostMount, ...] = ()


class DevicePlugin:
    """Answers one kubelet. Lives on one event loop.

    Args:
        folder: of the sockets of device plugins.
        allocate: what a container gets to which the kubelet gives these devices; a MillpondError is the reason why it
            gets nothing, and its pod fails with it.
    """

    def __init__(self, folder: Path, allocate: Callable[[Sequence[str]], Awaitable[ContainerGifts]]) -> None:
        self._folder = folder
        self._allocate = allocate
        self._devices: Mapping[str, bool] | None = None
        self._changed = asyncio.Condition()
        self._server: Server | None = None
        self._kubelet: tuple[int, float] | None = None

    async def offer(self, devices: Mapping[str, bool]) -> None:
        """From now on these are the devices, by name, and whether each is well."""
        if devices != self._devices:
            self._devices = dict(devices)
            async with self._changed:
                self._changed.notify_all()

    async def run(self) -> None:
        """Serve for ever, and register with each kubelet that starts."""
        try:
            while True:
                try:
                    await self._keep_registered()
                except (OSError, GRPCError, StreamTerminatedError, TimeoutError) as error:
                    log.warning("the kubelet does not take the plugin: %s", str(error) or type(error).__name__)
                    self._kubelet = None
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._stop()

    async def _keep_registered(self) -> None:
        try:
            found = (self._folder / KUBELET_SOCKET).stat()
        except FileNotFoundError:
            self._kubelet = None  # it is not there, or starts
            return
        kubelet = (found.st_ino, found.st_ctime)
        if kubelet == self._kubelet and (self._folder / OWN_SOCKET).exists():
            return
        await self._serve()
        await self._register()
        self._kubelet = kubelet
        log.info("registered %s with the kubelet", MILLI)

    async def _serve(self) -> None:
        self._stop()
        (self._folder / OWN_SOCKET).unlink(missing_ok=True)
        self._server = Server([self])
        with short_name(self._folder / OWN_SOCKET) as path:
            await self._server.start(path=path)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _register(self) -> None:
        with short_name(self._folder / KUBELET_SOCKET) as path:
            channel = Channel(path=path)
            try:
                register = UnaryUnaryMethod(
                    channel, f"/{_VERSION}.Registration/Register", messages.RegisterRequest, messages.Empty
                )
                asked = messages.RegisterRequest(version=_VERSION, endpoint=OWN_SOCKET, resource_name=MILLI)
                await register(asked, timeout=_ANSWERS_WITHIN_S)
            finally:
                channel.close()

    # ---- what the kubelet calls ----------------------------------------------------------------------------------

    def __mapping__(self) -> dict[str, Handler]:
        """The calls, as the library looks them up."""
        service, many = f"/{_VERSION}.DevicePlugin", Cardinality.UNARY_STREAM
        watch = Handler(self._list_and_watch, many, messages.Empty, messages.ListAndWatchResponse)
        return {
            f"{service}/GetDevicePluginOptions": answering(self._options, messages.Empty, messages.DevicePluginOptions),
            f"{service}/ListAndWatch": watch,
            f"{service}/Allocate": answering(self._allocated, messages.AllocateRequest, messages.AllocateResponse),
        }

    async def _options(self, _: Any) -> Any:
        return messages.DevicePluginOptions()

    async def _list_and_watch(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        told: Mapping[str, bool] | None = None
        while True:
            async with self._changed:
                while self._devices is None or self._devices is told:  # none at all would end what they have
                    await self._changed.wait()
                told = self._devices
            listed = [messages.Device(ID=name, health=_HEALTHY if well else _UNHEALTHY) for name, well in told.items()]
            await stream.send_message(messages.ListAndWatchResponse(devices=listed))

    async def _allocated(self, asked: Any) -> Any:
        try:
            gifts = [await self._allocate(list(each.devicesIDs)) for each in asked.container_requests]
        except MillpondError as error:
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        return messages.AllocateResponse(container_responses=[_response(each) for each in gifts])


def _response(gifts: ContainerGifts) -> Any:
    return messages.ContainerAllocateResponse(
        envs=[messages.Variable(key=name, value=value) for name, value in gifts.env.items()],
        mounts=[
            messages.Mount(container_path=each.container_path, host_path=each.host_path, read_only=each.read_only)
            for each in gifts.mounts
        ],
    )


async def pods_with_devices(socket: Path) -> dict[tuple[str, str], dict[str, frozenset[str]]]:
    """Which devices of which resource each pod has, by the kubelet's own account, by namespace and name.

    Raises:
        OSError, GRPCError, StreamTerminatedError, TimeoutError: the kubelet does not say.
    """
    with short_name(socket) as path, contextlib.closing(Channel(path=path)) as channel:
        listing = UnaryUnaryMethod(
            channel, "/v1.PodResourcesLister/List", messages.Empty, messages.ListPodResourcesResponse
        )
        answer = await listing(messages.Empty(), timeout=_ANSWERS_WITHIN_S)
    found: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
    for pod in answer.pod_resources:
        has = found.setdefault((pod.namespace, pod.name), {})
        for each in (devices for container in pod.containers for devices in container.devices):
            has[each.resource_name] = has.get(each.resource_name, frozenset()) | frozenset(each.device_ids)
    return found
