"""NVIDIA cards, as the driver's management library (NVML) reports them.

A card in MIG mode cannot be handed out itself; each instance that has been cut out of it is a device of its own, whole,
with the memory it has. Instances are taken as they are found; ``nvml.layouts`` makes and removes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.telemetry import DeviceLink, DeviceSample
from millpond.model.units import MIB
from millpond.node.devices.nvml.facts import facts_of, why_not_remapping, why_not_swapping
from millpond.node.devices.nvml.faults import NvmlEvents, driver_complaint
from millpond.node.devices.nvml.layouts import NvidiaDivider
from millpond.node.devices.nvml.library import Load, Nvml, instances_of, load_pynvml, text
from millpond.node.devices.nvml.links import nvidia_links
from millpond.node.devices.nvml.power import NvidiaPower
from millpond.node.devices.nvml.sampling import NvidiaSampler
from millpond.node.devices.vendor import (
    NO_PROCESSES,
    Availability,
    CardDivider,
    Fact,
    HealthStream,
    OwnProcesses,
    PowerControl,
    used_by,
)
from millpond.node.sharing.gate_enforcer import CONTEXT_MIB
from millpond.node.sharing.mig import NO_INSTANCES

VENDOR = "nvidia"

_NOT_PART_OF_A_MODEL = re.compile(
    r"^(NVIDIA|Tesla|Quadro|GeForce)$|^(SXM\d*|PCIE?|NVL|HBM\d\w*|Generation|\d+G(i?B)?)$", re.IGNORECASE
)


class NvidiaVendor:
    """The NVIDIA cards of this machine.

    Only compute processes make a card busy: a desktop drawing on a workstation's only card leaves it usable.
    """

    name = VENDOR
    title = "NVIDIA"
    experimental = False
    sample_every_s = 1.0

    def __init__(self, load: Load = load_pynvml) -> None:
        self._load = load
        self._known: Nvml | None = None
        self._sampler: NvidiaSampler | None = None

    def available(self) -> Availability:
        """Whether library, driver and at least one card are there."""
        try:
            nvml = self._nvml()
        except UnavailableError as error:
            return Availability(False, error.cause, installed=Path("/proc/driver/nvidia").exists())
        try:
            count = nvml.module.nvmlDeviceGetCount()
        except nvml.error as error:
            return Availability(False, f"the NVIDIA driver does not answer ({error})")
        return Availability(count > 0, f"{count} found by the NVIDIA driver")

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        """All cards that the driver names; a card that fell off the bus is missing."""
        if not self.available().usable:
            return ()
        nvml = self._nvml()
        found = [pair for handle in self._handles() for pair in _card(nvml, handle, own)]
        handles = {device.uuid: handle for device, handle in found}
        self._sampler = NvidiaSampler(nvml, handles) if self._sampler is None else self._sampler.renewed(handles)
        return tuple(device for device, _ in found)

    def sample(self) -> tuple[DeviceSample, ...]:
        """As the driver samples it, over between a sixth of a second and a second."""
        if self._sampler is None:
            self.discover()
        return () if self._sampler is None else self._sampler.sample()

    def links(self) -> tuple[DeviceLink, ...]:
        """By NVLink where there is one, else over PCIe."""
        if not self.available().usable:
            return ()
        nvml = self._nvml()
        return nvidia_links(nvml, self._by_uuid())

    def facts(self) -> tuple[Fact, ...]:
        """Driver, MIG, persistence mode, and whether processes can be distinguished."""
        return facts_of(self._nvml(), list(self._handles())) if self.available().usable else ()

    def pci_addresses(self) -> dict[str, str]:
        """Of whole cards: an instance has no memory that the kernel counts by itself."""
        if not self.available().usable:
            return {}
        nvml, found = self._nvml(), {}
        for handle in self._handles():
            about = nvml.ask("nvmlDeviceGetPciInfo", handle)
            if about is not None and instances_of(nvml, handle) is None:
                found[text(nvml.ask("nvmlDeviceGetUUID", handle))] = text(about.busId)
        return found

    def device_files(self) -> dict[str, Path]:
        """By the driver's own numbers, which are not those of the PCI bus."""
        if not self.available().usable:
            return {}
        nvml = self._nvml()
        numbers = {text(nvml.ask("nvmlDeviceGetUUID", card)): nvml.ask("nvmlDeviceGetMinorNumber", card)
                   for card in self._handles()}  # fmt: skip
        return {uuid: Path(f"/dev/nvidia{number}") for uuid, number in numbers.items() if number is not None}

    def watch(self) -> HealthStream | None:
        """XIDs and double-bit errors; None where no card reports any."""
        if not self.available().usable:
            return None
        return NvmlEvents.open(self._nvml(), list(self._handles()))

    def swaps(self) -> bool:
        """By the driver's checkpointing of processes, which came with a certain driver and a binding."""
        return self.available().usable and why_not_swapping(self._nvml()) is None

    def remaps(self) -> bool:
        """By maps of cards, which came with a later driver."""
        return self.available().usable and why_not_remapping(self._nvml()) is None

    def power(self) -> PowerControl | None:
        """Caps and clocks of whole cards."""
        if not self.available().usable:
            return None
        return NvidiaPower(self._nvml(), self._by_uuid())

    def divider(self) -> CardDivider | None:
        """Of cards in MIG mode."""
        if not self.available().usable:
            return None
        nvml = self._nvml()
        return NvidiaDivider(nvml, self._by_uuid, lambda card: _described(nvml, card, -1))

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """By UUID, so that no numbering can be misunderstood."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in devices)}

    def _nvml(self) -> Nvml:
        if self._known is None:
            self._known = Nvml(self._load)
        return self._known

    def _by_uuid(self) -> dict[str, Any]:
        """Handles of the cards."""
        nvml = self._nvml()
        return {text(nvml.ask("nvmlDeviceGetUUID", handle)): handle for handle in self._handles()}

    def _handles(self) -> Iterator[Any]:
        """A lost card has no handle, hence no UUID to name it by."""
        nvml = self._nvml()
        for index in range(nvml.ask("nvmlDeviceGetCount") or 0):
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                yield handle


def model_name(product: str) -> str:
    """The name people use, from the driver's: of ``NVIDIA A100-SXM4-80GB`` that is ``A100``."""
    words = [word for word in re.split(r"[\s-]+", product) if word and not _NOT_PART_OF_A_MODEL.match(word)]
    return "-".join(words) or product


