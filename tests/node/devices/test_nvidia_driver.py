"""NVIDIA cards through the real binding, on a driver that is pretended in C: each test in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from fake_driver.driver import MIB, Action, FakeDriver, Use
from fake_driver.program import Program

NOT_SUPPORTED = 3
UNSUPPORTED = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetSupportedEventTypes",
)
PROLOGUE = """\
import json, sys
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.vendor import OwnProcesses
vendor = NvidiaVendor()
def tell(value):
    print(json.dumps(value), flush=True)
"""


def asked(driver: FakeDriver, questions: str) -> list[Any]:
    """What the questions tell, one after the other."""
    run = subprocess.run(
        [sys.executable, "-c", PROLOGUE + questions],
        env={**os.environ, **driver.env()},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_cards_are_found_with_their_switches_sockets_and_figures(fake_driver: FakeDriver) -> None:
    [first] = fake_driver.cards
    second = fake_driver.add_card(8192, "NVIDIA A100-SXM4-80GB")
    fake_driver.set_card(second, switch=1, socket=1, temperature_c=71, power_mw=123_400, utilization_percent=37)
    fake_driver.set_driver_name("580.95.05")
    found, samples, places, facts, map_name = asked(
        fake_driver,
        """
from millpond.node.host.machine import link_map, placed
devices = vendor.discover()
tell([[d.uuid, d.index, d.model, d.memory_mib, d.health] for d in devices])
tell([[s.use_milli, s.memory_used_mib, s.power_w, s.temperature_c, s.clock_mhz] for s in vendor.sample()])
tell([[d.switch, d.socket] for d in placed(devices, vendor.links())])
tell({fact.what: fact.found for fact in vendor.facts()})
tell(link_map(devices, vendor.links()))
""",
    )
    assert found == [[first.uuid, 0, "H200", 4096, "ok"], [second.uuid, 1, "A100", 8192, "ok"]]
    assert samples[1] == [370, 0, 123.4, 71, 1980]
    assert places == [[0, 0], [1, 1]]
    assert facts["driver"] == "580.95.05"
    assert map_name == ""


def test_where_cards_are_on_the_bus_is_told_as_the_kernel_writes_it(fake_driver: FakeDriver) -> None:
    [card] = fake_driver.cards
    [places] = asked(
        fake_driver,
        """
from millpond.node.host.device_memory import pci_address
tell({uuid: pci_address(place) for uuid, place in vendor.pci_addresses().items()})
""",
    )
    assert places == {card.uuid: "0000:01:00.0"}


def test_a_program_that_draws_on_a_card_is_seen_and_counted(fake_driver: FakeDriver) -> None:
    with Program(fake_driver.env()) as computes, Program(fake_driver.env()) as draws:
        for program in (computes, draws):
            assert program("start") == [0]
            assert program("alloc", 64 * MIB)[0] == 0
        fake_driver.mark(draws.pid, Use.GRAPHICS)
        [rows] = asked(fake_driver, "tell([[p.pid, p.memory_mib] for p in vendor.sample()[0].processes])")
    assert rows == [[computes.pid, 64], [draws.pid, 64]]


def test_a_program_on_a_card_is_seen_and_counted(fake_driver: FakeDriver) -> None:
    with Program(fake_driver.env()) as program:
        assert program("start") == [0]
        assert program("alloc", 64 * 2**20)[0] == 0
        rows, strange, ours = asked(
            fake_driver,
            f"""
tell([[p.pid, p.memory_mib] for p in vendor.sample()[0].processes])
tell([[d.health, d.health_detail] for d in vendor.discover()])
tell([d.health for d in vendor.discover(OwnProcesses(frozenset([{program.pid}])))])
""",
        )
    ((pid, memory_mib),) = rows
    assert pid == program.pid
    assert memory_mib >= 64
    assert strange[0][0] == "busy-elsewhere"
    assert f"process {program.pid} (" in strange[0][1]
    assert ours == ["ok"]


def test_any_call_may_be_unsupported(fake_driver: FakeDriver) -> None:
    for call in UNSUPPORTED:
        fake_driver.plan(call, Action.RETURN, NOT_SUPPORTED)
    health, sampled, links, stream, facts = asked(
        fake_driver,
        """
