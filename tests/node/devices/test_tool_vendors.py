"""Vendors by what their tools print, and by what they do instead of printing it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tool_outputs as outputs

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample, ProcessSample
from millpond.model.hardware.topology import Link
from millpond.node.devices import tool
from millpond.node.devices.amd import AmdVendor
from millpond.node.devices.ascend import AscendVendor
from millpond.node.devices.cambricon import CambriconVendor
from millpond.node.devices.discovery import FoundVendors
from millpond.node.devices.hygon import HygonVendor
from millpond.node.devices.intel import IntelVendor
from millpond.node.devices.moore_threads import MooreThreadsVendor
from millpond.node.devices.tool import ToolMissingError, ToolVendor, run_tool
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host.machine import describe_machine

VENDORS = (AmdVendor, AscendVendor, CambriconVendor, HygonVendor, IntelVendor)
ASCEND = {"info": outputs.ASCEND_INFO, "info -m": outputs.ASCEND_MAP, "info -t topo": outputs.ASCEND_TOPOLOGY}
HYGON = {
    "": outputs.HYGON,
    "--showmeminfo vram": outputs.HYGON_MEMORY,
    "--showproductname": outputs.HYGON_PRODUCTS,
    "--showdriverversion": "Driver Version: 6.2.35\n",
}
INTEL = {
    "discovery -j": outputs.INTEL_LIST,
    "discovery -d 0 -j": outputs.INTEL_DEVICE,
    "stats -d 0 -j": outputs.INTEL_STATS,
}
AMD = {
    "list --json": outputs.AMD_LIST,
    "static --asic --json": outputs.AMD_ASIC,
    "static --driver --json": '[{"gpu": 0, "driver": {"name": "amdgpu", "version": "6.12.12"}}]',
    "metric --json": outputs.AMD_METRIC,
    "process --json": outputs.AMD_PROCESSES,
    "topology --json": outputs.AMD_TOPOLOGY,
}


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool.socket, "gethostname", lambda: "box")


def printing(answers: Mapping[str, str]) -> Callable[[Sequence[str]], str]:
    def run(argv: Sequence[str]) -> str:
        answer = answers.get(" ".join(argv[1:]))
        if answer is None:
            raise UnavailableError(f"{argv[0]} knows no {argv[1:]}")
        return answer

    return run


def test_ascend_chips_are_known_by_the_numbers_that_programs_use() -> None:
    vendor = AscendVendor(printing(ASCEND))
    well, alarmed = vendor.discover(OwnProcesses(frozenset({1})))
    assert (well.uuid, well.index, well.model, well.memory_mib) == ("ascend-box-0000:C1:00.0", 0, "910B3", 65536)
    assert (well.health, well.experimental) == (DeviceHealth.OK, True)
    assert (alarmed.index, alarmed.health, alarmed.health_detail) == (
        1,
        DeviceHealth.FAULTY,
        "npu-smi says: health is Alarm",
    )
    assert vendor.environment([alarmed, well]) == {"ASCEND_RT_VISIBLE_DEVICES": "1,0"}
    first, second = vendor.sample()
    assert first == DeviceSample(well.uuid, 70, 3318, 65536, 101.8, None, 43, None, (ProcessSample(1, 3100),))
    assert (second.power_w, second.processes) == (None, ())
    assert [(link.one, link.other, link.link) for link in vendor.links()] == [
        (well.uuid, alarmed.uuid, Link.NVLINK_SINGLE)
    ]
    assert vendor.facts()[0].found == "24.1.rc1.b030"


def test_a_chip_with_a_process_that_is_not_ours_is_busy_elsewhere() -> None:
    assert AscendVendor(printing(ASCEND)).discover()[0].health is DeviceHealth.BUSY_ELSEWHERE


def test_an_old_ascend_tool_without_maps_still_lists_its_chips() -> None:
    vendor = AscendVendor(printing({"info": outputs.ASCEND_INFO}))
    assert [device.index for device in vendor.discover()] == [0, 1]
    assert vendor.links() == ()


def test_hygon_cards_by_their_table_and_lists() -> None:
    vendor = HygonVendor(printing(HYGON))
    first, second = vendor.discover()
    assert (first.uuid, first.model, first.memory_mib) == ("hygon-box-0", "BW1000", 65520)
    assert vendor.environment([second]) == {"HIP_VISIBLE_DEVICES": "1"}
    assert vendor.sample() == (
        DeviceSample("hygon-box-0", 975, 51920, 65520, 511.0, None, 50),
        DeviceSample("hygon-box-1", 0, 0, 65520, 89.0, None, None),
    )
    assert vendor.facts()[0].found == "6.2.35"


def test_an_old_hygon_tool_tells_less() -> None:
    vendor = HygonVendor(printing({"": outputs.HYGON_OLD}))
    assert vendor.sample() == (DeviceSample("hygon-box-0", 340, None, None, 39.0, None, 42),)
    assert vendor.discover()[0].model == "DCU"


def test_cambricon_cards_by_two_lines_each() -> None:
    vendor = CambriconVendor(printing({"": outputs.CAMBRICON}))
    first, second = vendor.discover()
    assert (first.uuid, first.model, first.memory_mib) == ("cambricon-box-0000:13:00.0", "MLU370-X8", 20638)
    assert vendor.environment([first, second]) == {"MLU_VISIBLE_DEVICES": "0,1"}
    assert vendor.sample()[0] == DeviceSample(first.uuid, 450, 1024, 20638, 107.0, None, 28)
    assert vendor.sample()[1].use_milli is None
    assert vendor.facts()[0].found == "5.10.22"


def test_intel_devices_by_json() -> None:
    vendor = IntelVendor(printing(INTEL))
    (device,) = vendor.discover()
    assert (device.uuid[-12:], device.model, device.memory_mib) == ("a5690bd58086", "Max-1550", 65536)
    assert vendor.environment([device]) == {"ZE_AFFINITY_MASK": "0"}
    assert vendor.sample() == (DeviceSample(device.uuid, 375, 1024, 65536, 412.5, None, 48),)
    assert vendor.facts()[0].found == "1.3.27191"


def test_amd_devices_by_json_wrapped_or_not_and_behind_a_warning() -> None:
    vendor = AmdVendor(printing(AMD))
    first, second = vendor.discover(OwnProcesses(frozenset({1})))
    assert (first.uuid, first.model, first.memory_mib) == ("26ff74a1-0000-1000-80da-fac08ba4d3b8", "MI300X", 196592)
    assert vendor.environment([second]) == {"ROCR_VISIBLE_DEVICES": "1"}
    told, silent = vendor.sample()
    assert told == DeviceSample(first.uuid, 730, 49148, 196592, 542.0, 9000.5, 61, None, (ProcessSample(1, 2048),))
    assert silent == DeviceSample(second.uuid, memory_mib=196592, processes=())
    assert [link.link for link in vendor.links()] == [Link.NVSWITCH]
    assert vendor.facts()[0].found == "6.12.12"


def test_without_a_list_of_processes_amd_processes_are_unknown() -> None:
    vendor = AmdVendor(printing({name: text for name, text in AMD.items() if not name.startswith("process")}))
    assert vendor.sample()[0].processes is None


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_tool_that_is_not_there_is_a_reason(vendor: type[ToolVendor]) -> None:
    def missing(argv: Sequence[str]) -> str:
        raise ToolMissingError(f"{argv[0]} is not installed")

    availability = vendor(missing).available()
    assert availability == (False, f"{vendor.tool} is not installed", False)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("rubbish", ["Segmentation fault\n", '{"error": 7}', "[[1]]", '{"device_list": 3}'])
def test_rubbish_is_no_device_and_never_an_accident(vendor: type[ToolVendor], rubbish: str) -> None:
    availability = vendor(lambda argv: rubbish).available()
    assert not availability.usable
    assert "cannot be read" in availability.reason or availability.reason == f"0 found by {vendor.tool}"


def test_a_tool_is_asked_again_only_after_a_while() -> None:
    now, calls = [0.0], []

    def run(argv: Sequence[str]) -> str:
        calls.append(argv)
        return outputs.CAMBRICON

    vendor = CambriconVendor(run, lambda: now[0])
    vendor.available()
    vendor.discover()
    vendor.sample()
    assert len(calls) == 1
    now[0] = 2.0
    vendor.sample()
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("script", "within_s", "reason"),
    [
        ("echo broken >&2; exit 3", 60.0, "ended with code 3 and said: broken"),
        ("exit 4", 60.0, "ended with code 4 and said: nothing"),
        ("exec sleep 600", 0.2, "does not answer within 0.2 s"),
    ],
)
def test_a_tool_that_fails_or_hangs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, within_s: float, reason: str
) -> None:
    program = tmp_path / "xx-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(tool, "_ANSWERS_WITHIN_S", within_s)
    with pytest.raises(UnavailableError, match=reason):
        run_tool(["xx-smi", "info"])


def test_a_tool_that_is_not_on_the_path_is_missing() -> None:
    with pytest.raises(ToolMissingError, match="no-such-smi is not installed"):
        run_tool(["no-such-smi"])


def test_a_machine_with_two_vendors_shows_each_program_only_its_devices() -> None:
    found = FoundVendors((AscendVendor(printing(ASCEND)), HygonVendor(printing(HYGON))), {})
    machine = describe_machine(found=found)
    assert "support for Hygon devices is experimental: it has not met one yet" in machine.notes
    chip = next(device for device in machine.nodes[0].devices if device.vendor == "ascend")
    assert machine.environment([chip]) == {
        "CUDA_VISIBLE_DEVICES": "",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "HIP_VISIBLE_DEVICES": "",
    }


class Mtml(SimpleNamespace):
    """The calls of pymtml that the vendor makes."""

    class MTMLError(Exception):
        pass


def mtml(**answers: Any) -> Mtml:
    given: dict[str, Any] = {
        "mtmlLibraryInit": None,
        "mtmlLibraryCountDevice": 2,
        "mtmlLibraryInitDeviceByIndex": lambda index: f"card{index}",
        "mtmlDeviceGetUUID": lambda card: f"uuid-{card}",
        "mtmlDeviceGetName": "MTT S4000",
        "mtmlDeviceInitMemory": "memory",
        "mtmlDeviceInitGpu": "gpu",
        "mtmlMemoryGetTotal": 48 * 2**30,
        "mtmlMemoryGetUsed": 2**30,
        "mtmlGpuGetUtilization": 42,
        "mtmlGpuGetTemperature": 55,
        "mtmlDeviceGetPowerUsage": 150_000,
        "mtmlDeviceGetTopologyLevel": 2,
        "mtmlLibraryInitSystem": "system",
        "mtmlSystemGetDriverVersion": "3.0.0",
        **answers,
    }

    def answering(answer: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            told = answer(*arguments) if callable(answer) else answer
            if isinstance(told, Exception):
                raise told
            return told

        return call

    return Mtml(**{name: answering(answer) for name, answer in given.items()})


def test_moore_threads_cards_by_their_library() -> None:
    module = mtml()
    vendor = MooreThreadsVendor(lambda: module)
    first, second = vendor.discover()
    assert (first.uuid, first.model, first.memory_mib, second.index) == ("uuid-card0", "MTT-S4000", 49152, 1)
    assert vendor.sample()[0] == DeviceSample("uuid-card0", 420, 1024, 49152, 150.0, None, 55)
    assert vendor.environment([second]) == {"MUSA_VISIBLE_DEVICES": "1"}
    assert [link.link for link in vendor.links()] == [Link.PCIE_SWITCH]
    assert vendor.facts()[0].found == "3.0.0"


def test_what_the_library_of_moore_threads_does_not_tell_is_unknown() -> None:
    module = mtml(mtmlGpuGetUtilization=Mtml.MTMLError(4), mtmlDeviceInitMemory=Mtml.MTMLError(4))
    assert MooreThreadsVendor(lambda: module).sample()[0] == DeviceSample("uuid-card0", power_w=150.0, temperature_c=55)


def test_without_library_or_driver_of_moore_threads_there_is_a_reason() -> None:
    def load() -> Any:
        raise ImportError

    assert not MooreThreadsVendor(load).available().installed
    module = mtml(mtmlLibraryInit=Mtml.MTMLError("Library Not Found"))
    assert MooreThreadsVendor(lambda: module).available().reason == "no Moore Threads driver (Library Not Found)"
