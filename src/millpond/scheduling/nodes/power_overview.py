"""What the planner of power sees of a scheduler: which nodes are empty and on, and which of the others are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millpond.model.hardware.nodes import Node
from millpond.scheduling.nodes.power_planner import PowerCandidate
from millpond.scheduling.reserving.choosing import reserved_soon
from millpond.scheduling.state import State


@dataclass(frozen=True, slots=True)
class PowerOverview:
    """All nodes as they are now.

    Attributes:
        wanted: nodes that are off, or on their way, and are kept for a reservation that is near, or by which a waiting
            job would fit, each with the first such job, or with the reservation.
    """

    nodes: tuple[PowerCandidate, ...]
    wanted: Mapping[str, str]

    def demands(self, pools: Collection[str]) -> dict[str, int]:
        """By pool, the nodes that are in use, and those that waiting jobs need beside them."""
        needed = Counter(node.pool for node in self.nodes if not node.is_empty or node.name in self.wanted)
        return {pool: needed[pool] for pool in pools}


def candidates(state: State) -> tuple[PowerCandidate, ...]:
    """The nodes, in order of joining. What is kept for a reservation that is near counts as in use."""
    kept = reserved_soon(state)
    used = {
        held.node
        for record in state.running.values()
        for task in record.tasks
        for held in (task.holding, task.vacating)
        if held is not None
    }
    cordons, closed = state.cordons, state.cluster.closed

    def takes_work(node: Node) -> bool:
        return node.schedulable and node.name not in closed and cordons.next_of(node.name, state.now) is None

    return tuple(
        PowerCandidate(
            node.name,
            node.pool,
            index not in used and node.name not in kept,
            takes_work(node),
            cordons.power.get(node.name),
        )
        for index, node in enumerate(state.cluster.nodes)
        if node is not None
    )
