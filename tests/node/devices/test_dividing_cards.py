"""Cards that are divided otherwise while nobody uses them: through the real binding, and pretended ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver.driver import FakeDriver
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.node.devices.fake import FakeVendor, Tenant, fake_nodes
from millpond.node.devices.fake_layouts import FILE, TAKES_S, FakeDivider

HEADER = """
import json, pynvml
from millpond.model.errors import MillpondError
from millpond.node.devices.nvidia import NvidiaVendor
vendor = NvidiaVendor()
vendor.discover()
card = pynvml.nvmlDeviceGetHandleByIndex
uuid = pynvml.nvmlDeviceGetUUID(card(0))
pynvml.nvmlDeviceSetMigMode(card(0), 1)
def divide(*instances):
    try:
        vendor.divider().divide(uuid, instances)
        said = ""
    except MillpondError as error:
        said = str(error)
    print(json.dumps([said, [device.model for device in vendor.discover()]]))
def failing(name, code, at):
    real, calls = getattr(pynvml, name), []
    def call(*arguments):
        calls.append(name)
        if len(calls) == at:
            raise pynvml.NVMLError(code)
        return real(*arguments)
    setattr(pynvml, name, call)
    return lambda: setattr(pynvml, name, real)
"""


def said(driver: FakeDriver, source: str) -> list[list[object]]:
    """What calls of ``divide`` came to: the refusal, and the models that the vendor finds then."""
    if os.geteuid() != 0:
        pytest.skip("cards are divided by root")
    driver_env = {**os.environ, **driver.env()}
    done = subprocess.run(
        [sys.executable, "-c", HEADER + source], env=driver_env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def mig(*profiles: str) -> list[str]:
    return [f"H200-MIG-{profile}" for profile in profiles]


def test_a_card_gets_another_layout_and_what_was_there_is_gone(fake_driver: FakeDriver) -> None:
    told = said(
        fake_driver,
        """
pynvml.nvmlDeviceSetMigMode(card(0), 0)
print(json.dumps(vendor.divider().layout(uuid, ["7g.4gb"])))
pynvml.nvmlDeviceSetMigMode(card(0), 1)
made = vendor.divider().layout(uuid, ["2g.1gb", "3g.2gb"])
print(json.dumps([[device.model, device.memory_mib, device.parent == uuid] for device in made.devices]))
divide("3g.2gb", "1g.1gb")
divide("7g.4gb")
divide("1g.1gb", "1g.1gb", "2g.1gb")
divide("4g.2gb", "4g.2gb")
""",
    )
    assert told[0] is None  # not in MIG mode: it stays as it is
    assert told[1] == [["H200-MIG-3g.2gb", 2048, True], ["H200-MIG-2g.1gb", 1024, True]]
    assert told[2:5] == [
        ["", mig("3g.2gb", "1g.1gb")],
        ["", mig("7g.4gb")],
        ["", mig("1g.1gb", "1g.1gb", "2g.1gb")],
    ]
    assert "do not fit together" in str(told[5][0])
    assert told[5][1] == told[4][1]


def test_a_card_is_as_it_was_where_the_driver_refuses_half_way(fake_driver: FakeDriver) -> None:
    first, *refused, last = said(
        fake_driver,
        """
divide("3g.2gb", "3g.2gb")
for function, code, at in (
    ("nvmlDeviceCreateGpuInstanceWithPlacement", 999, 2),
    ("nvmlGpuInstanceCreateComputeInstance", 999, 2),
    ("nvmlGpuInstanceDestroy", 19, 2),
    ("nvmlComputeInstanceDestroy", 19, 2),
    ("nvmlDeviceGetGpuInstances", 999, 1),
):
    mend = failing(function, code, at)
    divide("1g.1gb", "1g.1gb", "1g.1gb")
    mend()
divide("1g.1gb", "1g.1gb", "1g.1gb")
""",
    )
    assert len(refused) == 5
    for cause, models in refused:
        assert "the driver refuses" in str(cause)
        assert models == first[1] == mig("3g.2gb", "3g.2gb")
    assert last == ["", mig("1g.1gb", "1g.1gb", "1g.1gb")]


def test_a_card_that_any_process_uses_is_not_touched(fake_driver: FakeDriver) -> None:
    told = said(
        fake_driver,
        """
