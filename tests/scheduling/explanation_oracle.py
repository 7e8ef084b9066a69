"""Whether an explanation is true, found out on forks of the scheduler without the code that explains.

A fork is changed as the explanation says that it matters, and the real cycle decides what comes of it. *Starts* means
that the next cycle starts the job at the same instant, without any work leaving for it. *Alone* means that all other
waiting jobs are withdrawn, but those whom room is kept for, and that running and suspended work stays as it is. *Fresh
machines* are empty twins of all machines of the job's pool. *All else lifted* means alone, all nodes open for ever, all
cards healthy where the cause says nothing of them, and no short work expected.

| cause | true if |
| --- | --- |
| impossible | with everything else ended, all else lifted and quotas in force it does not start |
| any other | with everything else ended, all else lifted and quotas in force it starts |
| a quota | alone with fresh machines it does not start (or, of a limit of models, with everything else ended and no \
cards of these); without any quota it does; and without the bound that is named the answer is another |
| no-room | with all else lifted and no room kept for others it does not start; with fresh machines it does, and \
without the one that is named, or all that are being ended if that one is |
| reserved | alone it does not start; once those who are named as keeping the room are withdrawn it does |
| reservation | alone it does not start; if it names none, it does once all that is reserved in advance is cancelled; \
where room is kept for others, too, only once these are withdrawn |
| nodes-closed | with no room kept for others it does not start; with the nodes open that are named it does |
| held-back | alone it does not start; alone or not it does, if no short work is expected |
| victims-protected | as no-room; the one named is protected, and if all lower work ended it would start, but not \
once what is being ended has |
| behind | with fresh machines for all but the one in front it does not start; with that one withdrawn it does |
| room-being-made | the one named is leaving, and once all have left that are, it starts |
| not-considered | there is something to decide, and it starts, or would beside all room that is kept; or it has a \
pause, and is in a line once that is over |
| window-closed, cheaper-hours, retry-delayed | it is in no line before the instant that is given, and is from then on |
| trouble with starts | without it the answer is another, and with it nothing starts on fresh machines |

A remedy is true if the changed job, submitted instead of the one that waits, starts. Nodes are counted by the first
thing that a task fails on: all of them, and those that are closed, of other pools, or fit, as counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from worlds import asks

from millpond.model.decisions import Start
from millpond.model.events import (
    Confirmed,
    DeviceHealthChanged,
    DurationPredicted,
    Ended,
    JobSubmitted,
    LimitChanged,
    NodeJoined,
    NodeOpened,
    NodePowerChanged,
    PoolChanged,
    QueueChanged,
    ReservationCancelled,
    SchedulingResumed,
    StopRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause, Filter, Reason, Remedy
from millpond.model.resources import Amount
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Job, Role
from millpond.scheduling.nodes.views import DeviceUse, node_views
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import charge_kept
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.queue_node import QueueNode
from millpond.scheduling.tenancy.queue_rank import QueueRank

TROUBLE = (Cause.DISK_FULL, Cause.NOT_ISOLATED)
QUOTAS = (Cause.QUEUE_LIMIT, Cause.USER_LIMIT, Cause.GUARANTEE_OF_OTHERS, Cause.LENDING_OVER)
COUNTED = (Cause.NO_ROOM, Cause.RESERVED, Cause.NODES_CLOSED, Cause.VICTIMS_PROTECTED)


class Supposition:
    """A fork of a scheduler in which something is otherwise, and one job that is looked at."""

    def __init__(self, core: Scheduler, now: float, job: str) -> None:
        self.core = core.fork()
        self.now = now
        self.job = job
        self.state = self.core._state
        self.pool = self.core.jobs[job].job.pool

    def alone(self, *, keepers: Iterable[str] = ()) -> Supposition:
        """No other job waits, but those for whom room is kept; what runs stays as it is."""
        kept = {self.job, *keepers}
        for record in list(self.core.jobs.values()):
            if record.state is JobState.QUEUED and record.id not in kept:
                self.core.handle(StopRequested(self.now, record.id))
        self.core._claims.drop(self.job)
        self.state.growing.clear()
        self.state.suspended.clear()
        return self

    def without(self, *jobs: str) -> Supposition:
        """These jobs are withdrawn, or gone if they run."""
        for job in jobs:
            record = self.core.jobs[job]
            if record.state.ended:
                continue
            attempt, is_queued = record.attempt, record.state is JobState.QUEUED
            self.core.handle(StopRequested(self.now, job))
            if not is_queued:
                self.core.handle(Ended(self.now, job, attempt, Outcome.STOPPED))
        return self

    def all_gone(self) -> Supposition:
        """Nothing else runs or waits."""
        others = [record.id for record in self.core.jobs.values() if record.id != self.job]
        return self.without(*others)

    def open(self, names: Iterable[str] | None = None) -> Supposition:
        """Nodes are open for ever: these, or all."""
        wanted = set(self.state.cordons.by_node) if names is None else set(names)
        for name in sorted(wanted & set(self.state.cordons.by_node)):
            self.core.handle(NodeOpened(self.now, name, planned=True))
        for name, power in list(self.state.cordons.power.items()):
            if power.state not in (NodePowerState.DRAINING, NodePowerState.OFF) or (
                names is not None and name not in wanted
            ):
                continue
            node = self.state.cluster.node_named(name)
            if power.is_gone and node is not None:
                self.core.handle(NodeJoined(self.now, node))
            else:
                self.core.handle(NodePowerChanged(self.now, name, NodePowerState.ON))
        return self

    def healthy(self) -> Supposition:
        """No card has failed."""
        for node in self.state.cluster.nodes:
            for device in node.devices if node is not None else ():
                if node is not None and device.health is not DeviceHealth.OK:
                    self.core.handle(DeviceHealthChanged(self.now, node.name, device.uuid, DeviceHealth.OK))
        return self

    def uncommitted(self) -> Supposition:
        """Nothing is reserved in advance but what the job asks for by name."""
        for name in [name for name in self.state.reserved.by_name if name != self.core.jobs[self.job].job.reservation]:
            self.core.handle(ReservationCancelled(self.now, name))
        return self

    def unreserved(self) -> Supposition:
        """No room is reserved for a job ahead, none for short work, and no work of its own class is displaced."""
        self.state.settings = replace(self.state.settings, preempt=False, reserve=False)
        self.core._claims.reservations.clear()
        return self

    def eager(self) -> Supposition:
        """No short work is expected."""
        self.state.holds_back = lambda record: False  # type: ignore[method-assign]
        return self

    def fresh_machines(self) -> Supposition:
        """Twins of all machines of the job's pool join, empty and healthy."""
        for node in list(self.state.cluster.nodes):
            if node is not None and node.pool == self.pool:
                cards = tuple(replace(card, uuid=f"fresh-{card.uuid}", health=DeviceHealth.OK) for card in node.devices)
                self.core.handle(NodeJoined(self.now, replace(node, name=f"fresh-{node.name}", devices=cards)))
        return self

    def unbounded(self) -> Supposition:
        """No quota of any kind binds, nor what counts in them as it is reserved in advance."""
        queues = self.state.queues
        for node in [each for each in queues.by_name.values() if each is not queues.background]:
            self.core.handle(QueueChanged(self.now, replace(node.queue, limit=None, borrows=True, running_jobs=None)))
        for account in list(self.state.limits.by_account):
            self.core.handle(LimitChanged(self.now, Limit(*account)))
        return self.lending().borrowing().uncommitted()

    def lending(self) -> Supposition:
        """Pools lend at any hour."""
        for pool in list(self.state.cluster.pools.values()):
            self.core.handle(PoolChanged(self.now, replace(pool, lending=())))
        return self

    def borrowing(self) -> Supposition:
        """Work that is not preemptible may borrow, too."""
        self.state.queues.blocks_guarantees = lambda name, amount: False  # type: ignore[method-assign]
        return self

    def refusing(self, job: str) -> Supposition:
        """One job finds no place whatever there is; what is reserved stays so."""
        placer, planner = self.core._placer, self.core._cycle.planner
        place = placer.place

        def place_others(record: JobRecord, *rest: object, **more: object) -> object:
            return None if record.id == job else place(record, *rest, **more)  # type: ignore[arg-type]

        placer.place = place_others  # type: ignore[assignment, method-assign]
        for name in ("by_guarantee", "by_priority", "by_ordering"):
            setattr(planner, name, lambda *_: None)
        self.core._cycle.admission._reserve = lambda *_: None  # type: ignore[method-assign]
        return self

    def starts(self) -> bool:
        """Whether the next cycle starts the job."""
        return any(isinstance(each, Start) and each.job == self.job for each in self.core.decide(self.now))

    def why(self) -> Reason:
        """What is said about the job here."""
        return self.core.cause(self.job, self.now)


