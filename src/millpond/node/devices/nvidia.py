"""NVIDIA cards, as the driver's management library (NVML) tells of them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from millpond.model.devices import Device, Health
from millpond.node.devices.vendor import NOTHING_OURS, Availability, Ours

VENDOR = "nvidia"

_MIB = 1024 * 1024
_BOARD_CARDS = 8
_NOT_PART_OF_A_MODEL = re.compile(
    r"^(NVIDIA|Tesla|Quadro|GeForce)$|^(SXM\d*|PCIE?|NVL|HBM\d\w*|Generation|\d+G(i?B)?)$", re.IGNORECASE
)


class NvidiaVendor:
    """The NVIDIA cards of this machine.

    Only compute processes make a card busy: a desktop drawing on a workstation's only card leaves it usable.

    Args:
        load: gives the ``pynvml`` module; an ImportError means that it is not installed.
    """

    name = VENDOR

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> None:
        self._load = load
        self._nvml: Any = None
        self._reason = ""

    def available(self) -> Availability:
        """Whether library, driver and at least one card are there."""
        if self._nvml is None:
            self._reason = self._initialise()
        if self._nvml is None:
            return Availability(False, self._reason)
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            return Availability(False, f"the NVIDIA driver does not answer ({error})")
        return Availability(count > 0, f"{count} found by the NVIDIA driver")

    def discover(self, ours: Ours = NOTHING_OURS) -> tuple[Device, ...]:
        """All cards that the driver names; a card that fell off the bus is missing."""
        if not self.available().usable:
            return ()
        handles = [handle for handle in map(self._handle, range(self._nvml.nvmlDeviceGetCount())) if handle is not None]
        switches = self._groups(handles, self._nvml.NVML_TOPOLOGY_MULTIPLE)
        sockets = self._groups(handles, self._nvml.NVML_TOPOLOGY_NODE)
        found = (
            self._device(handle, switch, socket, ours)
            for handle, switch, socket in zip(handles, switches, sockets, strict=True)
        )
        return tuple(device for device in found if device is not None)

    def use_milli(self, devices: Collection[str]) -> dict[str, int]:
        """As the driver samples it, over between a sixth of a second and a second."""
        if not self.available().usable:
            return {}
        found = {}
        for uuid in devices:
            try:
                handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
                found[uuid] = int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) * 10
            except self._nvml.NVMLError:
                continue  # a lost card, or one that is cut up and does not say
        return found

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """By UUID, so that no numbering can be misunderstood."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in devices)}

    def link_map(self) -> str:
        """The name in ``topology.LINK_MAPS`` of how the cards are joined; empty when only PCIe joins them."""
        devices = self.discover()
        if len(devices) != _BOARD_CARDS:
            return ""
        peers = {kind for device in devices for kind in self._nvlink_peers(device)}
        if self._nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH in peers:
            return "nvswitch-8"
        if self._nvml.NVML_NVLINK_DEVICE_TYPE_GPU in peers and all(device.model == "V100" for device in devices):
            return "v100-cube-mesh"
        return ""

    def _initialise(self) -> str:
        """Brings the library up; otherwise says why not."""
        try:
            nvml = self._load()
        except ImportError:
            return "the Python package nvidia-ml-py is not installed"
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return f"no NVIDIA driver ({error})"
        self._nvml = nvml
        return ""

    def _handle(self, index: int) -> Any:
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError:
            return None  # a lost card has no handle, hence no UUID to name it by

    def _device(self, handle: Any, switch: int, socket: int, ours: Ours) -> Device | None:
        nvml = self._nvml
        try:
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError:
            return None
        model, memory_mib, index = "unknown", 0, nvml.nvmlDeviceGetIndex(handle)
        try:
            model = model_name(_text(nvml.nvmlDeviceGetName(handle)))
            memory_mib = nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
            health, detail = self._health(handle, uuid, ours)
        except nvml.NVMLError as error:
            health, detail = Health.FAULTY, f"the driver says: {error}"
        return Device(uuid, index, VENDOR, model, memory_mib, switch, socket, health, detail)

    def _health(self, handle: Any, uuid: str, ours: Ours) -> tuple[Health, str]:
        pids = {process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)} - ours.pids
        if uuid in ours.devices:
            # Inside a container the driver numbers processes as the host does; numbers that mean nothing here
            # are then our own tasks, as the card is theirs.
            pids = {pid for pid in pids if Path(f"/proc/{pid}").exists()}
        if not pids:
            return Health.OK, ""
        named = ", ".join(_process(pid) for pid in sorted(pids)[:3])
        more = f" and {len(pids) - 3} more" if len(pids) > 3 else ""
        return Health.BUSY_ELSEWHERE, f"used by {named}{more}"

    def _groups(self, handles: Sequence[Any], nearest: int) -> list[int]:
        """Numbers the groups of cards that have nothing farther than ``nearest`` between them."""
        groups: list[int] = []
        for position, handle in enumerate(handles):
            near = (other for other in range(position) if self._ancestor(handles[other], handle) <= nearest)
            first = next(near, None)
            groups.append(max(groups, default=-1) + 1 if first is None else groups[first])
        return groups

    def _ancestor(self, one: Any, other: Any) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetTopologyCommonAncestor(one, other))
        except self._nvml.NVMLError:
            return int(self._nvml.NVML_TOPOLOGY_SYSTEM)  # virtual machines hide the bus: assume the farthest

    def _nvlink_peers(self, device: Device) -> set[int]:
        """What kinds of thing the card's NVLinks lead to."""
        nvml, kinds = self._nvml, set()
        handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if nvml.nvmlDeviceGetNvLinkState(handle, link):
                    kinds.add(int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)))
            except nvml.NVMLError:
                continue  # no such link on this card
        return kinds


def model_name(product: str) -> str:
    """The name people use, from the driver's: of ``NVIDIA A100-SXM4-80GB`` that is ``A100``."""
    words = [word for word in re.split(r"[\s-]+", product) if word and not _NOT_PART_OF_A_MODEL.match(word)]
    return "-".join(words) or product


def _process(pid: int) -> str:
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"  # it is gone, or belongs to another container


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
