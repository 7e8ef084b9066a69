"""What the check of a machine says of its devices: each vendor with its reason, its driver, what is wrong there, who
shares cards out, and who uses one beyond its slice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from millpond.model.errors import MillpondError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.node.devices.discovery import FoundVendors
from millpond.node.devices.failed_devices import FailedDevices
from millpond.node.devices.nvidia import VENDOR as NVIDIA
from millpond.node.devices.vendor import DeviceVendor, OwnProcesses
from millpond.node.host.device_memory import pci_address, regions
from millpond.node.sharing.agent_lock import AgentLock
from millpond.node.sharing.gate.building import library
from millpond.node.sharing.mps import MpsEnforcer
from millpond.node.task.records import TaskFiles, running_records
from millpond.server.operations.findings import Finding, Grade

_WHAT = "GPUs"


def device_findings(found: FoundVendors, own: OwnProcesses, *, bounds_memory: bool) -> list[Finding]:
    """All findings about devices, those that exist first.

    Args:
        own: what running jobs hold, so that they do not count as foreign.
        bounds_memory: whether the server's control group has a say about device memory, where the kernel counts it.
    """
    vendors = [_VendorCheck(vendor, own, bounds_memory) for vendor in found.vendors]
    present = [check for check in vendors if check.devices]
    listed = present or [check for check in vendors if check.vendor.name == NVIDIA]  # by the row of the overview
    others = [check for check in vendors if check not in listed]
    return [
        _overview(vendors),
        *(finding for check in present for finding in check.findings()),
        *(_unusable(check) for check in others if check.installed),
        *_absent([check for check in others if not check.installed]),
        *(
            Finding(f"device plugin {name}", Grade.LIMITED, f"left out: {why}", "upgrade or uninstall it")
            for name, why in found.broken.items()
        ),
    ]


class _VendorCheck:
    """One vendor, checked once."""

    def __init__(self, vendor: DeviceVendor, own: OwnProcesses, bounds_memory: bool) -> None:
        self.vendor = vendor
        self._bounds_memory = bounds_memory
        self.devices: tuple[Device, ...] = ()
        try:
            availability = vendor.available()
            self.installed, self.reason = availability.installed, availability.reason
            if availability.usable:
                self.devices = vendor.discover(own)
        except Exception as error:  # whatever a plugin may raise: the check goes on with the others
            self.installed, self.reason = True, f"{type(error).__name__}: {error}"

    def findings(self) -> Iterator[Finding]:
        """What the vendor reports besides its devices."""
        try:
            facts = self.vendor.facts()
        except Exception as error:  # as above
            yield self._finding(
                "driver", f"it does not report it ({error})", f"check what the tools of {self.vendor.title} say"
            )
            return
        for fact in facts:
            yield self._finding(fact.what, fact.found, fact.remedy)
        yield self._slices()

    def _slices(self) -> Finding:
        """What keeps tasks to parts of this vendor's cards: the gate, the kernel, the card itself."""
        what, found = "parts of cards", self._kept_by_others()
        if self.vendor.name != NVIDIA:
            nothing = ["nothing keeps jobs to them, so they are refused; whole cards are handed out"]
            if regions() and not self._bounds_memory:
                nothing.append(
                    "the kernel counts device memory, but the server's control group has no say about it (dmem)"
                )
            return Finding(f"{self.vendor.title} {what}", Grade.OK, "; ".join(found or nothing))
        trouble = _trouble_with_gate()
        if trouble is None:
            return Finding(what, Grade.OK, "; ".join(["the library that keeps jobs to them can be built", *found]))
        cause = trouble.cause if found else f"nothing keeps jobs to them: {trouble.cause}"
        return Finding(what, Grade.LIMITED, "; ".join([cause, *found]), trouble.remedy)

    def _kept_by_others(self) -> list[str]:
        """What keeps tasks to parts of cards besides the gate."""
        names = regions()
        places = self.vendor.pci_addresses().values() if names else ()
        counted = sum(pci_address(place) in names for place in places)
        instances = sum(bool(device.parent) for device in self.devices)
        kept = []
        if counted and self._bounds_memory:
            kept.append(f"the kernel can bound the memory of {counted} by control group (dmem)")
        kept += [f"the hardware keeps {instances} instances apart (MIG)"] if instances else []
        serves = self.vendor.name == NVIDIA and not MpsEnforcer().why_not()
        return kept + (["the multi-process service is there for pools with hold: mps"] if serves else [])

    def _finding(self, what: str, found: str, remedy: str) -> Finding:
        return Finding(f"{self.vendor.title} {what}", Grade.LIMITED if remedy else Grade.OK, found, remedy)