class Oracle:
    """Judges answers about jobs that wait in one scheduler."""

    def __init__(self, core: Scheduler, now: float) -> None:
        self.core = core
        self.now = now

    def complaints(self, job: str) -> list[str]:
        """What is false in the answer about a job."""
        reason = self.core.explain(job, self.now)
        found = [*self._about_feasibility(job, reason), *self._about_cause(job, reason), *self._counts(job, reason)]
        found += self.about_remedy(job, reason)
        return [f"{job}: {each} [{reason.cause}: {reason.summary}; {reason.blocked_by}]" for each in found]

    def _suppose(self, job: str) -> Supposition:
        return Supposition(self.core, self.now, job)

    # ---- causes -------------------------------------------------------------------------------------------------

    def _about_feasibility(self, job: str, reason: Reason) -> list[str]:
        if reason.cause in (*TROUBLE, Cause.WINDOW_CLOSED, Cause.RETRY_DELAYED, Cause.SUSPENDED, Cause.SCALED_TO_ZERO):
            return []
        if not self.core.jobs[job].line and reason.cause is not Cause.IMPOSSIBLE:
            return []
        empty = self._suppose(job).all_gone().open().healthy().uncommitted().unreserved().lending()
        if reason.cause is Cause.IMPOSSIBLE:
            return ["it starts on the empty cluster"] * (self.core.holds == {} and empty.starts())
        return [] if empty.starts() else ["it does not start on the empty cluster"]

    def _about_cause(self, job: str, reason: Reason) -> list[str]:
        checks: dict[Cause, Callable[[str, Reason], list[str]]] = {
            Cause.NO_ROOM: self._no_room,
            Cause.RESERVED: self._reserved,
            Cause.RESERVATION: self._reservation,
            Cause.NODES_CLOSED: self._closed,
            Cause.HELD_BACK: self._held_back,
            Cause.VICTIMS_PROTECTED: self._protected,
            Cause.BEHIND: self._behind,
            Cause.ROOM_BEING_MADE: self._being_made,
            Cause.NOT_CONSIDERED: self._not_considered,
            Cause.WINDOW_CLOSED: self._appointed,
            Cause.CHEAPER_HOURS: self._appointed,
            Cause.RETRY_DELAYED: self._appointed,
            **dict.fromkeys(QUOTAS, self._quota),
            **dict.fromkeys(TROUBLE, self._trouble),
        }
        check = checks.get(reason.cause)
        return check(job, reason) if check is not None else []

    def _quota(self, job: str, reason: Reason) -> list[str]:
        def roomy() -> Supposition:
            return self._suppose(job).alone(keepers=self._claimers()).open().eager().fresh_machines()

        found = []
        if roomy().starts() and not self._needs_closed_models(job, reason):
            found.append("it starts if there is room")
        if not roomy().unbounded().starts():
            found.append("it does not start without any quota")
        lifted = self._suppose(job)
        self._lift(lifted, reason)
        after = lifted.why()
        if (after.cause, after.blocked_by) == (reason.cause, reason.blocked_by):
            found.append("the same is said without the bound")
        return found

    def _needs_closed_models(self, job: str, reason: Reason) -> bool:
        """Whether a job never starts without cards of the models that a limit closes to it, were all else gone."""
        record = self.core.jobs[job]
        if reason.cause is not Cause.QUEUE_LIMIT:
            return False
        there = self._suppose(job).all_gone().open().healthy().unreserved().lending()
        node = self.core._state.queues.by_name[reason.blocked_by]
        limit, asked = node.queue.limit, record.demand.least_amount.gpu_milli
        if limit is None:
            return False
        closed = {model for model, most in limit.models if node.models.get(model, 0) + asked > most}
        if limit.card_mib:
            closed |= {model for model, mib in self._memory_on(record).items() if node.card_mib + mib > limit.card_mib}
        models = tuple(sorted({**dict(limit.models), **dict.fromkeys(closed, 0)}.items()))
        there.core.handle(QueueChanged(self.now, replace(node.queue, limit=replace(limit, models=models))))
        return bool(closed) and not there.starts()

    def _memory_on(self, record: JobRecord) -> dict[str, int]:
        """The card memory that the least size of a job takes on the largest cards of each model in its pool."""
        amount, found = record.demand.least_amount, dict[str, int]()
        for node in self.core._state.cluster.nodes:
            for device in () if node is None or node.pool != record.job.pool else node.devices:
                mib = amount.card_mib + amount.card_share_milli * device.memory_mib // 1000
                found[device.model] = max(found.get(device.model, 0), mib)
        return found

    def _lift(self, there: Supposition, reason: Reason) -> None:
        """Put the bound that is named out of force."""
        record, state = there.core.jobs[there.job], there.state
        if reason.cause is Cause.USER_LIMIT:
            there.core.handle(LimitChanged(self.now, Limit(record.job.user)))
        elif reason.cause is Cause.LENDING_OVER:
            pool = state.cluster.pools[record.job.pool]
            there.core.handle(PoolChanged(self.now, replace(pool, lending=())))
            there.core.decide(self.now)
        elif reason.cause is Cause.GUARANTEE_OF_OTHERS and not reason.blocked_by:
            there.borrowing()
        elif reason.cause is Cause.GUARANTEE_OF_OTHERS:
            queue = state.queues.by_name[reason.blocked_by].queue
            there.core.handle(QueueChanged(self.now, replace(queue, borrows=True)))
        elif reason.blocked_by == record.queue and ("", record.queue) in state.limits.by_account:
            there.core.handle(LimitChanged(self.now, Limit("", record.queue)))
            queue = state.queues.by_name[reason.blocked_by].queue
            there.core.handle(QueueChanged(self.now, replace(queue, limit=None, running_jobs=None)))
        else:
            queue = state.queues.by_name[reason.blocked_by].queue
            there.core.handle(QueueChanged(self.now, replace(queue, limit=None, running_jobs=None)))

    def _keepers(self, job: str) -> set[str]:
        claims = self.core._claims
        pool = self.core.jobs[job].job.pool
        held = claims.reservations.get(pool)
        return {*claims.by_job, *((held.job,) if held is not None else ())}

    def _no_room(self, job: str, reason: Reason) -> list[str]:
        found = []
        if self._suppose(job).alone().open().unreserved().starts():
            found.append("there is room")
        # A reservation that lacks cards would get those of the fresh machines, or of the one named.
        roomy = self._suppose(job).alone(keepers=self._claimers()).open().uncommitted().unreserved().fresh_machines()
        if not roomy.starts():
            found.append("more room does not help")
        freed = self._suppose(job).alone().open().uncommitted().unreserved()
        ending = [record.id for record in self.core.jobs.values() if record.state is JobState.STOPPING]
        named = ending if reason.blocked_by in ending else [reason.blocked_by]
        if reason.blocked_by and not freed.without(*named).starts():
            found.append("the one named is not in the way")
        return found

    def _claimers(self) -> set[str]:
        return set(self.core._claims.by_job)

    def _reserved(self, job: str, reason: Reason) -> list[str]:
        keepers = self._keepers(job)
        found = []
        if reason.blocked_by not in keepers - {job}:
            return ["nothing is kept for the one named"]
        if self._suppose(job).alone(keepers=keepers).eager().starts():
            found.append("it starts at once")
        named = {reason.blocked_by}
        if dict(reason.numbers).get("kept_for", 1) > 1:
            named = keepers - {job}
            if self._kept_by(job, keepers - {reason.blocked_by}).starts():
                found.append("it starts if the one named alone is withdrawn")
        if not self._kept_by(job, keepers - named).starts():
            found.append("it does not start if those named are withdrawn")
        return found

    def _kept_by(self, job: str, keepers: set[str]) -> Supposition:
        """Room is kept for these alone, and they do not take any other."""
        there = self._suppose(job).alone(keepers=keepers).eager()
        for other in self._claimers() - keepers:
            there.core._claims.drop(other)  # also of those that run, and are to be moved there
        held = self.core._claims.reservations.get(there.pool)
        return there if held is None or held.job not in keepers or held.job == job else there.refusing(held.job)

    def _closed(self, job: str, reason: Reason) -> list[str]:
        found = []
        if self._suppose(job).alone().unreserved().starts():
            found.append("it starts although they are closed")
        by_node = self.core._state.cordons.by_node
        named = [name for name in by_node if name in reason.summary]
        if dict(reason.numbers)["nodes"] > len(named):
            named = list(by_node)
        if not self._suppose(job).alone().open(named).uncommitted().unreserved().starts():
            found.append("it does not start if they are open")
        return found

    def _held_back(self, job: str, reason: Reason) -> list[str]:
        found = []
        keepers = self._keepers(job)
        if self._suppose(job).alone(keepers=keepers).starts():
            found.append("it starts at once")
        # Alone it may stand behind room that is kept anew, as what was to come before that has gone.
        if not any(each.eager().starts() for each in (self._suppose(job).alone(keepers=keepers), self._suppose(job))):
            found.append("it does not start if no short work is expected")
        return found

    def _protected(self, job: str, reason: Reason) -> list[str]:
        found = self._no_room(job, replace(reason, blocked_by=""))
        core = self.core
        lower = [
            other.id
            for other in core._state.running.values()
            if other.job.pool == core.jobs[job].job.pool and other.id != job
        ]
        if not self._suppose(job).alone().unreserved().without(*lower).starts():
            found.append("it does not start if all that work ends")
        ending = [other for other in lower if core.jobs[other].state is JobState.STOPPING]
        if self._suppose(job).alone(keepers=self._claimers()).unreserved().without(*ending).starts():
            found.append("it starts once that has ended which is being ended")
        count = dict(reason.numbers)["protected"]
        if count > len(lower):
            found.append("more is counted than there is")
        if self._is_free(job, reason.blocked_by, spared=False):
            found.append("the one named is not protected")
        free = [other for other in lower if self._is_free(job, other, spared=True)]
        if count == 1 and not self._suppose(job).alone().unreserved().without(*free, reason.blocked_by).starts():
            found.append("the one named is not all that is in the way")
        return found

    def _is_free(self, job: str, other: str, *, spared: bool) -> bool:
        """Whether running work may be ended for a job.

        Args:
            spared: so may work of a queue that holds more than its guarantee, as long as it does.
        """
        record, victim, now = self.core.jobs[job], self.core.jobs[other], self.now
        if not victim.job.preemptible or victim.preemptions >= victim.job.preemption_budget:
            return False
        queues = self.core._state.queues
        stated = [each.queue.minimum_run_s for each in queues.by_name[victim.queue].path]
        lasts_s = max(next((seconds for seconds in stated if seconds is not None), 0.0), victim.job.minimum_run_s)
        if now < (now if victim.started_at is None else victim.started_at) + lasts_s:
            return False
        with_cards, choices = victim.gpu_milli > 0, self._choices_beside(record, victim)
        guarantors = [queues.guarantor(record.queue, amount) for amount in choices]
        for guarantor, amount in zip(guarantors, choices, strict=True):
            if guarantor is not None and guarantor not in queues.by_name[victim.queue].path:
                may_leave = spared or not self._owers(victim, beside=record)
                return may_leave and queues.may_take_back(record.queue, amount, victim.queue, with_cards=with_cards)
        if spared:
            shielded = queues.shields(victim.queue, record.queue, with_cards=with_cards)
        else:
            shielded = self._is_shielded(record, victim)
        return victim.job.priority < record.job.priority and not shielded

    def _choices_beside(self, record: JobRecord, victim: JobRecord) -> list[Amount]:
        """What a job counts for on the models of the cards that running work has, where guarantees name models."""
        state = self.core._state
        held = {state.cluster.model_of(card) for task in victim.tasks if task.holding for card in task.holding.devices}
        choices = state.entitlements.choices(record, record.demand.least_amount)
        return [each for each in choices if not each.models or held.intersection(dict(each.models))]

    def _is_shielded(self, record: JobRecord, victim: JobRecord) -> bool:
        """Whether a guarantee may keep running work of a lower class where it is."""
        by_name = self.core._state.queues.by_name
        guarantors = by_name[victim.queue].guarantors
        if any(node not in by_name[record.queue].path for node in guarantors):
            return True
        owers = self._owers(victim)
        if not owers:
            return False
        if not (record.gpu_milli or owers[0].queue.guarantee.card_mib):
            return True  # no guarantee of cards covers it
        of_others = self._owed_below(owers[0])
        lower = [
            job.demand.least_amount.gpu_milli
            for job in self._on_guarantee(owers[0])
            if job.job.preemptible and job.job.priority < record.job.priority and job.id not in of_others
        ]
        claimed = [
            holding.shape.total_compute_milli
            for other, claim in self.core._claims.by_job.items()
            if other != record.id and owers[0] in by_name[self.core.jobs[other].queue].guarantors
            for _, holding in claim.placed
        ]
        used_milli = owers[0].gpu_milli + sum(claimed) - sum(lower) + record.demand.least_amount.gpu_milli
        return used_milli > owers[0].queue.guarantee.gpu_milli

    def _owers(self, victim: JobRecord, beside: JobRecord | None = None) -> list[QueueNode]:
        """The queues whose guarantees are owed to running work, but for those above another job's queue too."""
        by_name = self.core._state.queues.by_name
        common = () if beside is None else by_name[beside.queue].path
        guarantors = by_name[victim.queue].guarantors
        return [node for node in guarantors if node not in common and victim.id in self._owed(node)]

    def _owed(self, guarantor: QueueNode) -> set[str]:
        """Running work that fits in a guarantee beside what comes before it."""
        owed, below, users = set[str](), self._owed_below(guarantor), self.core._state.reserved.users

        def turn(job: JobRecord) -> tuple[bool, ...]:
            return job.job.preemptible, job.id not in users, not job.took_back, job.id not in below

        left_milli = guarantor.queue.guarantee.gpu_milli - self._unused_reserved(guarantor)
        for job in sorted(self._on_guarantee(guarantor), key=turn):
            if 0 < job.demand.least_amount.gpu_milli <= left_milli:
                left_milli -= job.demand.least_amount.gpu_milli
                owed.add(job.id)
        return owed

    def _unused_reserved(self, guarantor: QueueNode) -> int:
        """How much of the cards that are reserved now for queues on a guarantee nobody has taken, in milli."""
        state = self.core._state
        rooms = [room for room in state.reserved.by_name.values() if room.wanted.covers(self.now)]
        on_it = [room for room in rooms if guarantor in state.queues.by_name[room.wanted.queue].guarantors]
        return sum(
            milli for room in on_it for milli in state.reserved.unused(room, state.running, state.cluster).values()
        )

    def _owed_below(self, guarantor: QueueNode) -> set[str]:
        """The same for all guarantees below one."""
        nodes = self.core._state.queues.by_name.values()
        below = (node for node in nodes if node.guarantors[:1] == (node,) and guarantor in node.path[1:])
        return set().union(*map(self._owed, below))

    def _on_guarantee(self, guarantor: QueueNode) -> list[JobRecord]:
        """What runs on a guarantee, in the order in which it is owed, but for what is owed below it."""
        state = self.core._state
        jobs = [
            job
            for job in state.running.values()
            if guarantor in state.queues.by_name[job.queue].guarantors
            and job.kept is None
            and job.id not in state.suspended
        ]
        return sorted(jobs, key=lambda job: (-job.job.priority, job.placed_by, job.sequence))

    def _behind(self, job: str, reason: Reason) -> list[str]:
        first = reason.blocked_by
        if not _goes_before(self.core, first, job):
            return ["the one named comes behind it"]
        found = []
        groups = {self.core.jobs[each].group for each in (job, first)} - {None}
        alike = {record.id for record in self.core.jobs.values() if record.group in groups}
        beside = self._behind_it(job, first, alike)
        if _goes_before(beside.core, first, job) and beside.refusing(first).starts():
            found.append("it starts while the one named waits")
        if not self._behind_it(job, first).without(first).starts():
            found.append("it does not start without the one named")
        return found

    def _behind_it(self, job: str, first: str, alike: Iterable[str] = ()) -> Supposition:
        """All else lifted but that another is first; those that are alike lend turns in an ordering of their own."""
        return (
            self._suppose(job)
            .alone(keepers={first, *alike, *self._claimers()})
            .unbounded()
            .open()
            .unreserved()
            .fresh_machines()
        )

    def _being_made(self, job: str, reason: Reason) -> list[str]:
        there = self._suppose(job)
        found = []
        if not _is_leaving(there.core.jobs[reason.blocked_by]):
            found.append("the one named is not leaving")
        for record in list(there.core.jobs.values()):
            for task in record.tasks:
                if task.state is TaskState.STOPPING:
                    event = Ended(self.now, record.id, record.attempt, Outcome.STOPPED, task.number)
                    there.core.handle(event)
        for decision in list(there.state.pending):
            there.core.handle(Confirmed(self.now, decision))
        for record in list(there.core.jobs.values()):
            if record.state is JobState.QUEUED and record.id not in (job, *self._claimers()):
                there.core.handle(StopRequested(self.now, record.id))
        there.state.growing.clear()
        return found if there.starts() else [*found, "it does not start once all have left"]

    def _not_considered(self, job: str, reason: Reason) -> list[str]:
        record = self.core.jobs[job]
        if not record.line:
            ends = [at for at, _, other in self.core._state.paused if other is record]
            return [] if ends else ["it has no pause"]
        there = self._suppose(job)
        if not there.core.decide(self.now):
            return ["there is nothing to decide"]
        if self._suppose(job).starts() or self._kept_by(job, self._keepers(job)).starts():
            return []
        return ["there is no room for it"]

    def _appointed(self, job: str, reason: Reason) -> list[str]:
        at = reason.start.earliest_at if reason.start is not None else None
        if at is None:
            return [] if reason.cause is Cause.WINDOW_CLOSED else ["no instant is given"]
        there = self._suppose(job).alone()
        there.core.decide(max(at - 0.5, self.now))
        found = ["it is in a line before"] if at > self.now + 0.5 and there.core.jobs[job].line else []
        there.core.decide(at)
        return found if there.core.jobs[job].line or there.core.jobs[job].attempt else [*found, "it stays out of line"]

    def _reservation(self, job: str, reason: Reason) -> list[str]:
        if not self.core.jobs[job].line:
            return self._appointed(job, reason)
        named = (
            {reason.blocked_by} - {""} if dict(reason.numbers).get("kept_for", 0) < 2 else self._keepers(job) - {job}
        )
        keepers = self._keepers(job) if named else self._claimers()
        found = ["it starts beside the reservations"] * self._kept_by(job, keepers - named).starts()
        if self.core.jobs[job].job.reservation:
            return found
        if named and self._kept_by(job, keepers).uncommitted().starts():
            found.append("it starts while room is kept for the one named")
        there = self._kept_by(job, keepers - named).uncommitted()
        return found if there.starts() else [*found, "it does not start without the reservations"]

    def _trouble(self, job: str, reason: Reason) -> list[str]:
        there = self._suppose(job).alone().open().unbounded().unreserved().fresh_machines()
        found = ["it starts all the same"] if there.starts() else []
        lifted = self._suppose(job)
        lifted.core.handle(SchedulingResumed(self.now, reason.cause))
        return [*found, "the same is said without it"] if lifted.why().cause is reason.cause else found

    # ---- counts -------------------------------------------------------------------------------------------------

    def _counts(self, job: str, reason: Reason) -> list[str]:
        if reason.cause not in COUNTED:
            return []
        cluster, pool = self.core._state.cluster, self.core.jobs[job].job.pool
        nodes = [node for node in cluster.nodes if node is not None]
        closed = [node for node in nodes if node.name in cluster.closed]
        counts = dict(reason.nodes)
        wanted = {
            Filter.CLOSED: len(closed),
            Filter.OTHER_POOL: sum(node.pool != pool for node in nodes if node not in closed),
        }
        found = [
            f"{each} of {most} are {name}" for name, most in wanted.items() if (each := counts.get(name, 0)) != most
        ]
        if sum(counts.values()) != len(nodes):
            found.append(f"{sum(counts.values())} of {len(nodes)} nodes are counted")
        numbers = dict(reason.numbers)
        found += self._free(job, numbers) if reason.cause is Cause.NO_ROOM else []
        if reason.cause is Cause.NO_ROOM and numbers["nodes_that_fit_one_task"] != counts.get(Filter.FITS, 0):
            found.append("the numbers differ")
        if reason.cause is Cause.NO_ROOM and numbers["tasks"] == 1 and counts.get(Filter.FITS, 0):
            found.append("a node fits")
        return found

    def _free(self, job: str, numbers: dict[str, int]) -> list[str]:
        """What is said to be free is so on cards that the job could use; all of it, where no room is kept for others.

        What limits of models close to it is not counted; CPUs are, where it asks for no cards.
        """
        state, record = self.core._state, self.core.jobs[job]
        takes_cards = any(role.request.devices for role in record.job.roles)
        limited = state.queues.counts_cards and takes_cards
        free_milli = 0
        for view in node_views(state):
            node = view.node
            if node.pool != record.job.pool or not node.schedulable or node.name in state.cluster.closed:
                continue
            cards = [use.compute_free_milli for use in view.devices if _suits(record, use)]
            free_milli += sum(cards) if takes_cards else max(view.free.cpu_milli, 0)
        said = numbers["free_milli" if takes_cards else "free_cpu_milli"]
        bounded = limited or self._keepers(job) - {job} or state.cordons.has_closings_ahead
        wrong = said > free_milli if bounded else said != free_milli
        return [f"{said} are said to be free, {free_milli} are"] if wrong else []

    # ---- remedies -----------------------------------------------------------------------------------------------

    def about_remedy(self, job: str, reason: Reason) -> list[str]:
        """What is false in the remedy that an answer offers; nothing is if it offers none."""
        remedy = reason.remedy
        if remedy is None or not remedy.field or reason.cause is Cause.IMPOSSIBLE:
            return []
        record = self.core.jobs[job]
        fork = self.core.fork()
        fork.handle(StopRequested(self.now, job))
        changed = changed_job(record.job, remedy)
        refusal = fork.check(changed)
        if refusal is not None:
            return [f"the remedy asks for what is impossible: {remedy.change}: {refusal.summary}"]
        fork.handle(JobSubmitted(self.now, changed))
        if record.expected_s is not None and record.cautious_s is not None:
            fork.handle(DurationPredicted(self.now, changed.id, record.expected_s, record.cautious_s))
        started = [each.job for each in fork.decide(self.now) if isinstance(each, Start)]
        return [] if changed.id in started else [f"the remedy does not help: {remedy.change}"]


