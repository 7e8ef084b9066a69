"""Which cards of its machine a task can open, as the configuration and the machine have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millpond.model.hardware.devices import Device
from millpond.node.devices.fake import FakeVendor
from millpond.node.host import controllers
from millpond.node.host.controllers import Controllers, GroupMode
from millpond.node.host.machine import Machine, describe_machine
from millpond.server.startup import local_engine
from millpond.server.startup.local_engine import make_limiter

ZERO, RANDOM = (1, 5), (1, 9)
"""The numbers of files that stand for those of cards."""


class VendorWithFiles(FakeVendor):
    def device_files(self) -> dict[str, Path]:
        files = (Path("/dev/zero"), Path("/dev/urandom"), Path("/dev/none"), Path("/etc/passwd"))
        return dict(zip(self._devices, files, strict=False))


@pytest.fixture
def machine() -> Machine:
    """Four cards, two of them with files, between which work can be moved while it runs."""
    found = describe_machine("4:V100-32GB")
    return replace(found, vendors={"fake": VendorWithFiles(found.nodes)})


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Control groups of version 2 that can keep tasks off devices."""
    found = Controllers({"memory": (2, tmp_path)})
    monkeypatch.setattr(local_engine, "find_controllers", lambda mode: (found, ""))
    monkeypatch.setattr(local_engine, "open_for_groups", lambda found: None)
    monkeypatch.setattr(controllers, "trouble", lambda folder: "")


def devices(machine: Machine) -> tuple[Device, ...]:
    return machine.nodes[0].devices


@pytest.mark.usefixtures("kernel")
def test_a_task_opens_its_own_cards_alone_where_work_stays_on_its_cards(machine: Machine) -> None:
    limiter = make_limiter(GroupMode.AUTO, machine.without_remaps(), "auto")
    first, second, *_ = devices(machine)
    assert limiter.closed_to([]) == (ZERO, RANDOM)
    assert limiter.closed_to([first]) == (RANDOM,)
    instance = replace(second, uuid="MIG-1", parent=second.uuid)
    assert limiter.closed_to([first, instance]) == ()
    assert limiter.open_to_all == ""


@pytest.mark.usefixtures("kernel")
def test_a_task_without_cards_cannot_open_the_only_one_of_its_machine() -> None:
    found = describe_machine("1:V100-32GB").without_remaps()
    limiter = make_limiter(GroupMode.AUTO, replace(found, vendors={"fake": VendorWithFiles(found.nodes)}), "auto")
    assert limiter.closed_to([]) == (ZERO,)
    assert limiter.closed_to(found.nodes[0].devices) == ()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("cards", "closed"), [("auto", ()), ("all", ()), ("own", (ZERO, RANDOM))])
def test_where_work_may_move_from_card_to_card_the_configuration_decides(
    machine: Machine, cards: str, closed: tuple[tuple[int, int], ...]
) -> None:
    limiter = make_limiter(GroupMode.AUTO, machine, cards)
    assert (limiter.closed_to([]), limiter.open_to_all) == (closed, "")


def test_where_tasks_cannot_be_kept_off_cards_the_reason_is_told(machine: Machine) -> None:
    limiter = make_limiter(GroupMode.OFF, machine, "own")
    assert (limiter.closed_to([]), limiter.open_to_all) == ((), "switched off")
