"""Why: the answer to every decision and to every job that waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a decision was taken, or why a job waits."""

    # decisions
    FITS = "fits"
    """It was next, and there was room."""
    BACKFILLED = "backfilled"
    """It runs in room that a job ahead of it cannot use yet."""
    RECLAIMED = "reclaimed"
    """It ran on borrowed room, and a queue asked for its guarantee."""
    PREEMPTED = "preempted"
    """A job of a higher class, or one that goes first under the ordering, needed the room."""
    STOP_REQUESTED = "stop-requested"
    """Somebody who may asked for its end."""
    SUSPEND_REQUESTED = "suspend-requested"
    """It was asked to leave its cards for a while."""
    RESUME_REQUESTED = "resume-requested"
    """It was asked to go on."""
    TIME_LIMIT = "time-limit"
    """It has run for as long as its job file allows."""
    GANG_BROKEN = "gang-broken"
    """Another task of its gang was lost or failed."""
    DEVICE_FAILED = "device-failed"
    """A device failed under it, or under another task of its gang."""
    NO_RETURN = "no-return"
    """It was to go on where it was suspended, and its node could not bring it back."""
    TURN_TAKEN = "turn-taken"
    """An over-subscribed card goes round in turns."""
    SHRUNK = "shrunk"
    """Tasks beyond its minimum were ended for others, or on request."""
    DRAINED = "drained"
    """A node it runs on is being emptied by those who look after it."""
    SCALED_TO_ZERO = "scaled-to-zero"
    """A service is not needed for now; also why it waits."""
    WINDOW_CLOSED = "window-closed"
    """The hours in which it may run are over; also why it waits."""
    CHEAPER_HOURS = "cheaper-hours"
    """It may start later, and waits for hours in which energy costs, or emits, less."""
    CAP_TRIED = "cap-tried"
    """Its cards are kept at a power cap for a while, to measure what that costs and saves."""
    CAP_CHOSEN = "cap-chosen"
    """Its cards are kept at the power cap of least energy per step within the slow-down that it allows."""
    CAP_LIFTED = "cap-lifted"
    """Its cards are kept at no power cap any more: it was too slow there, or could not be measured."""
    PREFETCHED = "prefetched"
    """Nodes are kept for it: what it needs is fetched there before it starts."""
    PREFETCH_OVER = "prefetch-over"
    """Nothing is to be fetched ahead for it any more: it has started elsewhere, or has ended."""
    LENDING_OVER = "lending-over"
    """It runs on borrowed room, and the hours in which its pool lends are over; also why it waits."""
    MIGRATED = "migrated"
    """It was asked to go on with other cards."""
    CONSOLIDATED = "consolidated"
    """It goes on with other cards, so that whole nodes come free; of one that starts: others were moved for it."""
    BALANCED = "balanced"
    """It goes on with another card, as its card was busy for long and the other is not."""
    SHARES = "shares-cards"
    """It shares the cards of another job, as that was measured to pay, or is expected to."""
    PACKED = "packed"
    """It leaves its cards, and is to share those of another job; of one that starts: others came together for it."""
    UNPACKED = "unpacked"
    """It leaves the cards of another job, as side by side both, or one of them, were measured to be too slow."""
    CARD_MEMORY_FULL = "card-memory-full"
    """It leaves the cards of another job, as both together were seen to take nearly all memory of a card."""
    OWN_CARDS_FREE = "own-cards-free"
    """It leaves the cards of another job, as there are cards for it alone."""
    REQUEUED = "requeued"
    """It was asked to go back to its queue, and to start anew."""
    RESERVATION = "reservation"
    """Its cards are kept for an advance reservation; of one that waits also: its own has not begun, or is full."""
    WORK_DONE = "work-done"
    """All tasks that keep its job running have ended."""
    SUSPENDED_TOO_LONG = "suspended-too-long"
    """It had left its cards for others, and there was no room on them again for long."""
    KEPT = "kept"
    """It has failed, and its place is kept for a look inside."""
    NOT_KEPT = "not-kept"
    """A task of it has failed, and its place is not kept, as the job goes on or is tried again."""

    # waiting
    NOT_CONSIDERED = "not-considered"
    """There is room for it since the last cycle, or it arrived after it."""
    RETRY_DELAYED = "retry-delayed"
    """Its last run failed, or its start was refused, and it is tried again after a delay."""
    DEPENDENCY = "dependency"
    """Jobs that it comes after have not ended."""
    ARRAY_LIMIT = "array-limit"
    """As many members of its array are under way as its job file allows at once."""
    WAITING_FOR_DATA = "waiting-for-data"
    """What it reads is being copied to a disk near its machine."""
    WAITING_FOR_IMAGE = "waiting-for-image"
    """The image that it runs in is being fetched."""
    NO_ROOM = "no-room"
    """No node, or not enough nodes, can take it now."""
    IMPOSSIBLE = "impossible"
    """The cluster could not take it even if it were empty."""
    QUEUE_LIMIT = "queue-limit"
    """Its queue, or one above, is at its limit."""
    USER_LIMIT = "user-limit"
    """Its user is at their limit."""
    GUARANTEE_OF_OTHERS = "guarantee-of-others"
    """Its queue may not borrow, and the job would exceed what it is guaranteed."""
    RESERVED = "reserved"
    """There is room, but it is reserved for a job ahead, or claimed for one for which work is leaving."""
    BEHIND = "behind"
    """The ordering is strict, and a job ahead finds no room; or it gives the cards to work that goes first."""
    HELD_BACK = "held-back"
    """There is room, but it is left for a while to the shorter work that is expected."""
    NEARER_CONTENTS = "nearer-contents"
    """There is room, but a node that holds what it needs should be free before that could be fetched elsewhere."""
    ROOM_BEING_MADE = "room-being-made"
    """Others are being ended or suspended for it."""
    NOT_ISOLATED = "not-isolated"
    """Nothing starts, as jobs could read each other's files and the server has several users."""
    DISK_FULL = "disk-full"
    """Nothing starts, as there is too little room on the server's disk."""
    NODES_OFF = "nodes-off"
    """It would fit on nodes that were switched off to save energy, or are on their way."""
    CARD_BEING_DIVIDED = "card-being-divided"
    """An idle card is being divided by its own hardware (MIG) into what it asks for."""
    NODES_CLOSED = "nodes-closed"
    """It would fit on nodes that are closed, or that close before it would end."""
    SUSPENDED = "suspended"
    """It was asked to pause."""
    VICTIMS_PROTECTED = "victims-protected"
    """It would have room if work below it could be ended, but that is protected (minimum run time, budget of
    preemptions, not preemptible, within the guarantee of its queue)."""