def _card(nvml: Nvml, handle: Any, own: OwnProcesses) -> Iterator[tuple[Device, Any]]:
    """A card as the devices that can be handed out of it, with their handles."""
    index = nvml.ask("nvmlDeviceGetIndex", handle)
    whole = _described(nvml, handle, -1 if index is None else index)
    if whole is None:
        return
    instances = instances_of(nvml, handle)
    if whole.health is DeviceHealth.FAULTY or instances is None:
        yield (_looked_at(nvml, handle, whole, own), handle)
        return
    if not instances:
        yield (replace(whole, health=DeviceHealth.BUSY_ELSEWHERE, health_detail=NO_INSTANCES), handle)
    for number, instance in enumerate(instances):
        device = _described(nvml, instance, whole.index)
        if device is not None:
            part = replace(device, parent=whole.uuid, instance=number)
            if whole.health is not DeviceHealth.OK:
                part = replace(part, health=whole.health, health_detail=whole.health_detail)
            yield (_looked_at(nvml, instance, part, own), instance)


def _described(nvml: Nvml, handle: Any, index: int) -> Device | None:
    """A device and what the driver says of its health; None when it has no UUID to name it by."""
    uuid = text(nvml.ask("nvmlDeviceGetUUID", handle))
    if not uuid:
        return None
    model, memory_mib = "unknown", 0
    try:
        model = model_name(text(nvml.must("nvmlDeviceGetName", handle)) or model)
        memory = nvml.must("nvmlDeviceGetMemoryInfo", handle)
        memory_mib = 0 if memory is None else int(memory.total) // MIB
        health, detail = driver_complaint(nvml, handle)
    except nvml.error as error:
        health, detail = DeviceHealth.FAULTY, f"the driver says: {error}"
    return Device(uuid, index, VENDOR, model, memory_mib, health=health, health_detail=detail, context_mib=CONTEXT_MIB)


def _looked_at(nvml: Nvml, handle: Any, device: Device, own: OwnProcesses) -> Device:
    """A device that is well, with what foreign processes make of it."""
    if device.health is not DeviceHealth.OK:
        return device
    try:
        running = nvml.must("nvmlDeviceGetComputeRunningProcesses", handle)
    except nvml.error as error:
        return replace(device, health=DeviceHealth.FAULTY, health_detail=f"the driver says: {error}")
    health, detail = used_by(device.uuid, [process.pid for process in running or ()], own)
    return replace(device, health=health, health_detail=detail)
