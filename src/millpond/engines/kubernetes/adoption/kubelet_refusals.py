"""Nodes whose kubelet turned pods of others away (``OutOfcpu``, ``SysctlForbidden``, …), by who makes these pods.

An owner makes another pod at once, and the node looks as good as before. So what the same owner makes keeps off it for
a while, longer each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import NAME_FIELD
from millpond.model.amounts import seconds_text
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement

FIRST_S: Final = 10.0
LONGEST_S: Final = 600.0
"""The longest that pods keep off a node, and how long the number of refusals is remembered after that."""
LONGEST_WORDS: Final = 300
"""How many characters are kept of what a kubelet says."""


@dataclass(slots=True)
class _NodeRefusals:
    """How one node has refused the pods of one owner.

    Attributes:
        times: how often.
        for_s, until: for how long, and until when, these pods keep off it.
        why: what its kubelet said last.
    """

    times: int
    for_s: float
    until: float
    why: str


class KubeletRefusals:
    """Remembers which nodes turned away the pods of which owners. Lives on the engine's loop.

    Args:
        clock: seconds, from any instant on.

    Attributes:
        version: rises when pods may ask for other nodes than before (``requirements``).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_owner: dict[str, dict[str, _NodeRefusals]] = {}
        self._ends: set[tuple[str, str]] = set()
        self.version = 0

    def note(self, pod: ScheduledPod) -> None:
        """A pod is over; what counts is whether its kubelet turned it away and something makes another."""
        owner, status = pod.controller, pod.status
        if owner is None or not status.reason or status.phase != "Failed" or _has_run(pod):
            return
        nodes = self._by_owner.setdefault(owner.uid, {})
        before, now = nodes.get(pod.node), self._clock()
        if before is not None and now < before.until:
            return  # it was bound at the same time as the last one
        times = 1 if before is None else before.times + 1
        for_s = min(FIRST_S * 2 ** min(times - 1, 10), LONGEST_S)
        why = f"{status.reason}: {status.message}"[:LONGEST_WORDS]
        nodes[pod.node] = _NodeRefusals(times, for_s, now + for_s, why)
        self._ends.add((owner.uid, pod.node))
        self.version += 1

    def requirements(self, pods: Iterable[ScheduledPod]) -> Iterator[NodeRequirement]:
        """Off which nodes pods keep at this moment."""
        nodes = sorted({node for node, _ in self._barred(pods)})
        if nodes:
            yield NodeRequirement(NAME_FIELD, NodeOperator.NOT_IN, tuple(nodes))

    def text(self, pods: Iterable[ScheduledPod]) -> str:
        """The same for people; empty: off none."""
        barred = sorted(self._barred(pods), key=lambda each: each[1].until)
        if not barred:
            return ""
        node, last = barred[-1]
        others = f", as {len(barred) - 1} more did" if len(barred) > 1 else ""
        again = " again" if last.times > 1 else ""
        what = f"the kubelet of node {node} turned pods of its owner away{again} ({last.why}){others}"
        return f"{what}: the next goes there after {seconds_text(last.for_s)} at the earliest"

    def expire(self) -> None:
        """Let nodes be tried again, and forget what was long ago."""
        now = self._clock()
        over = {each for each in self._ends if self._by_owner[each[0]][each[1]].until <= now}
        self._ends -= over
        self.version += bool(over)
        for owner, nodes in list(self._by_owner.items()):
            kept = {node: last for node, last in nodes.items() if now < last.until + LONGEST_S}
            self._by_owner[owner] = kept
            if not kept:
                del self._by_owner[owner]

    def _barred(self, pods: Iterable[ScheduledPod]) -> list[tuple[str, _NodeRefusals]]:
        if not self._by_owner:
            return []
        owners = {pod.controller.uid for pod in pods if pod.controller is not None}
        now = self._clock()
        found = (each for owner in owners for each in self._by_owner.get(owner, {}).items())
        return [(node, last) for node, last in found if now < last.until]


def _has_run(pod: ScheduledPod) -> bool:
    """Whether any of its containers was started."""
    states = (each.state for each in pod.status.container_statuses)
    return any(state.running is not None or state.terminated is not None for state in states)
