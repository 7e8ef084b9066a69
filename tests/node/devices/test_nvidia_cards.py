"""NVIDIA cards by a pretended NVML, so that this runs anywhere."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from millpond.model.hardware.devices import DeviceHealth
from millpond.node.devices.nvidia import NvidiaVendor, model_name
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host.machine import link_map as known_link_map
from millpond.node.host.machine import placed

GONE_PID = 2**22 + 1  # above the largest process id Linux gives out


@dataclass
class Card:
    uuid: str
    name: str = "NVIDIA A100-SXM4-80GB"
    pids: list[int] = field(default_factory=list)
    error: str = ""
    link_peer: int | None = None


class FakeNvml:
    """The calls that the vendor makes, with the names and error class of pynvml."""

    NVML_TOPOLOGY_MULTIPLE, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM = 20, 40, 50
    NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH, NVML_NVLINK_MAX_LINKS = 0, 2, 4

    class NVMLError(Exception):
        pass

    def __init__(self, cards: list[Card], init_error: str = "") -> None:
        self.cards = cards
        self.init_error = init_error

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error:
            raise self.NVMLError(self.init_error)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:  # noqa: N802
        if self.cards[index].error == "no handle":
            raise self.NVMLError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:  # noqa: N802
        return next(card for card in self.cards if card.uuid == uuid)

    def nvmlDeviceGetIndex(self, card: Card) -> int:  # noqa: N802
        return self.cards.index(card)

    def nvmlDeviceGetUUID(self, card: Card) -> str:  # noqa: N802
        return card.uuid

    def nvmlDeviceGetName(self, card: Card) -> bytes:  # noqa: N802
        return card.name.encode()

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> SimpleNamespace:  # noqa: N802
        if card.error:
            raise self.NVMLError(card.error)
        return SimpleNamespace(total=80 * 2**30)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in card.pids]

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> SimpleNamespace:  # noqa: N802
        if card.error:
            raise self.NVMLError(card.error)
        return SimpleNamespace(gpu=73, memory=20)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Card, other: Card) -> int:  # noqa: N802
        """Cards 0 and 1 share a switch, 0 to 3 a socket."""
        low, high = sorted((self.cards.index(one), self.cards.index(other)))
        if low // 2 == high // 2:
            return 10
        return 40 if low // 4 == high // 4 else 50

    def nvmlDeviceGetNvLinkState(self, card: Card, link: int) -> int:  # noqa: N802
        if card.link_peer is None:
            raise self.NVMLError("Not Supported")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, card: Card, link: int) -> int:  # noqa: N802
        assert card.link_peer is not None
        return card.link_peer


def vendor_of(*cards: Card) -> NvidiaVendor:
    return NvidiaVendor(lambda: FakeNvml(list(cards)))


def test_without_the_package_there_is_a_reason_and_no_exception() -> None:
    def load() -> None:
        raise ImportError("No module named 'pynvml'")

    vendor = NvidiaVendor(load)
    assert vendor.available()[:2] == (False, "the Python package nvidia-ml-py is not installed")
    assert vendor.discover() == ()


def test_without_a_driver_there_is_a_reason_and_no_exception() -> None:
    vendor = NvidiaVendor(lambda: FakeNvml([], init_error="NVML Shared Library Not Found"))
    assert vendor.available()[:2] == (False, "no NVIDIA driver (NVML Shared Library Not Found)")
    assert vendor.discover() == ()


def test_a_driver_without_cards_is_not_usable() -> None:
    assert vendor_of().available()[:2] == (False, "0 found by the NVIDIA driver")


def test_cards_are_found_with_model_memory_switch_and_socket() -> None:
    vendor = vendor_of(*(Card(f"GPU-{index}") for index in range(8)))
    devices = placed(vendor.discover(), vendor.links())
    assert [device.uuid for device in devices] == [f"GPU-{index}" for index in range(8)]
    assert {(device.vendor, device.model, device.memory_mib) for device in devices} == {("nvidia", "A100", 81920)}
    assert [device.switch for device in devices] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [device.socket for device in devices] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert all(device.health is DeviceHealth.OK and not device.fake for device in devices)


def test_a_card_with_a_foreign_process_is_busy_elsewhere_and_says_whose() -> None:
    busy, free = vendor_of(Card("GPU-0", pids=[os.getpid()]), Card("GPU-1")).discover()
    assert busy.health is DeviceHealth.BUSY_ELSEWHERE
    assert f"process {os.getpid()} (" in busy.health_detail
    assert free.health is DeviceHealth.OK


def test_our_own_processes_do_not_make_a_card_busy() -> None:
    (device,) = vendor_of(Card("GPU-0", pids=[os.getpid()])).discover(OwnProcesses(frozenset({os.getpid()})))
    assert device.health is DeviceHealth.OK


def test_a_process_we_cannot_see_is_ours_on_our_card_and_foreign_on_another() -> None:
    vendor = vendor_of(Card("GPU-0", pids=[GONE_PID]), Card("GPU-1", pids=[GONE_PID]))
    held, other = vendor.discover(OwnProcesses(devices=frozenset({"GPU-0"})))
    assert held.health is DeviceHealth.OK
    assert other.health is DeviceHealth.BUSY_ELSEWHERE


def test_a_card_that_answers_with_an_error_is_faulty_and_one_without_a_handle_is_missing() -> None:
    broken, healthy = vendor_of(
        Card("GPU-0", error="Unknown Error"), Card("x", error="no handle"), Card("GPU-2")
    ).discover()
    assert (broken.health, broken.health_detail) == (DeviceHealth.FAULTY, "the driver says: Unknown Error")
    assert (healthy.uuid, healthy.index, healthy.health) == ("GPU-2", 2, DeviceHealth.OK)


def test_a_program_sees_its_cards_by_uuid_in_the_order_given() -> None:
    vendor = vendor_of(Card("GPU-0"), Card("GPU-1"))
    first, second = vendor.discover()
    assert vendor.environment((second, first)) == {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"}


@pytest.mark.parametrize(
    ("name", "peer", "count", "link_map"),
    [
        ("NVIDIA H200", FakeNvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, 8, "nvswitch-8"),
        ("Tesla V100-SXM2-32GB", FakeNvml.NVML_NVLINK_DEVICE_TYPE_GPU, 8, "v100-cube-mesh"),
        ("Tesla V100-SXM2-32GB", FakeNvml.NVML_NVLINK_DEVICE_TYPE_GPU, 4, ""),
        ("NVIDIA A100-PCIE-40GB", None, 8, ""),
    ],
)
def test_known_boards_are_told_by_their_links(name: str, peer: int | None, count: int, link_map: str) -> None:
    vendor = vendor_of(*(Card(f"GPU-{index}", name, link_peer=peer) for index in range(count)))
    assert known_link_map(vendor.discover(), vendor.links()) == link_map


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA H200", "H200"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("Graphics Device", "Graphics-Device"),
    ],
)
def test_models_have_the_names_people_use(product: str, model: str) -> None:
    assert model_name(product) == model
