"""Settings of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millpond.node.sandbox.sandbox import Sandbox
from millpond.node.sharing.agent_lock import AgentLock
from millpond.node.sharing.backend import SliceEnforcer
from millpond.node.task.limits import Limiter


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of an engine.

    Attributes:
        wake: called from the engine's threads whenever there are new events; must return at once.
        sandbox: what tasks are kept apart with; None where they are not.
        limiter: what keeps tasks to their amounts.
        holds: what keeps tasks to their slices, by vendor of the device.
        agent_lock: of this machine; taken if it has real devices.
        servers: identities of the servers whose tasks are its own; what it starts carries the first.
    """

    wake: Callable[[], None] = field(default=lambda: None)
    sandbox: Sandbox | None = None
    limiter: Limiter = Limiter()
    holds: Mapping[str, Sequence[SliceEnforcer]] = field(default_factory=dict)
    agent_lock: AgentLock = field(default_factory=AgentLock)
    servers: Sequence[str] = ("",)
