"""Restore a running core from the store: snapshot, redone log, and agreement with what the engine observes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model import events
from millpond.model.decisions import Decision, Prefetch, Start
from millpond.model.errors import InconsistentStateError, InvalidInputError, MillpondError, UnavailableError
from millpond.model.events import PolicyChanged
from millpond.model.hardware.nodes import Node
from millpond.model.policy_trials import UNCHANGED, PolicyOverrides
from millpond.model.workloads import Job
from millpond.node.task.records import TaskId
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import ACTIVE
from millpond.server.runtime.core import Core
from millpond.server.store.formats import check_format
from millpond.server.store.histories import DecisionEntry
from millpond.server.store.store import ClaimsEntry, Store, StoredSnapshot
from millpond.server.store.tables import RESTORE
from millpond.server.version import VERSION

log = logging.getLogger(__name__)


MOST_LISTED: Final = 5
"""Jobs that lost their machine with a start are listed one by one, up to so many."""
_KEEP: Final = "this is a defect of Millpond; keep the state directory and report it"


def recover(store: Store, policies: PolicyOverrides = UNCHANGED) -> Core:
    """The core as it was when the last event was stored; a new one in a new store.

    What is stored as decided is carried out again and not decided again, so that another version, with other rules,
    goes on where this one was killed. If the server died between a cycle and the storing of its decisions, no engine
    has seen them: that cycle is run now, and they are stored.

    Args:
        policies: what a new store is begun with. In an older one others take over by an event of their own, behind the
            log (``policy_change``).

    Raises:
        UnavailableError: the snapshot is of a format that this version cannot read, or none can be read.
        InvalidInputError: the log is damaged.
        DBAPIError: the database cannot be read.
        InconsistentStateError: the log cannot be followed: by a defect, or because it is damaged.
    """
    core = _latest_readable(store)
    if core is None:
        settings = Settings()
        core = Core(Scheduler(settings.under(policies.over(settings.policies))))
        store.save_snapshot(StoredSnapshot(0, 0.0, VERSION, core.snapshot()))
        return core
    try:
        entries, claims = _redo(core, store)
    except (MillpondError, DBAPIError):
        raise
    except Exception as error:
        raise InconsistentStateError(
            f"the stored log cannot be followed behind entry {core.seq} ({error!r})", _KEEP
        ) from error
    if entries or claims is not None:
        store.record(entries, claims=claims)
    return core


def _latest_readable(store: Store) -> Core | None:
    """The core as of the latest snapshot, or of one before it where that is damaged; None in a new store.

    Raises:
        UnavailableError: the latest is of a format that this version cannot read, or there was one and none can be
            read: begun anew, a server would end all that runs.
    """
    places = store.snapshot_places()
    if not places and not store.latest_seq():
        return None
    for seq in reversed(places):
        try:
            return restored(store.snapshot(seq))
        except UnavailableError:
            raise
        except Exception as error:
            log.warning(
                "the state of the scheduler that was stored behind entry %d cannot be read (%s); it is made anew from "
                "an earlier one and the log",
                seq,
                error,
            )
    raise UnavailableError("no stored state of the scheduler can be read: the database is damaged", RESTORE)


def restored(snapshot: StoredSnapshot) -> Core:
    """The core as of a snapshot.

    Raises:
        UnavailableError: it is of a format that this version cannot read.
    """
    check_format(snapshot.data["scheduler"].get("format"), snapshot.version)
    return Core.restore(snapshot.seq, snapshot.data)


def _redo(core: Core, store: Store) -> tuple[list[DecisionEntry], ClaimsEntry | None]:
    """Go through the log behind the snapshot; returns what its last cycle comes to, if nothing of that is stored."""
    decided, claims = store.decisions_after(core.seq), store.claims_after(core.seq)
    last = store.latest_seq()
    turn: list[events.Event] = []
    for place, entry in enumerate(store.events_after(core.seq), core.seq + 1):
        if entry.seq != place:
            raise InvalidInputError(f"entry {place} of the stored log is missing: the database is damaged", RESTORE)
        tick = entry.event
        if not isinstance(tick, events.Tick):
            turn.append(tick)
        elif entry.seq < last or entry.seq in decided or entry.seq in claims:
            core.redo(turn, tick, decided.get(entry.seq, ()), claims.get(entry.seq))
            turn.clear()
        else:
            for event in turn:
                core.handle(event)
            entries = [DecisionEntry(entry.seq, tick.at, decision) for decision in core.decide(tick)]
            changed = core.scheduler.changed_claims()
            return entries, None if changed is None else ClaimsEntry(entry.seq, changed)
    return [], None


def node_changes(
    core: Core, nodes: Sequence[Node], now: float
) -> tuple[list[events.NodeJoined], list[events.NodeLost | events.NodeJoined]]:
    """The events by which the core learns which machines exist now: new ones, and changes of others."""
    views = core.scheduler.node_views()
    known = {view.node.name: view.node for view in views if view.power is None or not view.power.is_gone}
    there = {node.name for node in nodes}
    joined = [events.NodeJoined(now, node) for node in nodes if known.get(node.name) != node]
    lost = (events.NodeLost(now, name) for name in known if name not in there)
    return (
        [event for event in joined if event.node.name not in known],
        [*lost, *(event for event in joined if event.node.name in known)],
    )


def is_known(core: Core, event: events.Event) -> bool:
    """Whether the core knows already what an engine that has begun anew says again: that a place is kept."""
    if not isinstance(event, events.Kept):
        return False
    record = core.scheduler.jobs.get(event.job)
    return record is not None and record.kept is not None


def running_jobs(core: Core) -> list[Job]:
    """Jobs that hold something, by the core's account."""
    return [
        record.job
        for record in core.scheduler.jobs.values()
        if any(task.state in ACTIVE and task.placement is not None for task in record.tasks)
    ]


