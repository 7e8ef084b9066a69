"""What becomes of what the driver says, and of what it leaves out: samples, faults, links, MIG, facts."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml
import pytest
from stub_nvml import MIB, NOT_SUPPORTED, TIMEOUT, UNKNOWN, NVMLError, StubNvml, plain

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.telemetry import DeviceLink, DeviceSample, FaultScope, HealthEvent, ProcessSample
from millpond.model.hardware.topology import Link
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.nvml import facts
from millpond.node.devices.nvml.library import Nvml
from millpond.node.devices.nvml.sampling import NvidiaSampler
from millpond.node.host.machine import link_map, placed


def vendor_of(*uuids: str, **answers: Any) -> NvidiaVendor:
    stub = StubNvml(list(uuids), **answers)
    return NvidiaVendor(lambda: stub)


def test_a_sample_tells_what_the_driver_tells_in_our_units() -> None:
    vendor = vendor_of(
        "GPU-0",
        nvmlDeviceGetUtilizationRates=plain(gpu=73),
        nvmlDeviceGetPowerUsage=412_500,
        nvmlDeviceGetTotalEnergyConsumption=9_000_000,
        nvmlDeviceGetTemperature=61,
        nvmlDeviceGetClockInfo=1980,
    )
    assert vendor.sample() == (DeviceSample("GPU-0", 730, 1024, 143_771, 412.5, 9000.0, 61, 1980, ()),)


def test_what_the_driver_does_not_tell_is_unknown_and_not_zero() -> None:
    vendor = vendor_of("GPU-0", nvmlDeviceGetMemoryInfo=NVMLError(NOT_SUPPORTED),
                       nvmlDeviceGetComputeRunningProcesses=NVMLError(NOT_SUPPORTED))  # fmt: skip
    assert vendor.sample() == (DeviceSample("GPU-0"),)
    (device,) = vendor.discover()
    assert (device.health, device.memory_mib) == (DeviceHealth.OK, 0)


def test_what_the_driver_takes_long_to_tell_is_asked_for_where_it_is_news() -> None:
    """Energy every ten seconds; the uses of processes where there are several: that of a single one is the card's."""
    now, asked = [0.0], []
    running = [plain(pid=9, usedGpuMemory=512 * MIB)]

    def energy(handle: str) -> int:
        asked.append(now[0])
        return int(now[0]) * 1000

    stub = StubNvml(
        ["GPU-0"],
        nvmlDeviceGetUtilizationRates=plain(gpu=73),
        nvmlDeviceGetComputeRunningProcesses=lambda handle: running,
        nvmlDeviceGetProcessUtilization=lambda handle, since: [plain(pid=9, timeStamp=10, smUtil=20)],
        nvmlDeviceGetTotalEnergyConsumption=energy,
    )
    sampler = NvidiaSampler(Nvml(lambda: stub), {"GPU-0": "GPU-0"}, lambda: now[0])
    told = []
    for now[0] in (0.0, 1.0, 9.9, 10.0, 11.0):
        (sample,) = sampler.sample()
        told.append(sample.energy_j)
    assert (told, asked) == ([0.0, 0.0, 0.0, 10.0, 10.0], [0.0, 10.0])
    assert sample.processes == (ProcessSample(9, 512, 730),)
    running.append(plain(pid=7, usedGpuMemory=MIB))
    (sample,) = sampler.sample()
    assert sample.processes == (ProcessSample(9, 512, 200), ProcessSample(7, 1, None))


def test_an_instance_that_was_made_again_under_its_uuid_is_sampled_by_its_new_handle() -> None:
    instances = ["before"]
    stub = StubNvml(
        ["GPU-0"],
        nvmlDeviceGetMigMode=(1, 1),
        nvmlDeviceGetMaxMigDeviceCount=1,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda card, slot: instances[slot],
        nvmlDeviceGetUUID=lambda handle: "GPU-0" if handle == "GPU-0" else "MIG-0",
        nvmlDeviceGetMemoryInfo=lambda handle: (
            plain(total=18 * MIB, used=2 * MIB) if handle in ("GPU-0", instances[0]) else NVMLError(UNKNOWN)
        ),
    )
    vendor = NvidiaVendor(lambda: stub)
    (sample,) = vendor.sample()
    assert (sample.device, sample.memory_mib) == ("MIG-0", 18)
    instances[0] = "after"
    assert vendor.sample()[0].memory_mib is None
    vendor.discover()
    assert vendor.sample()[0].memory_mib == 18


