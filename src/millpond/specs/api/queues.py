"""The bodies of the REST API about queues."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: what it is promised, what it may not exceed, and what it holds now, with all queues below it.

    Attributes:
        parent: the queue above; empty for the root.
        takes_jobs: it has no queue below it.
        group: the group that owns it; empty where none does.
        weight: its part of what is left over, against the others below its parent.
        borrows: it may run beyond its guarantee on idle capacity.
        guarantee_gpu_milli: what it gets whenever it asks, in thousandths of a card.
        limit_gpu_milli, limit_cpu_milli, limit_memory_mib, limit_jobs: the most that it may hold; null without a limit.
        gpu_milli, cpu_milli, memory_mib: what it holds.
        running, waiting: its jobs; members of arrays count, arrays do not.
    """

    name: str
    parent: str = ""
    takes_jobs: bool = True
    group: str = ""
    weight: float = 1.0
    borrows: bool = True
    guarantee_gpu_milli: int = 0
    limit_gpu_milli: int | None = None
    limit_cpu_milli: int | None = None
    limit_memory_mib: int | None = None
    limit_jobs: int | None = None
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    """Queues, each behind the one above it."""

    queues: list[QueueInfo] = field(default_factory=list)
