"""What a cluster has of ``resource.k8s.io/v1``: cards, classes of devices, and claims with what they have.

It is a copy, kept by watching, and one ledger: a card that any claim has, whoever allocated it, is given to nobody
else. Where the cluster does not serve the API, or does not let it be looked at, all of it is empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from millpond.engines.kubernetes.claims.card_shares import slice_name
from millpond.engines.kubernetes.claims.claim_objects import (
    CLAIMS,
    CLASSES,
    SHARES,
    SLICES,
    ClaimObject,
    ClassObject,
    SliceObject,
)
from millpond.engines.kubernetes.claims.device_selectors import CardKind
from millpond.engines.kubernetes.claims.extended_resources import are_meant, classes_by_resource
from millpond.engines.kubernetes.claims.node_cards import DeviceName, DriverCard, NodeCards, cards_of, whole_pool
from millpond.engines.kubernetes.claims.taint_rules import TaintRules
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel, ErrorAnswerError
from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER, DriverCards
from millpond.engines.kubernetes.cluster.reflector import Reflector
from millpond.model.hardware.devices import Device

log = logging.getLogger(__name__)

_FORBIDDEN, _NOT_FOUND = 403, 404
PATIENCE_S: Final = 10.0
"""Kubernetes' controller is given so long to free the cards of a pod that is over."""
LOOK_EVERY_S: Final = 0.1
ANY_CLAIM: Final = ""