def no_longer_placeable(core: Core, ran: Sequence[Job]) -> tuple[str, ...]:
    """Which of the jobs that ran before a start could not start again, and why, in words; logged too."""
    reasons = ((job.id, reason) for job in ran if (reason := core.scheduler.check(job)) is not None)
    texts = [f"{job} runs or ran, and could not start again: {reason.summary}" for job, reason in reasons]
    for text in texts:
        log.warning(text)
    beyond = len(texts) - MOST_LISTED
    more = [f"and {beyond} jobs more (see the server's log)"] if beyond > 0 else []
    return tuple(f"warning: {text}" for text in (*texts[:MOST_LISTED], *more))


def expected_tasks(core: Core, nodes: Sequence[Node]) -> dict[TaskId, str]:
    """Tasks that hold something of these nodes by the core's account, and of which.

    One whose cards are gone from its node is not expected: the core will take it for lost, so that it must not go on.
    """
    cards_of = {node.name: {device.uuid for device in node.devices} for node in nodes}
    return {
        TaskId(record.id, record.attempt, task.number): task.placement.node
        for record in core.scheduler.jobs.values()
        for task in record.tasks
        if task.state in ACTIVE and task.placement is not None
        if (cards := cards_of.get(task.placement.node)) is not None
        if task.holding is None or all(grant.device in cards for grant in task.placement.grants)
    }


def to_repeat(core: Core, nodes: Sequence[Node]) -> list[Decision]:
    """Decisions that the engine has not answered and that still mean something, in the order they were taken."""
    there = {node.name for node in nodes}
    return [
        decision
        for _, decision in sorted(core.unanswered.items())
        if (core.scheduler.awaits(decision) if isinstance(decision, Prefetch) else _is_of_present_run(core, decision))
        and not (isinstance(decision, Start) and any(placed.node not in there for placed in decision.placements))
    ]


def _is_of_present_run(core: Core, decision: Decision) -> bool:
    record = core.scheduler.jobs.get(decision.job)
    return record is not None and record.attempt == decision.attempt and not record.state.ended


def policy_change(asked: PolicyOverrides, settings: Settings, now: float) -> list[PolicyChanged]:
    """The event that leads from these settings to the policies asked for; none when they hold already."""
    wanted = asked.over(settings.policies)
    if wanted == settings.policies:
        return []
    return [PolicyChanged(now, wanted.ordering, wanted.placement, wanted.preempt, wanted.reserve)]
