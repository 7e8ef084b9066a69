"""A machine of the pool, and pools themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from millpond.model.hardware.card_layouts import DivisibleCard
from millpond.model.hardware.devices import Device
from millpond.model.hardware.node_selection import Labels
from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.sharing import ShareClass
from millpond.model.windows import Window

DEFAULT_POOL = "default"
ANY_CLUSTER = "any"
"""What a job says that runs in whichever cluster it starts in first."""
CLUSTER_LABEL = "millpond.io/cluster"
"""Of nodes, where one server drives several clusters: the name of theirs."""


class SharingPolicy(StrEnum):
    """What a pool does with one card."""

    EXCLUSIVE = "exclusive"
    """Whole cards only."""
    SLICED = "sliced"
    """Cards are cut; the sum of guarantees and the sum of limits stay within the card."""
    OVERCOMMITTED = "overcommitted"
    """Cards are cut; the sum of limits may exceed the card by the pool's factor."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A named set of nodes with one sharing policy.

    Attributes:
        limit_factor_milli: how far the sum of compute limits on one card may go (2000 = twice the card).
        suspends: running work may be asked to leave its cards without ending: before it would be ended for others,
            and so that equals share a card in turns.
        cpu_factor_milli: how far the sum of CPUs asked for on one node may go (1500 = one and a half times its CPUs).
        turn_s: how long a turn lasts where equals share a card; 0: they do not.
        memory_factor_milli: device memory of work on a card and of work that was swapped off it may add up to so much
            of the card's (2000 = twice); 0: to as much as the host memory set aside takes.
        longest_suspended_s: work that left for others and finds no room again for so long is ended and lined up anew.
        lending: when queues may borrow here beyond their guarantees; empty means at any hour.
        measured_growth: elastic gangs whose speed is measured grow by what that is worth, and give growth back to jobs
            that wait.
        consolidates: running work that saves itself on notice is moved so that whole nodes come free: for a job that
            finds no room although enough cards are free, and to be switched off.
        packs: jobs that find no room share the cards of others where both make steps fast enough, as was measured; not
            beside ``suspends``.
        balances: running work is moved off cards that are busy for long (``scheduling.migration.hot_spots``).
        longest_boot_s: a node that is switched on should have joined by then: those of a reservation are switched on so
            long before it begins.
        caps_w: by class of work, the power cap that its cards are kept at while work of it is on them.
    """

    name: str = DEFAULT_POOL
    sharing: SharingPolicy = SharingPolicy.SLICED
    limit_factor_milli: int = 1000
    suspends: bool = False
    cpu_factor_milli: int = 1000
    turn_s: float = 60.0
    memory_factor_milli: int = 0
    longest_suspended_s: float = 3_600.0
    lending: tuple[Window, ...] = ()
    measured_growth: bool = False
    consolidates: bool = False
    packs: bool = False
    balances: bool = False
    longest_boot_s: float = 900.0
    caps_w: tuple[tuple[ShareClass, float], ...] = ()

    def cpu_capacity_milli(self, node: Node) -> int:
        """CPUs that may be handed out on a node of this pool."""
        return node.cpu_milli * self.cpu_factor_milli // 1000

    @property
    def limit_capacity_milli(self) -> int:
        """Sum of compute limits that one card of this pool carries."""
        if self.sharing is SharingPolicy.OVERCOMMITTED:
            return CARD_MILLI * self.limit_factor_milli // 1000
        return CARD_MILLI


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: its place, its resources, its devices.

    Attributes:
        devices: any number of them; their order fixes the node's device indices.
        link_map: a name in ``topology.LINK_MAPS``; empty means by switch and socket.
        swap_mib: host memory that may hold the device memory of suspended work.
        extras: named extra resources as sorted (name, amount) pairs.
        labels: by which jobs may select it, sorted by key.
        keeps_cpu: suspended work keeps its CPUs there, as its engine cannot give them to others.
        divisible: those of its cards whose layout may change while the server runs.
        schedulable: false while its engine lets nothing new start there; what runs there goes on. Cordons
            are apart, see ``Cordon``.
        is_silent: its engine has not heard of it of late; it is not schedulable then. One that is silent alone, and not
            with all of its cluster, is lost if that lasts.
        rack_name, zone_name: its place; empty means the one unnamed rack or zone.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[Device, ...] = ()
    pool: str = DEFAULT_POOL
    rack_name: str = ""
    zone_name: str = ""
    link_map: str = ""
    swap_mib: int = 0
    extras: tuple[tuple[str, int], ...] = ()
    schedulable: bool = True
    unschedulable_reason: str = ""
    labels: Labels = ()
    keeps_cpu: bool = False
    divisible: tuple[DivisibleCard, ...] = ()
    is_silent: bool = False

    @property
    def cluster(self) -> str:
        """The one of several clusters that it is in; empty where there is one."""
        return next((value for key, value in self.labels if key == CLUSTER_LABEL), "")


@dataclass(frozen=True, slots=True)
class Cordon:
    """A span of time in which nothing new starts on a node, or on one of its cards.

    Attributes:
        begin, until: the span, in seconds; without an end it lasts until the node is opened.
        reason: as text.
        drain: preemptible work there is asked to leave when the span begins; all other work may go on to its end.
        planned: laid down beforehand, so that work known to run into it does not start there. A node has any number of
            planned closures and at most one other.
        by: who wanted it.
    """

    begin: float
    until: float | None = None
    reason: str = ""
    drain: bool = False
    planned: bool = False
    by: str = ""

    def covers(self, instant: float) -> bool:
        """Whether the node is closed at that instant."""
        return self.begin <= instant and not self.is_over(instant)

    def is_over(self, instant: float) -> bool:
        """Whether it has ended by that instant."""
        return self.until is not None and self.until <= instant


def amount_of_nodes(nodes: Sequence[Node], pools: Mapping[str, Pool]) -> Amount:
    """All that nodes have, whether or not it may be handed out now; cards by their models.

    Args:
        pools: by name; a pool that is not among them hands out each CPU once.
    """
    devices = [device for node in nodes for device in node.devices]
    models = Counter(device.model for device in devices)
    return Amount(
        CARD_MILLI * len(devices),
        sum(pools.get(node.pool, Pool(node.pool)).cpu_capacity_milli(node) for node in nodes),
        sum(node.memory_mib for node in nodes),
        tuple((model, CARD_MILLI * count) for model, count in sorted(models.items())),
        sum(device.memory_mib for device in devices),
    )