tell([d.health for d in vendor.discover()])
tell([[s.use_milli, s.power_w, s.energy_j, s.temperature_c, s.processes] for s in vendor.sample()])
tell([link.link for link in vendor.links()])
tell(vendor.watch())
tell(len(vendor.facts()))
""",
    )
    assert (health, sampled, stream, facts) == (["ok"], [[None] * 5], None, 6)
    assert links == []


def test_a_card_that_is_lost_is_no_longer_found_and_told_of_as_unknown(fake_driver: FakeDriver) -> None:
    fake_driver.add_card(4096)
    script = """
vendor.sample()
tell("ready")
sys.stdin.readline()
tell([d.index for d in vendor.discover() if d.health == "ok"])
tell([[s.use_milli, s.temperature_c] for s in vendor.sample()])
"""
    child = subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + script],
        env={**os.environ, **fake_driver.env()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline()) == "ready"
    fake_driver.set_card(fake_driver.cards[0], lost=1)
    told, _ = child.communicate("go\n", timeout=180)
    well, samples = [json.loads(line) for line in told.splitlines()]
    assert well == [1]
    assert [sample for sample in samples if sample != [None, None]] == [samples[-1]]


def test_xids_are_heard_as_they_come_also_of_a_card_that_is_lost(fake_driver: FakeDriver) -> None:
    script = """
stream = vendor.watch()
tell("listening")
for _ in range(2):
    sys.stdin.readline()
    tell([[e.device, e.scope, e.text] for e in stream.wait(60.0)])
tell(len(stream.wait(0.01)))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + script],
        env={**os.environ, **fake_driver.env()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert json.loads(child.stdout.readline()) == "listening"
    [card] = fake_driver.cards
    heard = []
    for xid, lost in ((31, 0), (79, 1)):
        fake_driver.set_card(card, lost=lost)
        fake_driver.inject_xid(card, xid)
        print("go", file=child.stdin, flush=True)
        heard += json.loads(child.stdout.readline())
    told, _ = child.communicate(timeout=180)
    assert [[device, scope] for device, scope, _ in heard] == [[card.uuid, "task"], [card.uuid, "device"]]
    assert "fallen off the bus" in heard[1][2]
    assert json.loads(told) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the power of a card is set by root")
def test_a_cap_and_a_clock_are_set_and_put_back(fake_driver: FakeDriver) -> None:
    [card] = fake_driver.cards
    limits, refused = asked(
        fake_driver,
        f"""
knobs = vendor.power()
limits = knobs.limits("{card.uuid}")
tell([limits.cap_w, limits.least_w, limits.most_w, limits.most_mhz])
knobs.cap("{card.uuid}", 450.0)
knobs.clock("{card.uuid}", 1200)
try:
    knobs.cap("{card.uuid}", 5.0)
except Exception as error:
    tell(str(error))
""",
    )
    assert limits == [700.0, 200.0, 700.0, 1980]
    assert "does not let" in refused
    assert fake_driver.number_of(card, "power_limit_mw") == 450_000
    assert fake_driver.number_of(card, "locked_maximum_mhz") == 1200
    asked(fake_driver, f'knobs = vendor.power()\nknobs.cap("{card.uuid}", 700.0)\nknobs.clock("{card.uuid}", None)')
    assert fake_driver.number_of(card, "power_limit_mw") == 700_000
    assert fake_driver.number_of(card, "locked_maximum_mhz") == 0


def test_instances_of_a_card_in_mig_mode_are_its_devices(fake_driver: FakeDriver) -> None:
    if os.geteuid() != 0:
        pytest.skip("the mode of a card is set by root")
    before, after = asked(
        fake_driver,
        """
import pynvml
vendor.discover()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetMigMode(card, 1)
tell([[d.health, d.parent] for d in vendor.discover()])
profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE)
for _ in range(2):
    instance = pynvml.nvmlDeviceCreateGpuInstance(card, profile.id)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
tell([[d.uuid[:4], d.parent, d.instance, d.health] for d in vendor.discover()])
""",
    )
    [card] = fake_driver.cards
    assert before == [["busy-elsewhere", ""]]
    assert after == [["MIG-", card.uuid, 0, "ok"], ["MIG-", card.uuid, 1, "ok"]]
