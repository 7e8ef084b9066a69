"""What pods ask for and nodes have, in Millpond's units."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from lightkube.utils.quantity import parse_quantity

from millpond.engines.kubernetes.cluster.objects import ContainerSpec, InitContainer, ResourceNeeds
from millpond.model.units import MIB


@dataclass(frozen=True, slots=True)
class ResourceAmounts:
    """Amounts of a node or of pods.

    Attributes:
        cards: by name of the extended resource, such as ``nvidia.com/gpu``.
        others: of other extended resources, such as ``rdma/hca``.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    cards: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)


NOTHING = ResourceAmounts()


def total(amounts: Iterable[ResourceAmounts]) -> ResourceAmounts:
    """All of them together."""
    amounts = [each for each in amounts if each is not NOTHING]
    if len(amounts) == 1:
        return amounts[0]
    cpu_milli, memory_mib, cards, others = 0, 0, dict[str, int](), dict[str, int]()
    for each in amounts:
        cpu_milli += each.cpu_milli
        memory_mib += each.memory_mib
        for name, count in each.cards.items():
            cards[name] = cards.get(name, 0) + count
        for name, count in each.others.items():
            others[name] = others.get(name, 0) + count
    return ResourceAmounts(cpu_milli, memory_mib, cards, others)


@lru_cache(maxsize=10_000)
def quantity(text: str) -> float:
    """A quantity as Kubernetes writes it (``100m``, ``32Gi``, ``1e3``) as a number; 0 for what is none."""
    try:
        return float(parse_quantity(text) or 0)
    except (ValueError, ArithmeticError):
        return 0.0


def amounts_in(quantities: Mapping[str, str], *, round_up: bool) -> ResourceAmounts:
    """What a map of quantities comes to, in whole units.

    Args:
        round_up: of what is asked for; what there is, is rounded down.
    """
    return _amounts_in(tuple(quantities.items()), round_up) if quantities else NOTHING


@lru_cache(maxsize=10_000)
def _amounts_in(quantities: Iterable[tuple[str, str]], round_up: bool) -> ResourceAmounts:
    """Of 100,000 pods few ask for other amounts than those before them."""
    whole = math.ceil if round_up else math.floor
    numbers = {name: quantity(text) for name, text in quantities}
    extended = {name: count for name, number in numbers.items() if "/" in name and (count := int(number))}
    cards = {name: count for name, count in extended.items() if name.endswith("/gpu")}
    return ResourceAmounts(
        whole(round(numbers.get("cpu", 0.0) * 1000, 3)),
        whole(round(numbers.get("memory", 0.0) / MIB, 6)),
        cards,
        {name: count for name, count in extended.items() if name not in cards},
    )


class AskingSpec(Protocol):
    """What is wanted of a pod, as far as amounts go."""

    @property
    def containers(self) -> Sequence[ContainerSpec]:
        """Those that run together."""

    @property
    def init_containers(self) -> Sequence[InitContainer]:
        """Those that start before them, one after the other."""

    @property
    def resources(self) -> ResourceNeeds | None:
        """What all of them may take together, where that is named."""

    @property
    def overhead(self) -> dict[str, str]:
        """What its runtime takes."""


def asked_by(spec: AskingSpec) -> ResourceAmounts:
    """What a pod takes of its node, as Kubernetes counts it.

    That is what all containers ask for with the sidecars that go on beside them, or one that runs before them with the
    sidecars that run already, if that is more. What the pod names as a whole stands instead of what these name. What
    its runtime takes comes on top.
    """
    beside = before = NOTHING
    for container in spec.init_containers:
        running = total((beside, amounts_in(container.resources.requests, round_up=True)))
        before = _larger(before, running)
        if container.is_sidecar:
            beside = running
    needed = total((*(amounts_in(each.resources.requests, round_up=True) for each in spec.containers), beside))
    if before is not NOTHING:
        needed = _larger(needed, before)
    if spec.resources is not None:
        named, whole = spec.resources.requests, amounts_in(spec.resources.requests, round_up=True)
        cpu_milli = whole.cpu_milli if "cpu" in named else needed.cpu_milli
        memory_mib = whole.memory_mib if "memory" in named else needed.memory_mib
        needed = replace(needed, cpu_milli=cpu_milli, memory_mib=memory_mib)
    return total((needed, amounts_in(spec.overhead, round_up=True)))


def _larger(one: ResourceAmounts, other: ResourceAmounts) -> ResourceAmounts:
    """The larger amount of each kind."""
    return ResourceAmounts(
        max(one.cpu_milli, other.cpu_milli),
        max(one.memory_mib, other.memory_mib),
        Counter(one.cards) | Counter(other.cards),
        Counter(one.others) | Counter(other.others),
    )
