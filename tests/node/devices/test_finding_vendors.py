"""Vendors by entry points: ours, those of third parties, and broken ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from millpond.node.devices.discovery import GROUP, find_vendors
from millpond.node.devices.fake import FakeVendor
from millpond.node.host.machine import describe_machine


class LoneVendor(FakeVendor):
    """A third party's, with nothing on this machine."""

    name = "lone"

    def __init__(self) -> None:
        super().__init__(())


class HalfVendor:
    """Somebody forgot the rest."""

    name = "half"


class FailingVendor:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


def point(name: str, target: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{target}" if ":" not in target else target, GROUP)


def test_all_vendors_of_this_package_are_found_and_have_what_a_vendor_must_have() -> None:
    found = find_vendors()
    assert found.broken == {}
    assert "nvidia" in {vendor.name for vendor in found.vendors}


def test_a_broken_plugin_is_reported_and_the_others_are_used() -> None:
    found = find_vendors(
        [
            point("lone", "LoneVendor"),
            point("twin", "LoneVendor"),
            point("half", "HalfVendor"),
            point("failing", "FailingVendor"),
            point("gone", "nowhere_at_all:Vendor"),
        ]
    )
    assert [vendor.name for vendor in found.vendors] == ["lone"]
    assert found.broken.keys() == {"failing", "gone", "half", "twin"}
    assert "no licence" in found.broken["failing"]
    assert "ModuleNotFoundError" in found.broken["gone"]
    assert "lacks available, device_files, discover" in found.broken["half"]
    assert "another one called lone" in found.broken["twin"]


def test_a_server_says_which_plugins_it_left_out() -> None:
    machine = describe_machine(found=find_vendors([point("failing", "FailingVendor")]))
    assert machine.notes[0] == "no GPUs: no vendor of devices is installed"
    assert "the device plugin 'failing' is left out" in machine.notes[1]