def is_familiar(core: Scheduler) -> bool:
    """Whether all that is in a scheduler is such as the table knows.

    Cards that are closed or can be divided, pairs on the same cards, cells and orderings that replan have causes of
    their own.
    """
    state = core._state
    cards = state.card_cordons.by_card or any(node is not None and node.divisible for node in state.cluster.nodes)
    pairs = any(pool.packs for pool in state.cluster.pools.values())
    return not (cards or pairs or state.cluster.cells.allocator or state.replans)


def _suits(record: JobRecord, use: DeviceUse) -> bool:
    """Whether some role of a job takes parts of such a card, and the card works and has memory left."""
    card, mib = use.device, use.device.memory_mib
    if card.health is not DeviceHealth.OK or use.closure is not None or (mib and not use.memory_free_mib):
        return False
    return any(
        role.request.devices
        and (not role.request.models or card.model in role.request.models)
        and (role.request.slice.memory_mib <= mib or (not mib and bool(role.request.slice.compute_milli)))
        for role in record.job.roles
    )


def _goes_before(core: Scheduler, first: str, job: str) -> bool:
    """Whether one who waits ranks before another, while what is claimed and reserved counts."""
    state = core._state
    mark = state.journal.begin()
    core._claims.charge(1)
    charge_kept(state)
    ranked = [record.id for record in state.waiting.ranked(QueueRank(state).place_of)]
    state.journal.rollback(mark)
    return ranked.index(first) < ranked.index(job)


