"""What the check of a machine says of its devices: each vendor with its reason, its driver, and what is wrong there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from millpond.model.devices import Device, DeviceHealth
from millpond.model.errors import MillpondError
from millpond.node.devices.discovery import FoundVendors
from millpond.node.devices.failed_devices import FailedDevices
from millpond.node.devices.nvidia import VENDOR as NVIDIA
from millpond.node.devices.vendor import DeviceVendor, OwnProcesses
from millpond.node.sharing.gate.building import library
from millpond.server.operations.findings import Finding, Grade

_WHAT = "GPUs"


def device_findings(found: FoundVendors, ours: OwnProcesses) -> list[Finding]:
    """All there is to say of devices, what there is first.

    Args:
        ours: what running jobs hold, lest they count as strangers.
    """
    vendors = [_VendorCheck(vendor, ours) for vendor in found.vendors]
    present = [look for look in vendors if look.devices]
    told = present or [look for look in vendors if look.vendor.name == NVIDIA]  # by the row of the overview
    others = [look for look in vendors if look not in told]
    return [
        _overview(vendors),
        *(finding for look in present for finding in look.findings()),
        *(_unusable(look) for look in others if look.installed),
        *_absent([look for look in others if not look.installed]),
        *(
            Finding(f"device plugin {name}", Grade.LIMITED, f"left out: {why}", "upgrade or uninstall it")
            for name, why in found.broken.items()
        ),
    ]


class _VendorCheck:
    """One vendor, looked at once."""

    def __init__(self, vendor: DeviceVendor, ours: OwnProcesses) -> None:
        self.vendor = vendor
        self.devices: tuple[Device, ...] = ()
        try:
            availability = vendor.available()
            self.installed, self.reason = availability.installed, availability.reason
            if availability.usable:
                self.devices = vendor.discover(ours)
        except Exception as error:  # whatever a plugin may raise: the check goes on with the others
            self.installed, self.reason = True, f"{type(error).__name__}: {error}"

    def findings(self) -> Iterator[Finding]:
        """What the vendor tells besides its devices."""
        try:
            facts = self.vendor.facts()
        except Exception as error:  # as above
            yield self._finding(
                "driver", f"it does not tell ({error})", f"look what the tools of {self.vendor.title} say"
            )
            return
        for fact in facts:
            yield self._finding(fact.what, fact.found, fact.remedy)
        if self.vendor.name == NVIDIA:
            yield _slices()

    def _finding(self, what: str, found: str, remedy: str) -> Finding:
        return Finding(f"{self.vendor.title} {what}", Grade.LIMITED if remedy else Grade.OK, found, remedy)


def _overview(job_views: Sequence[_VendorCheck]) -> Finding:
    devices = [device for look in job_views for device in look.devices]
    if not devices:
        nvidia = next((look.reason for look in job_views if look.vendor.name == NVIDIA), "no vendor is installed")
        remedy = "install the NVIDIA driver, or try things with --fake-gpus 4x8:V100-32GB"
        return Finding(_WHAT, Grade.LIMITED, nvidia, remedy)
    found = ", ".join(_counted(look) for look in job_views if look.devices)
    unusable = [device for device in devices if device.health is not DeviceHealth.OK]
    if unusable:
        detail = "; ".join(f"card {device.index}: {device.health_detail or device.health}" for device in unusable)
        return Finding(
            _WHAT, Grade.LIMITED, f"{found}; not usable: {detail}", "mend or end what is named, or leave them out"
        )
    return Finding(_WHAT, Grade.OK, found)


def _counted(look: _VendorCheck) -> str:
    models = ", ".join(sorted({device.model for device in look.devices}))
    return f"{len(look.devices)} x {models}" + (" (experimental)" if look.vendor.experimental else "")


def failed_devices(state_dir: Path) -> list[Finding]:
    """Devices that the server saw fail and hands out no more; what a driver reports once, no later look shows."""
    remedy = "its tasks were ended; see to the card, then start the server again"
    return [
        Finding("a failed card", Grade.LIMITED, f"{text} ({device})", remedy)
        for device, text in FailedDevices(state_dir).noted().items()
    ]


def _unusable(look: _VendorCheck) -> Finding:
    remedy = f"see to the driver and the tools of {look.vendor.title}, or ignore it where there are no such devices"
    return Finding(f"{look.vendor.title} devices", Grade.LIMITED, f"none: {look.reason}", remedy)


def _absent(job_views: Sequence[_VendorCheck]) -> list[Finding]:
    """One line for all those of whom there is no sign."""
    if not job_views:
        return []
    told = "; ".join(f"{look.vendor.title}: {look.reason}" for look in job_views)
    return [Finding("other devices", Grade.OK, f"none ({told})")]


def _slices() -> Finding:
    """Whether tasks can be kept to parts of a card; proved by building what does it."""
    what = "parts of cards"
    with tempfile.TemporaryDirectory(prefix="millpond-doctor-") as folder:
        try:
            library(Path(folder))
        except MillpondError as error:
            return Finding(what, Grade.LIMITED, f"nothing keeps jobs to them: {error.cause}", error.remedy)
    return Finding(what, Grade.OK, "the library that keeps jobs to them can be built")
