"""What happened: everything that reaches the scheduler. The same list of events always gives the same decisions.

``at`` is the instant in seconds on the clock of the world that reports it; it never runs backwards within one log.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.confinement import Confinement
from millpond.model.contents import Content
from millpond.model.energy import RateMeasure
from millpond.model.hardware.card_layouts import LayoutChangeState
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.hardware.nodes import Cordon, Node, Pool
from millpond.model.policy_trials import PolicyTrial
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.model.task_spacing import SpacingRule
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Job, Priority

ALL_TASKS = -1


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    at: float


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """``decide(at)`` was called: kept in the log so that a replay decides at the same instants."""


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    """From now on other policies decide; what runs goes on, who waits is lined up anew.

    Attributes:
        ordering, placement: by name, as in ``scheduling.settings``.
        preempt: the ordering may end running work of the same class.
        reserve: room is kept for the first job that does not fit.
        trial: what the server notes of a choice of its own; None: an admin chose.
        why: of such a choice, in words.
    """

    ordering: str
    placement: str
    preempt: bool
    reserve: bool
    trial: PolicyTrial | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class UsageHalfLifeChanged(Event):
    """From now on past usage counts half after another time; what the shares are at that instant stays."""

    half_life_s: float


@dataclass(frozen=True, slots=True)
class PoolChanged(Event):
    """A pool was defined or redefined."""

    pool: Pool


@dataclass(frozen=True, slots=True)
class QueueChanged(Event):
    """A queue was defined or redefined."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved(Event):
    """A queue is gone that no job uses and no queue is below."""

    queue: str


@dataclass(frozen=True, slots=True)
class LimitChanged(Event):
    """A user or a queue may hold more or less than before; what runs already runs on."""

    limit: Limit


@dataclass(frozen=True, slots=True)
class NodeJoined(Event):
    """A machine is there, or its description changed (same name): devices are matched by UUID."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost(Event):
    """A machine is gone with all that ran on it.

    Attributes:
        by: who said that it does not come back: then it is not known any more, also where it was switched off.
    """

    node: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeClosed(Event):
    """A node is closed, now or at a planned time.

    It replaces the unplanned closure of the node, or the planned one that begins at the same instant.
    """

    node: str
    closure: Cordon


@dataclass(frozen=True, slots=True)
class NodeOpened(Event):
    """A node is opened before its cordon ended.

    Attributes:
        planned: what is planned for later is given up too.
    """

    node: str
    planned: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodePowerChanged(Event):
    """A node is switched off or on, or that has come to something (``model.hardware.node_power``).

    That a node is there again is no such event: it joins.

    Attributes:
        detail: why, or what went wrong.
        ready_at: when a node that boots should have joined.
    """

    node: str
    state: NodePowerState
    detail: str = ""
    ready_at: float | None = None


@dataclass(frozen=True, slots=True)
class CardClosed(Event):
    """A single card is closed from now on, until it is opened.

    Attributes:
        card: its UUID; of one that is cut up, all its instances are closed with it.
    """

    node: str
    card: str
    closure: Cordon


@dataclass(frozen=True, slots=True)
class CardOpened(Event):
    """A single card takes work again."""

    node: str
    card: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class CardLayoutChanged(Event):
    """An idle card is to be divided otherwise, or that has come to something.

    What there is of the card then, its node says before by joining.

    Attributes:
        card: its UUID.
        layout: names of the profiles that it is divided into.
        for_job: the waiting job that it is done for.
        detail: what went wrong.
    """

    node: str
    card: str
    state: LayoutChangeState
    layout: tuple[str, ...]
    for_job: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReservationMade(Event):
    """An advance reservation was made, or the one of the same name was changed."""

    reservation: AdvanceReservation


@dataclass(frozen=True, slots=True)
class ReservationCancelled(Event):
    """An advance reservation is given up; work on it goes on as any other."""

    name: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class SchedulingPaused(Event):
    """Nothing new starts from now on, anywhere; what runs goes on.

    Attributes:
        cause: the kind of trouble; there may be one of each kind.
        text: what it is and what would mend it, for the owners of waiting jobs.
    """

    cause: Cause
    text: str


@dataclass(frozen=True, slots=True)
class SchedulingResumed(Event):
    """Trouble that held starts is over."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class ClockJumped(Event):
    """The machine's clock was set forward: the last ``seconds`` before this event have not passed.

    What is counted in seconds (time limits, use) does not count them; hours of the day follow the clock.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class DeviceHealthChanged(Event):
    """A device became usable or unusable.

    Attributes:
        needs_person: no reset mends it: it stays closed until somebody opens it.
    """

    node: str
    device: str
    health: DeviceHealth
    detail: str = ""
    needs_person: bool = False


@dataclass(frozen=True, slots=True)
class DeviceReported(Event):
    """A driver reported something of a device that leaves it in use: kept for the node's history.

    Attributes:
        text: what it was, such as a fault of a program, or a memory row that was remapped.
    """

    node: str
    device: str
    text: str


@dataclass(frozen=True, slots=True)
class CardLoad:
    """How busy one device is: means over the last minutes, in which older looks count less.

    Attributes:
        device: its UUID.
        load_milli: its measured use, 0..1000.
        held_milli: what work held of its compute over the same minutes.
    """

    device: str
    load_milli: int
    held_milli: int


@dataclass(frozen=True, slots=True)
class LoadSampled(Event):
    """Measured load of a node.

    Attributes:
        load_milli: mean use of its devices, 0..1000.
        cards: those of its devices that have changed; empty: each is as the mean, with what is held of it now.
    """

    node: str
    load_milli: int
    cards: tuple[CardLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeContents(Event):
    """What a node holds of images, data sets and models now; it replaces what was reported of it before.

    Attributes:
        fetch_rate: bytes per second at which it fetches what it lacks; 0: not known, so nothing follows from it.
    """

    node: str
    contents: tuple[Content, ...]
    fetch_rate: int


@dataclass(frozen=True, slots=True)
class JobSubmitted(Event):
    """A job was submitted and stored."""

    job: Job


@dataclass(frozen=True, slots=True)
class DurationPredicted(Event):
    """A forecast of how long a job runs once started, in seconds.

    Attributes:
        expected_s: median of the whole run.
        cautious_s: a length it exceeds only rarely (about the 90th percentile).
    """

    job: str
    expected_s: float
    cautious_s: float


@dataclass(frozen=True, slots=True)
class EnergyRatePredicted(Event):
    """What a kWh should cost, or emit, in the hours to come, for jobs that may start later.

    Attributes:
        measure: which of the two.
        begins_at: when the first of the hours begins, in seconds since 1970.
        values: one for each hour; None where it is not known.
        missing: why nothing is known of the present hour, a clause; empty: it is.
    """

    measure: RateMeasure
    begins_at: float
    values: tuple[float | None, ...]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class ProgressMeasured(Event):
    """How fast a run makes steps, by what its program reports.

    Attributes:
        job, attempt: which run of which job.
        steps_per_s: None where that cannot be measured.
        gpu_milli: compute of the cards that the run had meanwhile.
        ignored: what is wrong with its reports, a clause; empty: nothing.
        power_w: what all its cards together drew meanwhile; None where that is not known.
        cap_w: the power cap that each of its cards was kept at meanwhile for the job; 0: at none.
        memory_mib: device memory that was in use, by whomever, on that of its cards which had most in use, since it has
            them as now: alone, or with the same other job; None where that is not known.
    """

    job: str
    attempt: int
    steps_per_s: float | None
    gpu_milli: int
    ignored: str = ""
    power_w: float | None = None
    cap_w: float = 0.0
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The end of a job was requested; ``reason`` says why, as text."""

    job: str
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SuspendRequested(Event):
    """A job is asked to leave its cards and keep its processes."""

    job: str
    swap: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRequested(Event):
    """A suspended job may go on as soon as it can."""

    job: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class RequeueRequested(Event):
    """A running or suspended job is asked to end its run, with notice, and to wait for another."""

    job: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class MigrateRequested(Event):
    """A running job is asked to go on with other cards.

    Attributes:
        to: names of the cards, task by task (``NODE/INDEX`` or a UUID), or of one node; empty: wherever there is room.
        restart: it may be ended and started anew there although it does not save its work on notice.
        fixed: why it cannot be moved as it runs, as far as that is known beforehand; may be empty.
    """

    job: str
    to: tuple[str, ...] = ()
    restart: bool = False
    fixed: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class DesiredCountChanged(Event):
    """A role should have another number of tasks.

    Attributes:
        desired: 0 lets a service without roles rest: its run ends, and it waits for nothing but to be wanted again.
        why: a clause of text; may be empty.
        swap: one that rests keeps its processes, if it can be swapped to host memory.
    """

    job: str
    role: str
    desired: int
    why: str = ""
    swap: bool = False


