"""Policies that a server has chosen by itself, and what it keeps of the choice, to take it back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterPolicies:
    """Policies of a whole cluster, as ``PolicyChanged`` has them."""

    ordering: str
    placement: str
    preempt: bool
    reserve: bool

    def __str__(self) -> str:
        more = "".join(f", {word}" for word, on in (("preempt", self.preempt), ("no reserve", not self.reserve)) if on)
        return f"ordering {self.ordering}, placement {self.placement}{more}"


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """The last choice of a server among policies.

    Attributes:
        since: when it was made.
        other: the policies of before; after a rollback, those that were given up.
        optimism: mean slowdown of the days before it, measured, over that of their replay.
        rolled_back: the policies of before are back.
    """

    since: float
    other: ClusterPolicies
    optimism: float = 1.0
    rolled_back: bool = False