divide("3g.2gb", "3g.2gb")
class Process:
    pid = 4711
pynvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [Process()]
destroyed = []
pynvml.nvmlComputeInstanceDestroy = pynvml.nvmlGpuInstanceDestroy = destroyed.append
divide("7g.4gb")
print(json.dumps([len(destroyed)]))
""",
    )
    assert "used by process 4711" in str(told[1][0])
    assert told[2] == [0]


def whole(memory_mib: int = 141 * 1024) -> Device:
    return Device("FAKE-a-0", 0, "fake", "H200", memory_mib, fake=True, remaps=True)


def pretended(file: Path, card: Device, *used: str) -> tuple[FakeDivider, list[float]]:
    pauses: list[float] = []
    return FakeDivider({card.uuid: card}, file, used.__contains__, pauses.append), pauses


def test_a_pretended_card_is_divided_after_a_while_and_stays_so_for_the_next_server(tmp_path: Path) -> None:
    card, file = whole(), tmp_path / FILE
    divider, pauses = pretended(file, card)
    (undivided,) = divider.devices[card.uuid]
    assert (undivided.health, undivided.model) == (DeviceHealth.BUSY_ELSEWHERE, "H200")
    divider.divide(card.uuid, ["3g.71gb", "2g.35gb", "1g.18gb"])
    assert pauses == [TAKES_S]
    made = divider.devices[card.uuid]
    assert [device.model for device in made] == mig("3g.71gb", "2g.35gb", "1g.18gb")
    assert [device.memory_mib for device in made] == [72_192, 36_096, 18_048]
    assert len({device.uuid for device in made}) == 3
    assert all((device.card, device.fake, device.remaps) == (card.uuid, True, False) for device in made)
    assert pretended(file, card)[0].devices[card.uuid] == made


def test_a_pretended_card_that_is_used_or_cannot_be_written_down_stays_as_it_is(tmp_path: Path) -> None:
    card, file = whole(), tmp_path / FILE
    pretended(file, card)[0].divide(card.uuid, ["7g.141gb"])
    (device,) = pretended(file, card)[0].devices[card.uuid]
    used, pauses = pretended(file, card, device.uuid)
    with pytest.raises(UnavailableError, match="it is used"):
        used.divide(card.uuid, ["3g.71gb"])
    assert (used.devices[card.uuid], pauses) == ((device,), [])
    nowhere, _ = pretended(tmp_path / "no folder" / FILE, card)
    with pytest.raises(UnavailableError, match="cannot be written down"):
        nowhere.divide(card.uuid, ["3g.71gb"])
    assert nowhere.devices[card.uuid][0].health is DeviceHealth.BUSY_ELSEWHERE
    with pytest.raises(InvalidInputError, match="not known"):
        pretended(file, whole(0))[0].layout(card.uuid, ["1g.18gb"])


def test_instances_of_pretended_cards_are_sampled_without_power_and_have_no_knobs(tmp_path: Path) -> None:
    nodes = fake_nodes("2:H200-141GB")
    vendor = FakeVendor(nodes)
    first, second = (device.uuid for device in nodes[0].devices)
    vendor.switch_mig_on([first], tmp_path / FILE)
    divider = vendor.divider()
    assert divider is not None
    assert divider.layout(second, ["7g.141gb"]) is None
    assert isinstance(divider, FakeDivider)
    divider.pause = lambda seconds: None
    divider.divide(first, ["7g.141gb"])
    part = vendor.devices_of(nodes[0])[0]
    vendor.tenants = lambda: [Tenant(part.uuid, 500, 1_000)]
    sample, other = vendor.sample()
    assert (sample.device, sample.use_milli, sample.memory_used_mib, sample.power_w) == (part.uuid, 500, 1_000, None)
    assert other.power_w is not None
    power = vendor.power()
    assert power is not None
    assert power.limits(part.uuid) is None
    with pytest.raises(UnavailableError, match="it is used"):
        divider.divide(first, ["3g.71gb"])
