"""The body about the whole pool at a glance: what is free, what starts next, what is held and not used."""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.specs.api.jobs.reasons import StartInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoom:
    """The cards of one model.

    Attributes:
        cards: all of them.
        held_milli: what jobs hold of them.
        usable_milli: what could be handed out now: free parts of healthy cards of machines that are open.
        frozen_milli: what frozen jobs keep of that, as they hold its memory.
        whole: how many of them are free as a whole, and could be handed out.
        largest_block, block_node: the most whole free cards of one machine, and its name; 0 and empty: there are none.
        broken: cards that are faulty.
        elsewhere: cards that are well and that others use, so that they are not handed out.
        closed: healthy cards that take no new work, as they or their machines are closed.
    """

    model: str
    cards: int = 0
    held_milli: int = 0
    usable_milli: int = 0
    frozen_milli: int = 0
    whole: int = 0
    largest_block: int = 0
    block_node: str = ""
    broken: int = 0
    elsewhere: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextJob:
    """A job that waits near the head of the line.

    Attributes:
        position: its place among all that wait, from 1.
        reason: why it waits, in a sentence.
        start: when it should start; null where that is not known.
    """

    job: str
    name: str
    user: str
    queue: str
    gpus: str
    position: int
    reason: str
    start: StartInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolder:
    """A running job whose cards have not computed for a while.

    Attributes:
        gpu_milli: what it holds, of an elastic job too.
        since: when any of them was last seen computing, or when its run started; in seconds since 1970.
    """

    job: str
    name: str
    user: str
    queue: str
    gpus: str
    gpu_milli: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewInfo:
    """The pool at a glance.

    Attributes:
        at: as of when, in seconds since 1970.
        nodes, closed_nodes: machines, and those of them that take no new work.
        jobs: living jobs by state, of all users; each member of an array that the scheduler has counts as one.
        arrays: living arrays and sweeps among whose members some of these are; a list has each of them as one row.
        models: the cards by model, the most common first.
        next: jobs that the caller may see near the head of the line, the first first.
        idle: jobs that the caller may see, and that hold cards without use; those of most cards first.
        idle_after_s: so long none of their cards has computed.
    """

    at: float
    nodes: int
    closed_nodes: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    arrays: int = 0
    models: list[ModelRoom] = field(default_factory=list)
    next: list[NextJob] = field(default_factory=list)
    idle: list[IdleHolder] = field(default_factory=list)
    idle_after_s: float = 0.0
