"""What a pod is to be given of the cards of its node: written on it by the server, carried out by the node's agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from millpond.engines.kubernetes.cluster.cluster_nodes import is_of_agent
from millpond.engines.kubernetes.cluster.objects import read_annotation
from millpond.model.decisions import Grant
from millpond.model.sharing import ShareClass

ORDER_ANNOTATION: Final = "millpond.io/grants"
WITHOUT_COMPUTE_MILLI: Final = 1
"""What a slice by memory alone asks the kubelet for, which knows amounts above zero only."""


class SliceOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The grants of one task, and how it is held to them.

    Attributes:
        evicts: a task that uses a card beyond its part is evicted.
        floor_milli: as in ``model.sharing.SliceRules``.
        swappable: nothing may come about that keeps its device memory from being moved to the host.
    """

    grants: tuple[Grant, ...]
    share_class: ShareClass = ShareClass.NORMAL
    evicts: bool = False
    floor_milli: int = 0
    swappable: bool = False

    @property
    def milli(self) -> int:
        """What its container asks the kubelet for, of thousandths of cards."""
        return milli_of(self.grants)

    def annotation(self) -> dict[str, str]:
        """As a pod carries it."""
        return {ORDER_ANNOTATION: msgspec.json.encode(self).decode()}

    @staticmethod
    def of(annotations: Mapping[str, str]) -> SliceOrder | None:
        """That of a pod; None of one that has none, or one that was tampered with."""
        return read_annotation(annotations, ORDER_ANNOTATION, SliceOrder)


def milli_of(grants: Iterable[Grant]) -> int:
    """What grants of cards of an agent ask the kubelet for."""
    return sum(max(grant.compute_milli, WITHOUT_COMPUTE_MILLI) for grant in grants)


def of_agent(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Those of cards that the node's agent gives out."""
    return tuple(grant for grant in grants if is_of_agent(grant.device))