class Filter(StrEnum):
    """The first thing about a node that a request fails on."""

    UNSCHEDULABLE = "unschedulable"
    """It takes no work."""
    CLOSED = "closed"
    """It is cordoned, or off."""
    CLOSES_TOO_SOON = "closes-too-soon"
    """It will be closed before the job would end."""
    OTHER_POOL = "other-pool"
    """It belongs to another pool."""
    NOT_SELECTED = "not-selected"
    """It has not the labels that the job asks for."""
    MODEL_LIMIT = "model-limit"
    """It has cards of a model of which limits, or guarantees, leave the job too few."""
    KEPT_FOR_OTHERS = "kept-for-others"
    """What is free there is kept for other jobs."""
    CPU = "cpu"
    """Too few CPUs are free."""
    MEMORY = "memory"
    """Too little memory is free."""
    EXTRA_RESOURCE = "extra-resource"
    """Too little of an extra resource is free."""
    DEVICE_MODEL = "device-model"
    """It has no card of the models that the job asks for."""
    DEVICE_COUNT = "device-count"
    """It has too few cards."""
    DEVICE_UNUSABLE = "device-unusable"
    """Too many of its cards are faulty."""
    DEVICE_COMPUTE = "device-compute"
    """Too little of its cards is free."""
    DEVICE_MEMORY = "device-memory"
    """Too little memory of its cards is free."""
    FRAGMENTED = "fragmented"
    """Enough compute is free in sum, but in pieces."""
    FITS = "fits"
    """It can take a task."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The smallest change found that would start the job now, checked on the state.

    Attributes:
        change: what to change, for a person.
        field, value: the same for a program: a field of the job file and its new value.
    """

    change: str
    field: str
    value: str


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting job will start, in seconds on the scheduler's clock.

    Attributes:
        earliest_at, latest_at: the interval; latest is None when no bound can be given.
        basis: what the estimate rests on.
        likely_at: as likely before as behind the start; None when not known.
        unknown: why nothing can be said, and then the rest says nothing; empty when it can.
    """

    earliest_at: float
    latest_at: float | None
    basis: str
    likely_at: float | None = None
    unknown: str = ""


class DeadlineVerdict(StrEnum):
    """Whether a job should have ended by its deadline."""

    ACCEPT = "accept"
    """It should, even if what is foreseen comes late."""
    AT_RISK = "at-risk"
    """It may not, or nothing is known of its length or its start."""
    MISSED = "missed"
    """The deadline is past."""


@dataclass(frozen=True, slots=True)
class DeadlineOutlook:
    """What is foreseen of the end of a job that has a deadline, in seconds on the scheduler's clock.

    Attributes:
        deadline_at: when it should have ended.
        likely_end_at: as likely before as behind its end; None when not known.
        latest_end_at: it hardly ends later; None when no bound can be given.
        unknown: what is not known; empty when both can be said.
    """

    verdict: DeadlineVerdict
    deadline_at: float
    likely_end_at: float | None = None
    latest_end_at: float | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits (or: why it was decided upon), with the numbers behind it.

    Attributes:
        cause: one word for it.
        summary: one sentence with the numbers, for a person.
        numbers: the same numbers by name.
        nodes: how many nodes fail first on which filter, most frequent first.
        position: its place in the order of those that wait, from 1; None when it does not wait.
        remedy: what would help; None when none was found.
        start: when it should start; None when unknown.
        blocked_by: the job, queue or closed node in the way, when one is.
        opens_at: when its window, or the closed nodes in the way, are open again, in seconds; None: unknown, or none.
    """

    cause: Cause
    summary: str
    numbers: tuple[tuple[str, int], ...] = ()
    nodes: tuple[tuple[Filter, int], ...] = ()
    position: int | None = None
    remedy: Remedy | None = None
    start: StartEstimate | None = None
    blocked_by: str = ""
    opens_at: float | None = None