class ClaimBook:
    """All of it. Lives on the engine's loop.

    Args:
        node_changed: called with the name of a node whose cards have changed, or are had by others.

    Attributes:
        is_served: the cluster has the API, and lets this server look at it.
        marks: by the mark of nodes, the kinds of cards that these have.
        stands_for: the class that stands for each extended resource.
        shared: the cards of nodes whose agents give them out by claims, as far as these have said so.
    """

    def __init__(self, channel: ApiChannel, node_changed: Callable[[str], None]) -> None:
        self.is_served = False
        self.marks: dict[str, tuple[CardKind, ...]] = {}
        self.stands_for: dict[str, str] = {}
        self.shared: dict[str, Mapping[str, Device]] = {}
        self._node_changed = node_changed
        self._claim_changed: Callable[[str], None] = lambda claim: None
        self._slices = Reflector(channel, SLICES, self._slice_changed, self._slice_deleted)
        self._classes = Reflector(channel, CLASSES, self._class_changed, self._class_changed)
        self._claims = Reflector(channel, CLAIMS, self._note_claim, self._drop_claim)
        self._shares = Reflector(channel, SHARES, self._shares_changed, self._shares_changed)
        self._rules = TaintRules(channel, self._rules_changed)
        self._on_node: defaultdict[str, dict[str, SliceObject]] = defaultdict(dict)
        self._nodes: dict[str, NodeCards] = {}
        self._cards: dict[str, DriverCard] = {}
        self._node_of_pool: dict[str, str] = {}
        self._marked: Counter[str] = Counter()
        self._has: dict[str, frozenset[DeviceName]] = {}
        """By claim, the devices of the driver that it has."""
        self._holders: defaultdict[DeviceName, set[str]] = defaultdict(set)

    def when_changed(self, call: Callable[[str], None]) -> None:
        """Have a function called with each claim that changes, by its namespace and name; ``ANY_CLAIM``: all may."""
        self._claim_changed = call

    async def list_all(self) -> None:
        """Look at everything once, if there is anything.

        Raises:
            ErrorAnswerError: the cluster does not answer for now.
            httpx2.HTTPError: it does not answer at all.
        """
        try:
            for reflector in self._followed:
                await reflector.list_once()
            await self._rules.list_all()
        except ErrorAnswerError as error:
            if error.status_code not in (_FORBIDDEN, _NOT_FOUND):
                raise
            if error.status_code == _FORBIDDEN:
                log.warning("cards of %s are not seen: this server may not look at resource claims: %s", DRIVER, error)
            return
        self.is_served = True

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run from then on."""
        if not self.is_served:
            return []
        return [*(each.run() for each in self._followed), *self._rules.work()]

    @property
    def followed(self) -> Mapping[str, Reflector[Any]]:
        """What is to be known before cards are given out by claims, by its name; empty where none are."""
        if not self.is_served:
            return {}
        return {"resource claims": self._claims, "resource slices": self._slices, "device classes": self._classes}

    @property
    def _followed(self) -> tuple[Reflector[Any], ...]:
        return self._classes, self._claims, self._slices, self._shares

    def publishes(self, node: str) -> bool:
        """Whether the agent of a node serves claims: its kubelet removes what one publishes that does not."""
        return f"/{slice_name(node)}" in self._shares.objects

    def cards_on(self, node: str, held: Collection[str]) -> DriverCards | None:
        """The cards of a node; None: no driver publishes any.

        Args:
            held: UUIDs of what Millpond's own pods were given.
        """
        cards = self._nodes.get(node)
        return None if cards is None else replace(cards.given(self._holders, held), answers=self._answers(cards))

    def _answers(self, cards: NodeCards) -> tuple[str, ...]:
        """The extended resources for which classes stand that mean all cards of a node."""
        classes = {resource: self._classes.objects[f"/{name}"] for resource, name in self.stands_for.items()}
        return tuple(sorted(resource for resource, each in classes.items() if are_meant(each, cards.kinds)))

    def card(self, uuid: str) -> DriverCard | None:
        """A card by its UUID, as the core has it."""
        return self._cards.get(uuid)

    def holders(self, name: DeviceName) -> Collection[str]:
        """The claims that have a device, by their namespaces and names."""
        return self._holders.get(name, ())

    async def let_go(self, uuids: Iterable[str]) -> None:
        """Wait until no claim has cards of a task that is over, so that who comes next may have them; not for ever."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        names = [card.name for uuid in uuids if (card := self._cards.get(uuid)) is not None]
        while any(map(self.holders, names)) and loop.time() < give_up_at:
            await asyncio.sleep(LOOK_EVERY_S)

    def claim(self, namespace: str, name: str) -> ClaimObject | None:
        """A claim, as far as it was seen."""
        return self._claims.objects.get(f"{namespace}/{name}")

    def device_class(self, name: str) -> ClassObject | None:
        """A class of devices, as far as it was seen."""
        return self._classes.objects.get(f"/{name}")

    def written(self, claim: ClaimObject) -> None:
        """A claim as this server has just changed it; the watch tells it again."""
        self._claims.objects[claim.key] = claim
        self._note_claim(claim)

    # ---- what happens -------------------------------------------------------------------------------------------

    def _note_claim(self, claim: ClaimObject) -> None:
        allocation = claim.status.allocation
        results = () if allocation is None else allocation.devices.results
        self._have(
            claim.key,
            frozenset((each.pool, each.device) for each in results if each.driver == DRIVER and not each.admin_access),
        )
        self._claim_changed(claim.key)

    def _drop_claim(self, claim: ClaimObject) -> None:
        self._have(claim.key, frozenset())
        self._claim_changed(claim.key)

    def _have(self, claim: str, devices: frozenset[DeviceName]) -> None:
        before = self._has.pop(claim, frozenset())
        if devices:
            self._has[claim] = devices
        for name in before - devices:
            self._holders[name].discard(claim)
            if not self._holders[name]:
                del self._holders[name]
        for name in devices - before:
            self._holders[name].add(claim)
        for node in {self._node_of_pool.get(pool, "") for pool, _ in before | devices} - {""}:
            self._node_changed(node)

    def _class_changed(self, _: ClassObject) -> None:
        self.stands_for = classes_by_resource(self._classes.objects.values())
        for node in self._nodes:
            self._node_changed(node)
        self._claim_changed(ANY_CLAIM)

    def _slice_changed(self, changed: SliceObject) -> None:
        if node := changed.spec.node_name:  # others are of no machine alone
            self._on_node[node][changed.metadata.name] = changed
            self._recount(node)

    def _slice_deleted(self, gone: SliceObject) -> None:
        if node := gone.spec.node_name:
            self._on_node[node].pop(gone.metadata.name, None)
            self._recount(node)

    def _shares_changed(self, changed: SliceObject) -> None:
        self._node_changed(changed.spec.node_name)

    def _rules_changed(self) -> None:
        for node in list(self._on_node):
            self._recount(node)

    def _recount(self, node: str) -> None:
        pools: defaultdict[str, list[SliceObject]] = defaultdict(list)
        for each in self._on_node[node].values():
            pools[each.spec.pool.name].append(each)
        whole = {name: whole_pool(slices) for name, slices in pools.items()}
        if not all(whole.values()):
            return  # its driver publishes it anew: until it has done so, what was there counts
        before = self._nodes.pop(node, None)
        found = cards_of((part for slices in whole.values() for part in slices), self._rules.on)
        for card in () if before is None else before.cards:
            self._cards.pop(card.device.uuid, None)
        self._cards |= {card.device.uuid: card for card in found.cards}
        self._node_of_pool |= dict.fromkeys(pools, node)
        if found.parts:
            self._nodes[node] = found
        elif not pools:
            del self._on_node[node]
        if self._mark(before, found):
            self._claim_changed(ANY_CLAIM)
        self._node_changed(node)

    def _mark(self, before: NodeCards | None, found: NodeCards) -> bool:
        """Count the nodes of each mark; says whether others are there now, among which selectors choose."""
        marks = set(self.marks)
        for cards, change in ((before, -1), (found, 1)):
            if cards is not None and cards.cards:
                self._marked[cards.mark] += change
                self.marks[cards.mark] = cards.kinds
                if not self._marked[cards.mark]:
                    del self._marked[cards.mark], self.marks[cards.mark]
        return marks != self.marks.keys()
