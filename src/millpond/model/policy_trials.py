"""Policies of a whole cluster: those that hold, those that are asked for, and the last choice of a server by itself."""

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
class PolicyOverrides:
    """Policies that are asked for; what is left open stays as it is.

    Attributes:
        ordering, placement: names (``model.policies``); empty: left open.
        preempt: the ordering may end running work of the same class; None: left open.
        reserve: keep room for the first job that does not fit; None: left open.
    """

    ordering: str = ""
    placement: str = ""
    preempt: bool | None = None
    reserve: bool | None = None

    def over(self, present: ClusterPolicies) -> ClusterPolicies:
        """The policies with what is asked for."""
        return ClusterPolicies(
            self.ordering or present.ordering,
            self.placement or present.placement,
            present.preempt if self.preempt is None else self.preempt,
            present.reserve if self.reserve is None else self.reserve,
        )


UNCHANGED = PolicyOverrides()
"""Nothing is asked for."""


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