def _is_leaving(record: JobRecord) -> bool:
    stopping = any(task.state is TaskState.STOPPING for task in record.tasks)
    return stopping or record.state is JobState.SUSPENDED


def changed_job(job: Job, remedy: Remedy) -> Job:
    """A job with a remedy applied, under another id."""
    job = replace(job, id=f"{job.id}-changed")
    field, index = remedy.field, 0
    if field.startswith("roles["):
        number, _, field = field.removeprefix("roles[").partition("].")
        index = int(number)
    role, request = job.roles[index], job.roles[index].request
    match field:
        case "topology":
            return replace(job, together=Level.CLUSTER, together_required=False)
        case "preemptible":
            return replace(job, preemptible=True, rest_preemptible=False)
        case "tasks":
            role = Role.rigid(request, int(remedy.value), role.name)
        case "gpu_models":
            role = replace(role, request=replace(request, models=()))
        case "cpus":
            role = replace(role, request=replace(request, cpu_milli=round(float(remedy.value) * 1000)))
        case "memory":
            role = replace(role, request=replace(request, memory_mib=int(remedy.value.removesuffix("MiB"))))
        case "gpus":
            asked = asks(float(remedy.value))
            role = replace(role, request=replace(request, devices=asked.devices, slice=asked.slice))
        case _:
            raise AssertionError(f"a remedy for {remedy.field!r}")
    return replace(job, roles=(*job.roles[:index], role, *job.roles[index + 1 :]))
