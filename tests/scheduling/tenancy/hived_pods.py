"""HiveD's pods and groups on the allocator of cells: what its scheduler extender would answer, step by step.

Opportunistic pods use the physical view; what Millpond's selector decides there is replaced by HiveD's own order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.model.errors import InvalidInputError
from millpond.scheduling.tenancy.cells.allocator import CellAllocator
from millpond.scheduling.tenancy.cells.chains import Chain
from millpond.scheduling.tenancy.cells.requests import CellPlan, CellRequest

Place = tuple[str, tuple[int, ...]]
"""Chain and cards."""


def machine_of(chain: Chain, leaf: int) -> str:
    """The name of the machine of a card."""
    (number,) = chain.nodes_in(0, leaf)
    return chain.spec.nodes[number][0]


@dataclass
class Pod:
    name: str
    cluster: str
    priority: int
    lazy: bool
    pin: str
    model: str
    gpus: int
    group: str


@dataclass
class Group:
    """A gang: where its members are, who of them came, and at whose cost it will start."""

    sizes: list[int]
    priority: int
    places: list[Place]
    plan: CellPlan | None = None
    members: dict[str, int] = field(default_factory=dict)
    preempting: bool = False
    displaced: dict[str, dict] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    bind: Place | None = None
    victims: frozenset[str] = frozenset()


class HivedPods:
    """One scheduler."""

    def __init__(self, cells: CellAllocator, sizes: dict[str, list[int]]) -> None:
        self.cells, self.sizes = cells, sizes
        self.groups: dict[str, Group] = {}
        self.where: dict[str, Place] = {}
        self.pods: dict[str, Pod] = {}

    def schedule(self, pod: Pod, suggested: set[str] | None, *, preempts: bool = True) -> Answer:
        """Where a pod goes, or who has to leave first; an empty answer: it waits."""
        if pod.gpus not in self.sizes[pod.group]:
            raise InvalidInputError(f"no member with {pod.gpus} GPUs", "name it")
        if pod.priority > 1000:
            raise InvalidInputError(f"priority {pod.priority}", "use 1000 at most")
        group = self.groups.get(pod.group)
        if group is not None and group.preempting and not self._is_suggested(group, suggested):
            self._cancel(pod.group)
            group = None
        if group is None:
            group = self._plan(pod, suggested)
            if group is None:
                return Answer()
        victims = self._victims(pod.group, group)
        if victims:
            if preempts and not group.preempting:
                self._reserve(pod.group, group)
            return Answer(victims=frozenset(victims))
        return Answer(bind=group.places[self._next(group, pod.gpus)])

    def add(self, pod: Pod, suggested: set[str] | None) -> None:
        """Bind a pod to what was answered."""
        group = self.groups.get(pod.group) or self._plan(pod, suggested)
        assert group is not None
        if pod.group not in self.groups:
            self._reserve(pod.group, group)
        group.preempting = False
        number = self._next(group, pod.gpus)
        group.members[pod.name] = number
        self.where[pod.name], self.pods[pod.name] = group.places[number], pod

    def delete(self, pod: Pod) -> None:
        """A bound pod is gone; its group with the last one."""
        group = self.groups[pod.group]
        del group.members[pod.name], self.where[pod.name]
        if not group.members:
            self._leave(pod.group)

    def delete_unallocated(self, pod: Pod) -> None:
        """A pod that waits is gone, and with it the preemption for it."""
        if pod.group in self.groups and self.groups[pod.group].preempting:
            self._cancel(pod.group)

    def _plan(self, pod: Pod, suggested: set[str] | None) -> Group | None:
        sizes = sorted(self.sizes[pod.group])
        models = (pod.model,) if pod.model else ()
        if pod.priority < 0:
            return self._on_physical_view(pod, sizes, models, suggested)
        request = CellRequest(pod.group, (pod.cluster,), tuple(sizes), models, pod.pin, pod.priority)
        plan = self.cells.plan(request, self._allowed(suggested))
        if plan is None:
            return None
        return Group(sizes, pod.priority, [(place.chain, place.leaves) for place in plan.places], plan)

    def _on_physical_view(
        self, pod: Pod, sizes: list[int], models: tuple[str, ...], suggested: set[str] | None
    ) -> Group | None:
        """Away from guaranteed work, packed among itself."""
        for name, chain in self.cells.chains.items():
            if models and chain.spec.model not in models:
                continue
            nodes = range(len(chain.spec.nodes))
            held = [sum(leaf in chain.holders for leaf in chain.leaves(chain.node_level, node)) for node in nodes]
            left = {
                node: [leaf for leaf in chain.leaves(chain.node_level, node) if self._is_idle(chain, leaf)]
                for node in nodes
                if suggested is None or chain.spec.nodes[node][0] in suggested
            }
            order = sorted(left, key=lambda node: (-chain.visitors[chain.node_level][node], held[node]))
            places: list[Place] = []
            for gpus in sizes:
                node = next((each for each in order if len(left[each]) >= gpus), None)
                if node is None:
                    break
                places.append((name, tuple(left[node][:gpus])))
                left[node] = left[node][gpus:]
            if len(places) == len(sizes):
                return Group(sizes, pod.priority, places)
        return None

    def _is_idle(self, chain: Chain, leaf: int) -> bool:
        return leaf not in chain.holders and not chain.visitors[0][leaf] and not chain.gone[0][leaf]

    def _allowed(self, suggested: set[str] | None) -> dict[str, int] | None:
        if suggested is None:
            return None
        return {
            name: sum(1 << number for number, (node, _) in enumerate(chain.spec.nodes) if node in suggested)
            for name, chain in self.cells.chains.items()
        }

    def _is_suggested(self, group: Group, suggested: set[str] | None) -> bool:
        return suggested is None or all(
            machine_of(self.cells.chains[chain], leaves[0]) in suggested for chain, leaves in group.places
        )

    def _victims(self, name: str, group: Group) -> set[str]:
        """Bound pods on its cards."""
        cards = {(chain, leaf) for chain, leaves in group.places for leaf in leaves}
        return {
            pod
            for pod, (chain, leaves) in self.where.items()
            if self.pods[pod].group != name and any((chain, leaf) in cards for leaf in leaves)
        }

    def _reserve(self, name: str, group: Group) -> None:
        self.groups[name] = group
        if group.plan is None:
            for chain, leaves in group.places:
                self.cells.chains[chain].visit(leaves, 1)
            return
        group.preempting = True
        group.displaced = {owner: self.cells.demote(owner) for owner in group.plan.demoted}
        for place in group.plan.places:
            assert self.cells.hold(place.chain, place.leaves, place.use)

    def _leave(self, name: str) -> None:
        group = self.groups.pop(name)
        for chain, leaves in group.places:
            if not self.cells.release(chain, leaves, name):
                self.cells.chains[chain].visit(leaves, -1)

    def _cancel(self, name: str) -> None:
        group = self.groups[name]
        self._leave(name)
        for owner, uses in group.displaced.items():
            if owner in self.groups:
                assert self.cells.promote(owner, uses)

    def _next(self, group: Group, gpus: int) -> int:
        return next(
            number for number, size in enumerate(group.sizes) if size == gpus and number not in group.members.values()
        )
