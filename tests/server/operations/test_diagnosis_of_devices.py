"""What the check of a machine says of vendors that are there, broken, experimental or absent."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.node.devices.discovery import FoundVendors
from millpond.node.devices.failed_devices import FailedDevices
from millpond.node.devices.fake import FakeVendor, fake_nodes
from millpond.node.devices.vendor import NO_PROCESSES, Availability, Fact, OwnProcesses
from millpond.node.sharing.agent_lock import AgentLock
from millpond.server.operations import devices
from millpond.server.operations.devices import device_findings, failed_devices, sharing
from millpond.server.operations.findings import Finding, Grade


class Vendor(FakeVendor):
    """A vendor as the test says."""

    def __init__(self, name: str, cards: str = "", reason: str = "", installed: bool = True) -> None:
        super().__init__(fake_nodes(cards) if cards else ())
        self.name = name
        self.title = name.capitalize()
        self.reason = reason
        self.installed = installed
        self.told: tuple[Fact, ...] = ()

    def available(self) -> Availability:
        return Availability(not self.reason, self.reason, self.installed)

    def facts(self) -> tuple[Fact, ...]:
        return self.told


def looked(*vendors: Vendor, broken: dict[str, str] | None = None, bounds_memory: bool = True) -> dict[str, Finding]:
    found = device_findings(FoundVendors(vendors, broken or {}), NO_PROCESSES, bounds_memory=bounds_memory)
    assert all((one.grade is Grade.OK) == (not one.remedy) for one in found)
    return {one.what: one for one in found}


def test_every_vendor_is_told_with_its_reason() -> None:
    found = looked(
        Vendor("nvidia", reason="no NVIDIA driver (not found)", installed=False),
        Vendor("ascend", reason="npu-smi does not answer within 15 s"),
        Vendor("amd", reason="amd-smi is not installed", installed=False),
        broken={"odd": "ImportError"},
    )
    assert found["GPUs"].found == "no NVIDIA driver (not found)"
    assert found["Ascend devices"].found == "none: npu-smi does not answer within 15 s"
    assert found["other devices"].found == "none (Amd: amd-smi is not installed)"
    assert found["device plugin odd"].found == "left out: ImportError"


def test_a_vendor_that_the_first_row_speaks_of_has_no_row_of_its_own() -> None:
    broken = looked(Vendor("nvidia", reason="the driver does not answer"))
    assert {name: one.found for name, one in broken.items()} == {"GPUs": "the driver does not answer"}
    beside = looked(Vendor("ascend", "1:910B3-64GB"), Vendor("nvidia", reason="no driver", installed=False))
    assert beside["other devices"].found == "none (Nvidia: no driver)"


def test_facts_of_a_driver_are_told_and_experimental_support_is_marked() -> None:
    vendor = Vendor("ascend", "2:910B3-64GB")
    vendor.experimental = True
    vendor.told = (Fact("driver", "24.1"), Fact("mode", "odd", "mend it"))
    found = looked(vendor)
    assert found["GPUs"].found == "2 x 910B3 (experimental)"
    assert found["Ascend driver"] == Finding("Ascend driver", Grade.OK, "24.1")
    assert found["Ascend mode"] == Finding("Ascend mode", Grade.LIMITED, "odd", "mend it")


def test_cards_that_cannot_be_used_are_named_with_why() -> None:
    vendor = Vendor("ascend", "2:910B3-64GB")
    lost, well = vendor.discover()
    broken = replace(lost, health=DeviceHealth.FAULTY, health_detail="it fell off the bus")
    vendor.discover = lambda own=NO_PROCESSES: (broken, well)  # type: ignore[method-assign]
    assert looked(vendor)["GPUs"].found == "2 x 910B3; not usable: card 0: it fell off the bus"


def test_a_card_that_the_server_saw_fail_is_told_until_it_is_well_again(tmp_path: Path) -> None:
    failed = FailedDevices(tmp_path)
    failed.note("GPU-1", "card 1 of n has failed: XID 79")
    [finding] = failed_devices(tmp_path)
    assert finding.found == "card 1 of n has failed: XID 79 (GPU-1)"
    assert "quiet for an hour" in finding.remedy
    failed.note("GPU-1", "")
    assert failed_devices(tmp_path) == []


def test_a_vendor_that_fails_is_told_and_the_others_are_looked_at() -> None:
    def fails(own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        raise UnavailableError("it hangs")

    odd, well = Vendor("odd", "1:X-1GB"), Vendor("well", "1:Y-1GB")
    odd.discover = fails  # type: ignore[method-assign]
    found = looked(odd, well)
    assert found["Odd devices"].found == "none: UnavailableError: it hangs"
    assert found["GPUs"].found == "1 x Y"


def test_whether_jobs_can_be_kept_to_parts_of_cards_is_proved(monkeypatch) -> None:
    def refuse(folder: object) -> None:
        raise UnavailableError("no C compiler", "install gcc")

    monkeypatch.setattr(devices, "library", lambda folder: folder)
    assert looked(Vendor("nvidia", "1:H200-141GB"))["parts of cards"].grade is Grade.OK
    monkeypatch.setattr(devices, "library", refuse)
    found = looked(Vendor("nvidia", "1:H200-141GB"))["parts of cards"]
    assert (found.grade, found.remedy) == (Grade.LIMITED, "install gcc")


def test_what_else_keeps_jobs_to_parts_of_cards_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    amd = Vendor("amd", "2:MI300X-192GB")
    assert looked(amd)["Amd parts of cards"].found.startswith("nothing keeps jobs to them, so they are refused")
    monkeypatch.setattr(devices, "regions", lambda: {"0000:03:00.0": "drm/0000:03:00.0/vram0"})
    amd.pci_addresses = lambda: {"GPU-1": "0000:03:00.0", "GPU-2": "0000:04:00.0"}  # type: ignore[method-assign]
    assert looked(amd)["Amd parts of cards"].found == "the kernel can bound the memory of 1 by control group (dmem)"
    found = looked(amd, bounds_memory=False)["Amd parts of cards"].found
    assert found.startswith("nothing keeps jobs to them, so they are refused")
    assert found.endswith("the server's control group has no say about it (dmem)")


def test_the_multi_process_service_is_told_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "library", lambda folder: folder)
    program = tmp_path / "nvidia-cuda-mps-control"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = looked(Vendor("nvidia", "1:H200-141GB"))["parts of cards"].found
    assert found.endswith("the multi-process service is there for pools with hold: mps")
    assert "service" not in looked(Vendor("amd", "2:MI300X-192GB"))["Amd parts of cards"].found


def test_another_server_that_shares_out_the_cards_of_the_machine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock = AgentLock()
    for state_dir, grade in ((tmp_path / "own", Grade.OK), (tmp_path / "another", Grade.LIMITED)):
        lock.take(f"process 7, state directory {state_dir}")
        assert sharing(tmp_path / "own").grade is grade
        lock.release()
