"""An engine divides pretended cards: what it reports, what runs there then, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_bench import Bench

from millpond.engines.local.engine import LocalEngine
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.events import CardLayoutChanged, Confirmed, Ended, NodeJoined, Refused
from millpond.model.hardware.card_layouts import LayoutChange, LayoutChangeState, LayoutRule
from millpond.model.hardware.devices import Device
from millpond.model.reasons import Cause
from millpond.node.devices.fake import VENDOR, VISIBLE_FAKES, FakeVendor, fake_nodes
from millpond.node.devices.fake_layouts import FakeDivider
from millpond.node.host.machine import fake_machine
from millpond.node.task.records import TaskId
from millpond.server.startup.local_engine import with_layouts

RULE = LayoutRule((("7g.141gb",), ("3g.71gb", "3g.71gb")), None, 600.0)
CARD, NODE = "FAKE-fake-1-0", "fake-1"


def look_again(bench: Bench) -> LocalEngine:
    """Another engine, on cards as they are described when a server starts."""
    bench.machine = with_layouts(fake_machine(fake_nodes("1:H200-141GB")), {"default": RULE}, bench.state_dir)
    vendor = bench.machine.vendors[VENDOR]
    assert isinstance(vendor, FakeVendor)
    divider = vendor.divider()
    assert isinstance(divider, FakeDivider)
    divider.pause = lambda seconds: None
    vendor.tenants = tuple
    return bench.restart()


@pytest.fixture
def divided(bench: Bench) -> Bench:
    look_again(bench)
    return bench


def divide(bench: Bench, *layout: str) -> tuple[CardLayoutChanged, tuple[Device, ...]]:
    """What the engine reports, and what it says that there is then; none if it says nothing of that."""
    bench.engine.divide(CARD, LayoutChange(LayoutChangeState.CHANGING, 0.0, NODE, layout, "j"))
    devices: tuple[Device, ...] = ()
    while True:
        (event,) = bench.events(1)
        if isinstance(event, NodeJoined):
            devices = event.node.devices
        if isinstance(event, CardLayoutChanged):
            return event, devices


def start(bench: Bench, job: str, device: str, *command: str) -> None:
    bench.define(job, command or ("sleep", bench.own_sleep))
    grant = Grant(device, 1000, 1000, 0)
    bench.apply(Start(bench.next_id(), job, 1, Cause.FITS, (Placement(0, "worker", NODE, (grant,)),)))


def test_what_a_card_was_divided_into_takes_tasks_that_see_it_and_a_later_engine_finds_them(divided: Bench) -> None:
    told, devices = divide(divided, "3g.71gb", "3g.71gb")
    assert (told.state, told.card, told.for_job, told.detail) == (LayoutChangeState.DONE, CARD, "j", "")
    assert [device.model for device in devices] == ["H200-MIG-3g.71gb"] * 2
    assert divided.engine.inventory().nodes[0].devices == devices
    script = f'test "${VISIBLE_FAKES}" = {devices[1].uuid} && exec sleep {divided.own_sleep}'
    start(divided, "seer", devices[1].uuid, "sh", "-c", script)
    assert isinstance(divided.events(1)[0], Confirmed)
    refused, _ = divide(divided, "7g.141gb")
    assert (refused.state, refused.detail) == (LayoutChangeState.FAILED, "a task runs on it")
    later = look_again(divided)
    assert later.inventory().nodes[0].devices == devices
    assert [task.job for task in later.inventory().tasks] == ["seer"]
    assert divided.alive() == 1
    later.adopt([TaskId("seer", 1, 0)], [])
    divided.stop("seer", 0.0)
    assert [type(event) for event in divided.events(2)] == [Confirmed, Ended]


def test_a_card_that_no_longer_is_what_a_start_expects_refuses_it(divided: Bench) -> None:
    _, (first, _) = divide(divided, "3g.71gb", "3g.71gb")
    divide(divided, "7g.141gb")
    start(divided, "late", first.uuid)
    (refused,) = divided.events(1)
    assert isinstance(refused, Refused)
    assert "is not on node fake-1" in refused.reason


def test_what_is_so_already_is_done_and_what_is_not_allowed_or_known_fails(divided: Bench) -> None:
    divide(divided, "7g.141gb")
    again, devices = divide(divided, "7g.141gb")
    assert (again.state, devices) == (LayoutChangeState.DONE, ())
    assert divide(divided, "1g.18gb")[0].detail == "the configuration allows this layout no longer"


def test_a_card_that_cannot_be_divided_is_described_as_it_is(divided: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _, devices = divide(divided, "7g.141gb")
    monkeypatch.setattr("millpond.node.devices.fake_layouts.write_json", _full)
    failed, described = divide(divided, "3g.71gb", "3g.71gb")
    assert failed.state is LayoutChangeState.FAILED
    assert "cannot be written down (No space left on device)" in failed.detail
    assert described == devices


def test_cards_that_no_rule_names_keep_the_range_of_their_caps_beside_divided_ones(bench: Bench) -> None:
    rule = LayoutRule(RULE.layouts, (0,), 600.0)
    plain = fake_machine(fake_nodes("1x2:H200-141GB"))
    (node,) = with_layouts(plain, {"default": rule}, bench.state_dir).nodes
    assert [device.cap_range_w for device in node.devices if device.index == 1] == [(350.0, 700.0)]


def _full(path: Path, value: object) -> None:
    raise OSError(28, "No space left on device")
