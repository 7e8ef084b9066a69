"""Nodes that are switched off while nobody needs them: the states of their power, and the rule of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millpond.model.hardware.nodes import Node


class NodePowerState(StrEnum):
    """Where a node is between on and off."""

    ON = "on"
    """It takes work."""
    DRAINING = "draining"
    """It is closed and about to be switched off; nothing runs there."""
    OFF = "off"
    """It was switched off. It stays known, so that work which would fit there wakes it."""
    BOOTING = "booting"
    """It was switched on, and is there once its engine reports it."""
    FAILED = "failed"
    """It was switched on and has not joined in time."""


NEXT_STATES: Final[dict[NodePowerState, frozenset[NodePowerState]]] = {
    NodePowerState.ON: frozenset({NodePowerState.DRAINING}),
    NodePowerState.DRAINING: frozenset({NodePowerState.OFF, NodePowerState.ON}),
    NodePowerState.OFF: frozenset({NodePowerState.BOOTING, NodePowerState.ON}),
    NodePowerState.BOOTING: frozenset({NodePowerState.FAILED}),
    NodePowerState.FAILED: frozenset({NodePowerState.BOOTING}),
}
"""What the server may say next of a node. Joining brings each node that was gone back to ``ON``."""


RETRY_S: Final = 900.0
"""After a node could not be switched, the same is tried again so much later, if it is still wanted."""


@dataclass(frozen=True, slots=True)
class NodePower:
    """The power of one node.

    Attributes:
        since: when it came into this state, in seconds.
        detail: why, where something went wrong.
        ready_at: when it should have joined; None unless it boots.
        is_gone: its engine has reported its loss since it was to be switched off.
        seen: how its engine has described it since then: cards and kubelet go down one after the other. That holds
            only if it stays on.
    """

    state: NodePowerState
    since: float
    detail: str = ""
    ready_at: float | None = None
    is_gone: bool = False
    seen: Node | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing may start there."""
        return self.state is not NodePowerState.ON

    @property
    def wake_rank(self) -> int:
        """In which order work counts on closed nodes: on those that boot, those that can, those that go down, and only
        then on those that have failed to boot."""
        match self.state:
            case NodePowerState.BOOTING:
                return 0
            case NodePowerState.FAILED:
                return 3
            case _:
                return 1 if self.is_gone else 2

    def failed_lately(self, now: float) -> bool:
        """Whether it was switched and that went wrong, so lately that it may still come about."""
        return bool(self.detail) and now - self.since < RETRY_S


@dataclass(frozen=True, slots=True)
class PowerSavingRule:
    """When nodes of a pool are switched off and on. Times in seconds.

    Attributes:
        idle_s: a node that was empty for so long may be switched off, beyond what was needed at any time in it.
        spare: so many empty nodes stay on, or are on their way.
        cover: this part of the rises of demand within ``boot_s`` is to be met by more spare nodes, as far as that can
            be forecast; None: never more than ``spare``.
        least_on_s, least_off_s: a node stays on, or off, for at least so long; work that waits wakes it at once.
        boot_s: how long a node should take from being switched on until it joins.
        longest_boot_s: one that has not joined by then has failed; one that is to go down and has not gone by then
            stays on.
    """

    idle_s: float = 1_800.0
    spare: int = 1
    least_on_s: float = 3_600.0
    least_off_s: float = 900.0
    boot_s: float = 300.0
    longest_boot_s: float = 900.0
    cover: float | None = None
