"""Closed cards: by people, and by themselves where a card fails again soon after it came back.

A card that came back from a fault is on probation for ``PROBATION_S``. If it fails once more within that time it is
closed until a person opens it, and so is a card that no reset mends, at its first fault. A fault on a node that is
closed anyway counts for nothing: there somebody is at work.

Cordons are kept by the UUID of the card, so that they outlive its node's absence. Unlike those of nodes they begin at
once and have no end of their own. Beside them, a card is closed while its layout changes (``layout_changes``).
"""

from __future__ import annotations

from typing import Any, Final

from millpond.model.codec import from_plain, to_plain
from millpond.model.errors import ConflictError
from millpond.model.hardware.card_layouts import LayoutChange, LayoutChangeState, layout_text
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Cordon
from millpond.scheduling.ledger.cluster import Cluster

PROBATION_S: Final = 86_400.0
BY_HEALTH: Final = "device health"
"""In whose name a card is closed by itself."""


class CardCordons:
    """All single cards that are closed, those that have failed, and those on probation.

    Attributes:
        by_card: what keeps a card closed, by its UUID.
        failed: UUIDs of the cards of which some device is faulty, as last heard.
        probation: until when a card is watched, by its UUID.
        layout_changes: the last change of a card's layout, by its UUID.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.by_card: dict[str, Cordon] = {}
        self.failed: set[str] = set()
        self.probation: dict[str, float] = {}
        self.layout_changes: dict[str, LayoutChange] = {}

    def copy_from(self, other: CardCordons) -> None:
        """Have the same cordons, on a copy of the same cluster."""
        self.by_card, self.failed = dict(other.by_card), set(other.failed)
        self.probation = dict(other.probation)
        self.layout_changes = dict(other.layout_changes)

    def closure(self, card: str) -> Cordon | None:
        """What keeps a card closed, a cordon or a change of its layout; None when it is open."""
        change = self.layout_changes.get(card)
        if card in self.by_card or change is None or change.state is not LayoutChangeState.CHANGING:
            return self.by_card.get(card)
        return Cordon(change.since, reason=f"it is being divided into {layout_text(change.layout)}")

    def change_layout(self, card: str, change: LayoutChange) -> None:
        """A change of a card's layout begins, or is over."""
        self.layout_changes[card] = change
        self._cluster.set_card_closed(change.node, card, self.closure(card) is not None)

    def awaited_by(self, job: str) -> str:
        """The card that is being divided for a job, by its UUID; empty when none is."""
        changes = self.layout_changes.items()
        for card, each in changes:
            if each.for_job == job and each.state is LayoutChangeState.CHANGING:
                return card
        return ""

    def close(self, node: str, card: str, closure: Cordon) -> None:
        """Close a card of a node, or close it for another reason."""
        self.by_card[card] = closure
        self._cluster.set_card_closed(node, card, True)

    def open(self, node: str, card: str, now: float) -> None:
        """Let a card take work again; one that was closed for its faults is on probation.

        Raises:
            ConflictError: it is open, or being divided.
        """
        closure = self.by_card.pop(card, None)
        if closure is None and self.closure(card) is not None:
            raise ConflictError(f"card {card!r} is being divided", "it takes work once that is over")
        if closure is None:
            raise ConflictError(f"card {card!r} is open", "it takes work already, if its node does and it is healthy")
        if closure.by == BY_HEALTH:
            self.probation[card] = now + PROBATION_S
        self._cluster.set_card_closed(node, card, self.closure(card) is not None)

    def hear(self, node: str, device: Device, now: float, *, needs_person: bool = False) -> None:
        """Follow the health of a device as it is reported, and close its card if that is due.

        Args:
            needs_person: of one that is faulty: no reset mends it.
        """
        card = device.card
        if device.health is not DeviceHealth.FAULTY:
            if card in self.failed:
                self.failed.discard(card)
                self.probation[card] = now + PROBATION_S
            return
        is_news = card not in self.failed
        self.failed.add(card)
        if card in self.by_card or node in self._cluster.closed:
            return
        detail = device.health_detail or "it failed"
        if needs_person:
            self.close(node, card, Cordon(now, reason=f"{detail}; no reset mends that", by=BY_HEALTH))
        elif is_news and self.on_probation_until(card, now) is not None:
            self.close(node, card, Cordon(now, reason=f"{detail}; it had failed shortly before", by=BY_HEALTH))

    def on_probation_until(self, card: str, now: float) -> float | None:
        """Until when a card is watched; None when it is not."""
        until = self.probation.get(card, now)
        return until if until > now else None

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "closed": {card: to_plain(closure) for card, closure in self.by_card.items()},
            "failed": sorted(self.failed),
            "probation": dict(sorted(self.probation.items())),
            "layouts": {card: to_plain(change) for card, change in self.layout_changes.items()},
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned, before any node is added."""
        self.by_card = {card: from_plain(closure) for card, closure in plain["closed"].items()}
        self.failed, self.probation = set(plain["failed"]), dict(plain["probation"])
        self.layout_changes = {card: from_plain(change) for card, change in plain["layouts"].items()}
        self._cluster.closed_cards.update(
            card for card in (*self.by_card, *self.layout_changes) if self.closure(card) is not None
        )