@dataclass(frozen=True, slots=True)
class TimeLimitChanged(Event):
    """A job gets another time limit.

    Attributes:
        time_limit_s: how long it may run in all.
    """

    job: str
    time_limit_s: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class PriorityChanged(Event):
    """A job that waits or runs gets another class of priority."""

    job: str
    priority: Priority
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeChoiceChanged(Event):
    """A job that waits asks for other nodes than before, as other work lies elsewhere by now.

    Attributes:
        only_on, spacing: as of ``Job``.
    """

    job: str
    only_on: NodeSelection
    spacing: tuple[SpacingRule, ...]


@dataclass(frozen=True, slots=True)
class Noted(Event):
    """A note in a job's history, of which no decision depends."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class WaitExplained(Event):
    """Why a job waits, where that has changed: kept for its history, and no decision depends on it.

    Attributes:
        summary: with the numbers of that instant, and without names of other jobs.
        earliest_at, likely_at, latest_at: when it should start, as estimated then; None where that is not known.
    """

    job: str
    cause: Cause
    summary: str
    earliest_at: float | None = None
    likely_at: float | None = None
    latest_at: float | None = None


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The engine carried a decision out: all tasks run, notice was given, all are suspended or resumed.

    Attributes:
        confinement: of a start: how well its tasks are kept apart, and kept to their amounts.
    """

    decision: int
    confinement: Confinement = Confinement()


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """The engine could not carry a decision out; nothing of it remains.

    Attributes:
        device_fault: the cause lies with the node or device, not with the job.
        exit_code: of a start: what a shell has for it; None: nothing.
    """

    decision: int
    reason: str
    device_fault: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """A task is over and holds nothing any more.

    Attributes:
        job, attempt: which run of which job; answers about an older run are ignored.
        task: its number, or ``ALL_TASKS``.
        exit_code: as a shell shows it; None when there was none (a lost node).
        service_s: useful seconds of work it kept (a checkpoint); None means that all of this run counts when it
            succeeded and none otherwise.
    """

    job: str
    attempt: int
    outcome: Outcome
    task: int = ALL_TASKS
    exit_code: int | None = None
    detail: str = ""
    service_s: float | None = None


@dataclass(frozen=True, slots=True)
class Kept(Event):
    """A task's program has failed, and its engine keeps the task's place with all that it holds, for a look inside.

    Its end is reported when the place is given back: when the core decides that, or at the instant ``until``.

    Attributes:
        job, attempt, task, outcome, exit_code, detail: as of ``Ended``.
    """

    job: str
    attempt: int
    task: int
    outcome: Outcome
    until: float
    exit_code: int | None = None
    detail: str = ""
