"""Tasks go to other cards as they run: the real gate, helper and bindings on a pretended driver with two cards."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from local_bench import Bench, eventually

from fake_driver.driver import MIB, Action, Card, FakeDriver
from millpond.model.decisions import Grant, Migrate, Placement, Resume, Start, Suspend, SuspendMode
from millpond.model.events import Confirmed, Ended, NodeJoined, Refused
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.devices.fake import FakeVendor
from millpond.node.host import procfs
from millpond.node.host.machine import Machine
from millpond.node.sharing.gate_enforcer import GateEnforcer
from millpond.node.task.records import TaskFiles, TaskId, read_record

pytestmark = pytest.mark.end_to_end

TASK = TaskId("one", 1, 0)
CARD_MIB, SLICE_MIB, HELD_MIB = 4096, 1536, 256
INVALID_VALUE = 1
PROGRAM = f"""
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
cuda.cuCtxSetCurrent(context)
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t({HELD_MIB} << 20)) == 0
open("pid", "w").write(f"{{os.getpid()}}\\n")
time.sleep(600)
"""


class TwoCards(FakeVendor):
    """The vendor of a pretended driver's cards."""

    name = "nvidia"

    def __init__(self, driver: FakeDriver, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self._driver = driver

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        wanted = {device.uuid for device in devices}
        return self._driver.env(*[card for card in self._driver.cards if card.uuid in wanted])


@pytest.fixture
def cards(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> list[Card]:
    for name, value in fake_driver.env().items():
        monkeypatch.setenv(name, value)
    fake_driver.add_card(CARD_MIB)
    return fake_driver.cards


@pytest.fixture
def bench(bench: Bench, fake_driver: FakeDriver, cards: list[Card], _fake_driver_libraries: Path) -> Bench:
    devices = tuple(Device(card.uuid, card.index, "nvidia", "H200", CARD_MIB, remaps=True) for card in cards)
    node = Node("real", 8000, 8192, devices, swap_mib=CARD_MIB)
    bench.machine = Machine((node,), {"nvidia": TwoCards(fake_driver, (node,))})
    bench.holds = {"nvidia": [GateEnforcer(_fake_driver_libraries.parent, bench.state_dir / "cards")]}
    bench.restart()
    return bench


def placed(card: Card) -> Placement:
    return Placement(0, "worker", "real", (Grant(card.uuid, 250, 1000, SLICE_MIB),))


def running(bench: Bench, card: Card) -> int:
    """Job one on a slice of the card, and the number of its process."""
    bench.define("one", (sys.executable, "-c", PROGRAM))
    bench.apply(Start(bench.next_id(), "one", 1, Cause.FITS, (placed(card),)))
    (confirmed,) = bench.events(1)
    assert isinstance(confirmed, Confirmed), confirmed
    return bench.pid_in("pid")


def move(bench: Bench, card: Card) -> Migrate:
    return Migrate(bench.next_id(), "one", 1, Cause.MIGRATED, placed(card))


def devices_of(bench: Bench) -> tuple[list[str], tuple[str, ...]]:
    """Where the node counts the task, and what its record says."""
    record = read_record(TaskFiles.of(bench.state_dir, TASK))
    assert record is not None
    return [reading.device for reading in bench.engine.slice_readings()], record.devices


def test_a_task_goes_to_another_card_with_its_memory_and_every_later_engine_knows(
    bench: Bench, cards: list[Card], fake_driver: FakeDriver
) -> None:
    first, second = cards
    pid = running(bench, first)
    order = move(bench, second)
    bench.apply(order)
    (confirmed,) = bench.events(1)
    assert isinstance(confirmed, Confirmed), confirmed
    assert (fake_driver.bytes_of(pid, first), procfs.is_halted(pid)) == (0, False)
    assert fake_driver.bytes_of(pid, second) >= HELD_MIB * MIB
    assert devices_of(bench) == ([second.uuid], (second.uuid,))

    bench.restart()
    bench.engine.adopt([TASK], [order])  # whoever decided it had not heard of the answer
    (again,) = bench.events(1)
    assert isinstance(again, Confirmed), again
    assert devices_of(bench) == ([second.uuid], (second.uuid,))
    assert fake_driver.bytes_of(pid, second) >= HELD_MIB * MIB

    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))
    bench.apply(Resume(bench.next_id(), "one", 1, Cause.RESUME_REQUESTED, placed(first)))
    assert all(isinstance(event, Confirmed) for event in bench.events(2))
    assert fake_driver.bytes_of(pid, first) >= HELD_MIB * MIB
    assert devices_of(bench) == ([first.uuid], (first.uuid,))


def test_a_driver_that_refuses_the_map_leaves_the_task_where_it_was_and_is_not_counted_on_again(
    bench: Bench, cards: list[Card], fake_driver: FakeDriver
) -> None:
    first, second = cards
    pid = running(bench, first)
    fake_driver.plan("device map", Action.RETURN, INVALID_VALUE)
    bench.apply(move(bench, second))
    described, refused = sorted(bench.events(2), key=lambda event: type(event).__name__)
    assert isinstance(refused, Refused), refused
    assert "does not bring it back on another device (CUDA_ERROR_INVALID_VALUE)" in refused.reason
    assert isinstance(described, NodeJoined), described
    assert not any(device.remaps for device in described.node.devices)
    assert fake_driver.bytes_of(pid, first) >= HELD_MIB * MIB
    assert devices_of(bench) == ([first.uuid], (first.uuid,))
    assert not procfs.is_halted(pid)


def test_a_task_that_the_driver_loses_on_the_way_ends_as_one_whose_card_was_lost(
    bench: Bench, cards: list[Card], fake_driver: FakeDriver
) -> None:
    first, second = cards
    running(bench, first)
    fake_driver.plan("during restore", Action.FAIL_TARGET, 999)
    bench.apply(move(bench, second))
    refused, ended = sorted(bench.events(2), key=lambda event: type(event).__name__, reverse=True)
    assert isinstance(refused, Refused), refused
    assert isinstance(ended, Ended), ended
    assert ended.outcome is Outcome.DEVICE_LOST
    assert eventually(lambda: not list(bench.engine.slice_readings()))