def _overview(checks: Sequence[_VendorCheck]) -> Finding:
    devices = [device for check in checks for device in check.devices]
    if not devices:
        nvidia = next((check.reason for check in checks if check.vendor.name == NVIDIA), "no vendor is installed")
        remedy = "install the NVIDIA driver, or try things with --fake-gpus 4x8:V100-32GB"
        return Finding(_WHAT, Grade.LIMITED, nvidia, remedy)
    found = ", ".join(_counted(check) for check in checks if check.devices)
    unusable = [device for device in devices if device.health is not DeviceHealth.OK]
    if unusable:
        detail = "; ".join(f"card {device.index}: {device.health_detail or device.health}" for device in unusable)
        return Finding(
            _WHAT, Grade.LIMITED, f"{found}; not usable: {detail}", "mend or end what is named, or leave them out"
        )
    return Finding(_WHAT, Grade.OK, found)


def _counted(check: _VendorCheck) -> str:
    models = ", ".join(sorted({device.model for device in check.devices}))
    return f"{len(check.devices)} x {models}" + (" (experimental)" if check.vendor.experimental else "")


def failed_devices(state_dir: Path) -> list[Finding]:
    """Devices that the server saw fail and hands out no more; what a driver reports once, no later check shows."""
    remedy = (
        "its tasks were ended; reset or replace the card; it is back by itself once it was reset or quiet for an hour, "
        "and at the next start of the server"
    )
    return [
        Finding("a failed card", Grade.LIMITED, f"{text} ({device})", remedy)
        for device, text in FailedDevices(state_dir).noted().items()
    ]


def _unusable(check: _VendorCheck) -> Finding:
    remedy = f"see to the driver and the tools of {check.vendor.title}, or ignore it where there are no such devices"
    return Finding(f"{check.vendor.title} devices", Grade.LIMITED, f"none: {check.reason}", remedy)


def _absent(checks: Sequence[_VendorCheck]) -> list[Finding]:
    """One line for all vendors that are not installed."""
    if not checks:
        return []
    reasons = "; ".join(f"{check.vendor.title}: {check.reason}" for check in checks)
    return [Finding("other devices", Grade.OK, f"none ({reasons})")]


def _trouble_with_gate() -> MillpondError | None:
    """What keeps the gate from being built, which is tried."""
    with tempfile.TemporaryDirectory(prefix="millpond-doctor-") as folder:
        try:
            library(Path(folder))
        except MillpondError as error:
            return error
    return None


def sharing(state_dir: Path) -> Finding:
    """Whether all who share cards keep to their slices, as far as the server has seen."""
    what = "sharing cards"
    outside = escapes(state_dir.absolute())
    if outside:
        remedy = "talk to their owners; pools can suspend or end such tasks (slices: escapes)"
        return Finding(what, Grade.LIMITED, "beyond their slices: " + "; ".join(outside), remedy)
    holder = AgentLock().holder()
    if holder and not holder.endswith(f"state directory {state_dir.resolve()}"):
        remedy = "stop it, or submit to it; a server with this state directory refuses slices and swapping meanwhile"
        return Finding(what, Grade.LIMITED, f"done by another server ({holder})", remedy)
    return Finding(what, Grade.OK, f"done by {holder}" if holder else "done by no server at the moment")


def escapes(state_dir: Path) -> list[str]:
    """Tasks that run and were seen to use a card beyond their slice."""
    found = []
    for record in running_records(state_dir):
        seen = TaskFiles.of(state_dir, record.id).escape
        if record.alive and seen.exists():
            found.append(f"{record.id.job}, task {record.id.task}: {seen.read_text()}")
    return found
