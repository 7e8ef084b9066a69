"""The bodies of the REST API about queues. Numbers of a queue count all queues below it too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.model.tenancy.cells import CellUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueModelShare:
    """What a queue is guaranteed and holds of cards of one model; numbers as those of the whole queue.

    Attributes:
        model: empty for all others than those that any guarantee names.
    """

    model: str
    promised_gpu_milli: int = 0
    gpu_milli: int = 0
    within_gpu_milli: int = 0
    borrowed_gpu_milli: int = 0
    lent_gpu_milli: int = 0
    free_gpu_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: what it is guaranteed, what it may not exceed, what it holds now, and whose that is.

    Attributes:
        parent: the queue above; empty for the root.
        takes_jobs: it has no queue below it.
        group: the group that owns it; empty where none does.
        weight: its part of what is left over, against the others below its parent.
        borrows: it may run beyond its guarantee on idle capacity.
        ordering, placement: who of its jobs, or of those of some kinds, is next, and where they go; empty: as in the
            queue above.
        guarantee_gpu_milli, guarantee_cpu_milli, guarantee_memory_mib: what it gets whenever it asks.
        guarantee_models: how much of ``guarantee_gpu_milli`` is of cards of single models.
        promised_gpu_milli: its guarantee or, if that is less, those of the queues below it together.
        limit_gpu_milli, limit_cpu_milli, limit_memory_mib, limit_jobs: the most that it may hold; null without a limit.
        priorities: classes that its jobs may have, by what it says itself; empty where it says nothing.
        minimum_run_s: how long its work runs before it may be asked to leave for others, in seconds.
        longest_dev_s: the longest time limit of its dev jobs, by what it says itself; null where it says nothing.
        limit_models: the most that it may hold of cards of each model that its own limit names, in milli.
        gpu_milli, cpu_milli, memory_mib: what it holds.
        models: the same of ``gpu_milli`` by models of cards.
        model_shares: whose the cards of each model are, where any guarantee names one; they add up to the next numbers.
        within_gpu_milli: what guarantees cover of the cards that it holds; null, as the next three, where no queue is
            guaranteed any card.
        borrowed_gpu_milli: the other cards that it holds.
        lent_gpu_milli: what others hold of its guarantee.
        free_gpu_milli: what it would get of its guarantee without anything having to leave.
        background_gpu_milli: what background work of the queue holds beside that.
        running: its jobs that hold something.
        waiting: its jobs that wait to start; not those that wait for other jobs or for data.
        waiting_gpu_milli: what these ask for.
    """

    name: str
    parent: str = ""
    takes_jobs: bool = True
    group: str = ""
    weight: float = 1.0
    borrows: bool = True
    ordering: str = ""
    placement: str = ""
    guarantee_gpu_milli: int = 0
    guarantee_cpu_milli: int = 0
    guarantee_memory_mib: int = 0
    guarantee_card_mib: int = 0
    guarantee_models: dict[str, int] = field(default_factory=dict)
    promised_gpu_milli: int = 0
    limit_gpu_milli: int | None = None
    limit_cpu_milli: int | None = None
    limit_memory_mib: int | None = None
    limit_card_mib: int | None = None
    limit_jobs: int | None = None
    limit_models: dict[str, int] = field(default_factory=dict)
    priorities: list[str] = field(default_factory=list)
    minimum_run_s: float = 0.0
    longest_dev_s: float | None = None
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    card_mib: int = 0
    models: dict[str, int] = field(default_factory=dict)
    model_shares: list[QueueModelShare] = field(default_factory=list)
    within_gpu_milli: int | None = None
    borrowed_gpu_milli: int | None = None
    lent_gpu_milli: int | None = None
    free_gpu_milli: int | None = None
    background_gpu_milli: int = 0
    running: int = 0
    waiting: int = 0
    waiting_gpu_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    """Queues, each behind the one above it."""

    queues: list[QueueInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUserInfo:
    """What the jobs of one user hold in a queue, and what they wait for there."""

    user: str
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    running: int = 0
    waiting: int = 0
    waiting_gpu_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBorrower:
    """A queue of others that has borrowed cards, or all those of groups that are not for the caller."""

    queue: str
    gpu_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaitingJob:
    """A job that waits, and why."""

    job: str
    name: str
    user: str
    gpu_milli: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDetailInfo:
    """One queue with those who use it.

    Attributes:
        users: most cards first.
        borrowers: where some of its guarantee is lent, who has borrowed; most cards first.
        largest: of its waiting jobs, the one that asks for most cards; null where none waits.
        cells: what became of the cells that it is owed; the largest first.
        settings: its fields as they are written in the configuration.
        version: how often it was defined or changed; 0 of one that came with its group. An edit can name it.
        changed_by, changed_at: who changed it last, empty for the configuration file, and when; null where it never
            was.
    """

    queue: QueueInfo
    settings: dict[str, Any] = field(default_factory=dict)
    version: int = 0
    changed_by: str = ""
    changed_at: float | None = None
    users: list[QueueUserInfo] = field(default_factory=list)
    borrowers: list[QueueBorrower] = field(default_factory=list)
    largest: QueueWaitingJob | None = None
    cells: list[CellUsage] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRoom:
    """What a queue may count on; numbers as those of ``QueueInfo``, null where they are there.

    Attributes:
        limit_gpu_milli: by its own limit.
    """

    promised_gpu_milli: int = 0
    limit_gpu_milli: int | None = None
    borrowed_gpu_milli: int | None = None
    lent_gpu_milli: int | None = None
    free_gpu_milli: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRoomChange:
    """A queue that an edit gives room to, or takes some from; ``before`` is null for a queue that it adds."""

    queue: str
    before: QueueRoom | None
    after: QueueRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEditInfo:
    """What an edit of a queue came to, or with ``dry_run`` would come to.

    Attributes:
        before, after: its fields as they are written in the configuration; null where there was or is no such queue.
        version: of the queue from now on.
        effects: what the edit means for what runs, a sentence each: nothing is ended, but it may become borrowed.
        rooms: every queue that has other room with the edit, each behind its parent; empty for one that is deleted.
    """

    queue: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    version: int
    effects: list[str]
    rooms: list[QueueRoomChange] = field(default_factory=list)
    dry_run: bool = False