class Gpm(StubNvml):
    """A driver that counts what multiprocessors and tensor cores do, by the structures of the real binding."""

    def __init__(self, **answers: Any) -> None:
        self.c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t
        self.NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
        self.percent = {pynvml.NVML_GPM_METRIC_SM_UTIL: 31.6, pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 12.0}
        self.taken: list[Any] = []
        self.asked: list[tuple[Any, Any]] = []
        known = {
            "nvmlGpmQueryDeviceSupport": plain(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": lambda: ctypes.pointer(pynvml.struct_c_nvmlGpmSample_t()),
            "nvmlGpmSampleGet": self.take,
            "nvmlGpmMetricsGet": self.count,
        }
        super().__init__(["GPU-0"], **known | answers)

    def take(self, handle: str, sample: Any) -> Any:
        self.taken.append(ctypes.addressof(sample.contents))
        return sample

    def count(self, question: Any) -> Any:
        assert (question.version, question.numMetrics) == (self.NVML_GPM_METRICS_GET_VERSION, 2)
        self.asked.append(tuple(ctypes.addressof(each.contents) for each in (question.sample1, question.sample2)))
        for metric in question.metrics[:2]:
            metric.value = self.percent[metric.metricId]
        return question


def test_what_multiprocessors_and_tensor_cores_do_is_a_mean_since_the_sample_before() -> None:
    now, stub = [0.0], Gpm()
    sampler = NvidiaSampler(Nvml(lambda: stub), {"GPU-0": "GPU-0"}, lambda: now[0])
    told = []
    for now[0] in (0.0, 9.9, 10.0, 15.0, 20.0):
        (sample,) = sampler.sample()
        told.append((sample.sm_milli, sample.tensor_milli))
    assert told == [(None, None), (None, None), (316, 120), (316, 120), (316, 120)]
    first, second, third = stub.taken
    assert first == third != second
    assert stub.asked == [(first, second), (second, third)]


def test_what_is_counted_goes_on_and_takes_no_more_memory_where_other_devices_come() -> None:
    now, stub = [0.0], Gpm()
    sampler = NvidiaSampler(Nvml(lambda: stub), {"GPU-0": "GPU-0"}, lambda: now[0])
    assert sampler.renewed({"GPU-0": "GPU-0"}) is sampler
    sampler.sample()
    now[0] = 10.0
    (sample, other) = sampler.renewed({"GPU-0": "GPU-0", "MIG-1": "MIG-1"}).sample()
    assert (sample.sm_milli, other.sm_milli) == (316, None)
    assert len(stub.taken) == 3


@pytest.mark.parametrize(
    "answers",
    [
        {"nvmlGpmQueryDeviceSupport": plain(isSupportedDevice=0)},
        {"nvmlGpmSampleAlloc": NVMLError(UNKNOWN)},
        {"nvmlGpmSampleGet": NVMLError(4)},
        {"nvmlGpmMetricsGet": NVMLError(UNKNOWN)},
    ],
    ids=["older card", "no memory", "no right", "no count"],
)
def test_a_driver_that_does_not_count_what_parts_of_a_card_do_leaves_that_unknown(answers: dict[str, Any]) -> None:
    now = [0.0]
    sampler = NvidiaSampler(Nvml(lambda: Gpm(**answers)), {"GPU-0": "GPU-0"}, lambda: now[0])
    for now[0] in (0.0, 10.0, 20.0):
        (sample,) = sampler.sample()
        assert (sample.sm_milli, sample.tensor_milli) == (None, None)


def test_a_process_has_a_use_for_as_long_as_the_drivers_sample_of_it_is_fresh() -> None:
    uses = [plain(pid=9, timeStamp=10, smUtil=20), plain(pid=9, timeStamp=20, smUtil=55)]
    now = [0.0]
    stub = StubNvml(
        ["GPU-0"],
        nvmlDeviceGetComputeRunningProcesses=[plain(pid=9, usedGpuMemory=512 * MIB), plain(pid=7, usedGpuMemory=None)],
        nvmlDeviceGetProcessUtilization=lambda handle, since: uses,
    )
    sampler = NvidiaSampler(Nvml(lambda: stub), {"GPU-0": "GPU-0"}, lambda: now[0])
    told = []
    for now[0] in (0.0, 1.0, 3.0):
        (sample,) = sampler.sample()
        told.append(sample.processes)
    assert told[0] == told[1] == (ProcessSample(9, 512, 550), ProcessSample(7, None, None))
    assert told[2] == (ProcessSample(9, 512, None), ProcessSample(7, None, None))


def test_a_card_is_opened_by_the_drivers_number_of_it() -> None:
    numbers = {"GPU-0": 3, "GPU-1": NVMLError(NOT_SUPPORTED), "GPU-2": 0}
    vendor = vendor_of(*numbers, nvmlDeviceGetMinorNumber=numbers.__getitem__)
    assert vendor.device_files() == {"GPU-0": Path("/dev/nvidia3"), "GPU-2": Path("/dev/nvidia0")}


def test_a_process_that_computes_and_draws_is_one_process() -> None:
    vendor = vendor_of(
        "GPU-0",
        nvmlDeviceGetComputeRunningProcesses=[plain(pid=9, usedGpuMemory=512 * MIB)],
        nvmlDeviceGetGraphicsRunningProcesses=[
            plain(pid=9, usedGpuMemory=512 * MIB),
            plain(pid=7, usedGpuMemory=64 * MIB),
        ],
    )
    assert vendor.sample()[0].processes == (ProcessSample(9, 512), ProcessSample(7, 64))


def test_a_lost_card_is_sampled_as_unknown() -> None:
    lost = NVMLError(15)
    stub = StubNvml(["GPU-0"], nvmlDeviceGetTemperature=50)
    vendor = NvidiaVendor(lambda: stub)
    assert vendor.sample()[0].temperature_c == 50
    stub.answers.update(
        dict.fromkeys(
            ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses"), lost
        )
    )
    assert vendor.sample() == (DeviceSample("GPU-0"),)


def mig(instances: list[str]) -> dict[str, Any]:
    def instance(card: str, slot: int) -> str:
        if slot >= len(instances):
            raise NVMLError(6)
        return instances[slot]

    return {
        "nvmlDeviceGetMigMode": lambda card: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
        "nvmlDeviceGetName": lambda it: "NVIDIA H200" + (" MIG 1g.18gb" if it.startswith("MIG") else ""),
        "nvmlDeviceGetMemoryInfo": lambda it: plain(total=(16_384 if it.startswith("MIG") else 143_771) * MIB, used=0),
    }


def test_a_card_that_is_cut_up_is_handed_out_by_its_instances() -> None:
    vendor = vendor_of("GPU-0", **mig(["MIG-a", "MIG-b"]))
    first, second = vendor.discover()
    assert (first.uuid, first.parent, first.instance, first.index) == ("MIG-a", "GPU-0", 0, 0)
    assert (second.model, second.memory_mib, second.instance) == ("H200-MIG-1g.18gb", 16_384, 1)
    assert first.health is DeviceHealth.OK
    assert vendor.environment([second]) == {"CUDA_VISIBLE_DEVICES": "MIG-b"}
    assert [sample.device for sample in vendor.sample()] == ["MIG-a", "MIG-b"]


def test_a_card_in_mig_mode_without_instances_is_shown_and_not_handed_out() -> None:
    (card,) = vendor_of("GPU-0", **mig([])).discover()
    assert card.health is DeviceHealth.BUSY_ELSEWHERE
    assert "MIG is on and nothing is cut out" in card.health_detail


@pytest.mark.parametrize(
    ("action", "health", "said"),
    [
        (0, DeviceHealth.OK, ""),
        (1, DeviceHealth.FAULTY, "wants it reset"),
        (2, DeviceHealth.FAULTY, "rebooted"),
        (4, DeviceHealth.BUSY_ELSEWHERE, "drained"),
    ],
)
def test_a_card_that_the_driver_wants_seen_to_is_not_handed_out(action: int, health: DeviceHealth, said: str) -> None:
    field = plain(nvmlReturn=0, value=plain(uiVal=action))
    (card,) = vendor_of("GPU-0", nvmlDeviceGetFieldValues=lambda handle, fields: [field]).discover()
    assert card.health is health
    assert said in card.health_detail


def test_a_card_whose_memory_cannot_be_mended_is_faulty() -> None:
    (card,) = vendor_of("GPU-0", nvmlDeviceGetRemappedRows=(0, 9, 0, 1)).discover()
    assert (card.health, card.health_detail) == (DeviceHealth.FAULTY, "a memory row could not be remapped")


def events_of(*answers: Any) -> NvidiaVendor:
    queue = list(answers)
    return vendor_of(
        "GPU-0",
        nvmlEventSetCreate="set",
        nvmlDeviceGetSupportedEventTypes=0xFF,
        nvmlDeviceRegisterEvents=None,
        nvmlEventSetWait_v2=lambda events, timeout_ms: queue.pop(0),
    )


@pytest.mark.parametrize(
    ("xid", "scope", "named"),
    [
        (13, FaultScope.TASK, "graphics engine exception"),
        (31, FaultScope.TASK, "page fault"),
        (43, FaultScope.TASK, "a program that had failed"),
        (94, FaultScope.TASK, "contained memory error"),
        (45, FaultScope.NOTE, "clearing up"),
        (63, FaultScope.NOTE, "row remapped"),
        (92, FaultScope.NOTE, "single-bit"),
        (48, FaultScope.DEVICE, "double-bit"),
        (54, FaultScope.PERSON, "auxiliary power"),
        (64, FaultScope.PERSON, "could not be remapped"),
        (79, FaultScope.DEVICE, "fallen off the bus"),
        (95, FaultScope.DEVICE, "uncontained"),
        (119, FaultScope.DEVICE, "does not answer"),
        (4711, FaultScope.DEVICE, "XID 4711"),
    ],
)
def test_an_xid_is_the_programs_or_the_cards_or_nobodys(xid: int, scope: FaultScope, named: str) -> None:
    stream = events_of(plain(eventType=8, eventData=xid, device="GPU-0")).watch()
    assert stream is not None
    (event,) = stream.wait(1.0)
    assert (event.device, event.scope) == ("GPU-0", scope)
    assert named in event.text


def test_silence_is_no_event_and_a_driver_that_gives_up_is_said_once() -> None:
    stream = events_of(NVMLError(TIMEOUT), plain(eventType=2, eventData=0, device="GPU-0"), NVMLError(UNKNOWN)).watch()
    assert stream is not None
    assert stream.wait(1.0) == ()
    assert stream.wait(1.0) == (HealthEvent("GPU-0", FaultScope.DEVICE, "double-bit memory error"),)
    with pytest.raises(UnavailableError, match="reports no more faults"):
        stream.wait(1.0)


def test_a_driver_without_events_is_not_listened_to() -> None:
    assert vendor_of("GPU-0").watch() is None
    assert vendor_of("GPU-0", nvmlEventSetCreate="set", nvmlDeviceGetSupportedEventTypes=0).watch() is None


def wired(bonds: dict[tuple[str, int], str]) -> dict[str, Any]:
    def state(card: str, link: int) -> int:
        if (card, link) not in bonds:
            raise NVMLError(NOT_SUPPORTED)
        return 1

    return {
        "nvmlDeviceGetPciInfo": lambda card: plain(busId=f"0000:{card[-1]}0:00.0".encode()),
        "nvmlDeviceGetNvLinkState": state,
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda card, link: 0,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda card, link: plain(busId=f"0000:{bonds[card, link][-1]}0:00.0"),
    }


def test_links_are_counted_by_pair_and_the_rest_goes_over_the_bus() -> None:
    vendor = vendor_of(
        "GPU-0", "GPU-1", "GPU-2",
        nvmlDeviceGetTopologyCommonAncestor=lambda one, other: 10 if "GPU-1" in (one, other) else 50,
        **wired({("GPU-0", 0): "GPU-1", ("GPU-0", 1): "GPU-1", ("GPU-0", 2): "GPU-2"}),
    )  # fmt: skip
    assert vendor.links() == (
        DeviceLink("GPU-0", "GPU-1", Link.NVLINK_DOUBLE),
        DeviceLink("GPU-0", "GPU-2", Link.NVLINK_SINGLE),
        DeviceLink("GPU-1", "GPU-2", Link.PCIE_SWITCH),
    )
    assert link_map(vendor.discover(), vendor.links()) == ""
    assert [device.switch for device in placed(vendor.discover(), vendor.links())] == [0, 1, 1]


def test_cards_that_are_counted_and_cannot_be_reached_are_told() -> None:
    def handle(index: int) -> str:
        if index == 1:
            raise NVMLError(15)
        return f"GPU-{index}"

    vendor = vendor_of("GPU-0", "GPU-1", "GPU-2", nvmlDeviceGetHandleByIndex=handle)
    assert [device.index for device in vendor.discover()] == [0, 2]
    assert next(fact for fact in vendor.facts() if fact.what == "cards").found == "1 of 3 cannot be reached: lost"


def test_where_the_bus_is_hidden_nearness_to_memory_tells_the_socket() -> None:
    def numa(card: str) -> int:
        return 0 if card in ("GPU-0", "GPU-1") else 1

    vendor = vendor_of("GPU-0", "GPU-1", "GPU-2", nvmlDeviceGetNumaNodeId=numa)
    assert [device.socket for device in placed(vendor.discover(), vendor.links())] == [0, 0, 1]
    hidden = vendor_of("GPU-0", "GPU-1")
    assert [link.link for link in hidden.links()] == [Link.CROSS_SOCKET]


@pytest.mark.parametrize(
    ("answers", "what", "found", "remedied"),
    [
        ({"nvmlSystemGetDriverVersion": "535.104.05"}, "swapping", "too old to move device memory", True),
        ({"nvmlSystemGetDriverVersion": "535.104.05"}, "driver", "535.104.05", False),
        ({"nvmlSystemGetDriverVersion": b"580.95.05"}, "driver", "580.95.05", False),
        ({}, "driver", "unknown version", False),
        ({"nvmlDeviceGetPersistenceMode": 0}, "persistence mode", "off for card 0", True),
        ({"nvmlDeviceGetPersistenceMode": 1}, "persistence mode", "on", False),
        ({}, "persistence mode", "unknown", False),
        ({"nvmlDeviceGetMigMode": [1, 1]}, "MIG", "on for card 0", False),
        ({"nvmlDeviceGetMigMode": [0, 1]}, "MIG", "to change for card 0", True),
        ({}, "MIG", "off", False),
        ({"nvmlDeviceGetComputeRunningProcesses": NVMLError(4)}, "use by each process", "not told", True),
        ({}, "use by each process", "told", False),
    ],
)
def test_the_facts_say_what_is_wrong_and_what_would_mend_it(
    answers: dict[str, Any], what: str, found: str, remedied: bool
) -> None:
    fact = next(each for each in vendor_of("GPU-0", **answers).facts() if each.what == what)
    assert found in fact.found
    assert bool(fact.remedy) == remedied


def test_memory_is_swapped_only_with_a_driver_and_bindings_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (vendor_of("GPU-0", nvmlSystemGetDriverVersion=version) for version in ("535.1", "580.1"))
    monkeypatch.setattr(facts, "_has_cuda_bindings", lambda: True)
    assert (old.swaps(), new.swaps()) == (False, True)
    monkeypatch.setattr(facts, "_has_cuda_bindings", lambda: False)
    assert not new.swaps()
    assert next(fact for fact in new.facts() if fact.what == "swapping").remedy == "pip install 'millpond[gpu]'"
