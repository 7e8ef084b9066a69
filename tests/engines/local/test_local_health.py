"""Devices that become busy, faulty, or well again while the server runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.engines.local.health import HealthWatch
from millpond.model.devices import Device, Health
from millpond.model.nodes import Node
from millpond.node.devices.vendor import NOTHING_OURS, Availability, Ours
from millpond.node.machine import Machine

CARD = Device("GPU-0", 0, "nvidia", "A100", 81920)


class OneCard:
    """A vendor whose only card is as the test says."""

    name = "nvidia"

    def __init__(self) -> None:
        self.card: Device | None = CARD

    def available(self) -> Availability:
        return Availability(True, "1 found")

    def discover(self, ours: Ours = NOTHING_OURS) -> tuple[Device, ...]:
        return () if self.card is None else (self.card,)

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        return {}


class Watched:
    """A node with one card, and what was reported of it."""

    def __init__(self) -> None:
        self.vendor = OneCard()
        self.reports: list[tuple[str, Health]] = []
        machine = Machine((Node("box", 1000, 1024, (CARD,)),), {"nvidia": self.vendor})
        self.watch = HealthWatch(
            machine,
            lambda: NOTHING_OURS,
            lambda node, device: self.reports.append((node, device.health)),
            lambda error: None,
        )

    def look(self, card: Device | None) -> list[tuple[str, Health]]:
        self.vendor.card = card
        self.reports.clear()
        self.watch.look()
        return list(self.reports)


BUSY = replace(CARD, health=Health.BUSY_ELSEWHERE, health_detail="used by process 7")


def test_a_card_is_busy_elsewhere_when_two_looks_in_a_row_find_it_so() -> None:
    watched = Watched()
    assert watched.look(BUSY) == []
    assert watched.look(BUSY) == [("box", Health.BUSY_ELSEWHERE)]
    assert watched.watch.nodes[0].devices[0].health_detail == "used by process 7"
    assert watched.look(CARD) == [("box", Health.OK)]


def test_a_stranger_seen_for_a_moment_is_no_news() -> None:
    watched = Watched()
    assert [watched.look(card) for card in (BUSY, CARD, BUSY, CARD)] == [[], [], [], []]


def test_a_card_that_vanishes_is_faulty_until_it_is_back() -> None:
    watched = Watched()
    assert watched.look(None) == [("box", Health.FAULTY)]
    assert watched.look(None) == []
    assert watched.look(CARD) == [("box", Health.OK)]
