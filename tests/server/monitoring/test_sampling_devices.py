"""The last minutes of each device: what is kept, what is too old, what a vendor that fails does to the others."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.fake import FakeVendor, Tenant
from millpond.node.devices.vendor import STALE_AFTER_S
from millpond.node.host.machine import describe_machine
from millpond.server.monitoring.telemetry import sampling
from millpond.server.monitoring.telemetry.sampling import KEPT, Telemetry


class Watched:
    """Two pretended cards, the first of them busy."""

    def __init__(self, cards: str = "2:V100-32GB") -> None:
        self.now = 1000.0
        machine = describe_machine(cards)
        vendor = machine.vendors["fake"]
        assert isinstance(vendor, FakeVendor)
        self.vendor = vendor
        self.vendor.tenants = lambda: [Tenant("FAKE-fake-1-0", 250, 8_000)]
        self.telemetry = Telemetry(machine, lambda: self.now)

    def look(self) -> None:
        self.telemetry.look(self.vendor)


def test_the_latest_sample_tells_how_much_a_device_computes() -> None:
    watched = Watched()
    assert watched.telemetry.use_milli(["FAKE-fake-1-0"]) == {}
    watched.look()
    assert watched.telemetry.use_milli(["FAKE-fake-1-0", "FAKE-fake-1-1", "none"]) == {
        "FAKE-fake-1-0": 250,
        "FAKE-fake-1-1": 0,
    }


def test_a_sample_that_is_too_old_says_nothing_about_now() -> None:
    watched = Watched()
    watched.look()
    watched.now += STALE_AFTER_S + 1
    assert watched.telemetry.latest("FAKE-fake-1-0") is None
    assert len(watched.telemetry.recent("FAKE-fake-1-0")) == 1


def test_the_latest_samples_of_all_are_gathered_anew_after_each_look_and_when_they_have_become_too_old() -> None:
    watched = Watched()
    watched.look()
    first = watched.telemetry.latest_samples()
    watched.now += STALE_AFTER_S
    assert watched.telemetry.latest_samples() is first
    assert first["FAKE-fake-1-0"].use_milli == 250
    watched.vendor.tenants = tuple
    watched.look()
    second = watched.telemetry.latest_samples()
    assert second["FAKE-fake-1-0"].use_milli == 0
    watched.now += STALE_AFTER_S + 1
    assert watched.telemetry.latest_samples() == {}


def test_only_the_last_minutes_are_kept_and_less_of_each_where_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = Watched()
    monkeypatch.setattr(sampling, "_KEPT_IN_ALL", 50)
    many = Watched()
    for _ in range(KEPT + 5):
        few.look()
        many.look()
    assert len(few.telemetry.recent("FAKE-fake-1-0")) == KEPT
    assert len(many.telemetry.recent("FAKE-fake-1-0")) == 25


def test_a_device_that_does_not_tell_is_left_out_and_one_that_came_later_is_ignored() -> None:
    watched = Watched()
    watched.vendor.sample = lambda: (DeviceSample("FAKE-fake-1-0"), DeviceSample("MIG-new", 100))  # type: ignore[method-assign]
    watched.look()
    assert watched.telemetry.use_milli(["FAKE-fake-1-0", "MIG-new"]) == {}


@pytest.mark.parametrize("odd", [math.nan, math.inf, "N/A"])
def test_a_figure_that_is_none_is_not_kept(odd: Any) -> None:
    watched = Watched()
    watched.vendor.sample = lambda: (DeviceSample("FAKE-fake-1-0", 250, power_w=odd, energy_j=odd),)  # type: ignore[method-assign]
    watched.look()
    (kept,) = watched.telemetry.recent("FAKE-fake-1-0")
    assert kept.sample == DeviceSample("FAKE-fake-1-0", 250)


def test_a_vendor_that_fails_is_said_once_and_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeVendor, "sample_every_s", 0.0)
    watched = Watched()
    answers = [OSError("odd"), OSError("odd"), None, OSError("odd")]
    asked, sample = threading.Event(), watched.vendor.sample

    def failing() -> tuple[DeviceSample, ...]:
        if not answers:
            asked.set()
            return ()
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return sample()

    watched.vendor.sample = failing  # type: ignore[method-assign]
    watched.telemetry.start()
    assert asked.wait(60.0)
    watched.telemetry.close()
    assert len(watched.telemetry.recent("FAKE-fake-1-0")) == 1
    assert [record.message for record in caplog.records].count("pretended devices cannot be sampled") == 2
