"""Events as the API shows them: of a job, of a machine, or all; in order, each as one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from millpond.model import events
from millpond.model.amounts import count_text, seconds_text
from millpond.model.codec import to_plain
from millpond.model.confinement import Confinement
from millpond.model.decisions import (
    CapPower,
    Decision,
    Migrate,
    Placement,
    Prefetch,
    Resume,
    Start,
    Stop,
    Suspend,
    SuspendMode,
)
from millpond.model.hardware.card_layouts import LayoutChangeState, layout_text
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause
from millpond.model.sharing import SliceHold
from millpond.server.runtime.active_jobs.job_cache import progress_view
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.store.histories import DecisionEntry, History, LogEntry, node_of
from millpond.server.store.store import Store
from millpond.server.views.setting_changes import settings_text
from millpond.server.views.visibility import Reader
from millpond.server.wording import local_time
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import ArrayInfo, JobInfo, beyond_exit_code
from millpond.specs.api.jobs.trials import TrialList

_REFUSED: Final[Mapping[type, str]] = {
    Start: "could not be started",
    Suspend: "could not leave its cards",
    Resume: "could not go on",
    Migrate: "could not be migrated",
    CapPower: "could not be kept at a power cap",
    Prefetch: "what it needs could not be fetched ahead",
}


class EventLog:
    """Shows the log to the users who may see it.

    Args:
        trials: the best trials of a sweep, at most so many.
    """

    def __init__(self, store: Store, lookup: JobLookup, trials: Callable[[JobInfo, int], TrialList]) -> None:
        self._store = store
        self._lookup = lookup
        self._trials = trials

    async def of_job(self, job: str, reader: Reader) -> list[EventInfo]:
        """A job's history."""
        info = await asyncio.to_thread(self._lookup.look, job)
        lines = story(*await asyncio.to_thread(self._store.histories.of_job, job))
        if info.array is not None and info.ended_at is not None:
            trials = await asyncio.to_thread(self._trials, info, 1) if info.array.sweep else None
            lines.append(_last_of_array(info, info.array, trials, len(lines) + 1))
        return await asyncio.to_thread(lambda: [reader.event(event, self._lookup.find) for event in lines])

    async def latest(self, after: int | None, limit: int, reader: Reader) -> list[EventInfo]:
        """What happened to jobs and nodes: the first behind a place in the log, or the latest."""
        shown = await asyncio.to_thread(self._shown, lambda: self._store.histories.happenings(after, limit), reader)
        return shown if after is not None else shown[-limit:]

    async def of_node(self, node: str, limit: int, reader: Reader) -> list[EventInfo]:
        """The latest that happened to a machine, whether it is still there or not."""
        return await asyncio.to_thread(self._shown, lambda: self._store.histories.of_node(node, limit), reader)

    def _shown(self, part: Callable[[], History], reader: Reader) -> list[EventInfo]:
        """A part of the log, without what is about jobs that these readers may not see."""
        happened, decided = part()
        lines = account(happened, decided, self._store.histories.decisions(answered(happened)))
        find = self._lookup.find
        return [reader.event(event, find) for event in lines if reader.hears_of(event, find)]


def story(happened: list[LogEntry], decided: list[DecisionEntry]) -> list[EventInfo]:
    """Events and decisions of one job merged, counted from 1: a decision comes after the events of its turn."""
    lines = account(happened, decided, {entry.decision.id: entry.decision for entry in decided})
    return [replace(line, seq=number) for number, line in enumerate(lines, start=1)]


def account(happened: list[LogEntry], decided: list[DecisionEntry], known: dict[int, Decision]) -> list[EventInfo]:
    """Events and decisions merged, with their places in the log.

    Args:
        known: decisions that the events answer, by id.
    """
    lines = [
        (entry.seq, 0, entry.event.at, _event_text(entry.event, known), entry.event, entry.job or node_of(entry.event))
        for entry in happened
    ] + [
        (entry.seq, entry.decision.id, entry.at, _decision_text(entry.decision), entry.decision, entry.decision.job)
        for entry in decided
    ]
    lines.sort(key=lambda line: line[:2])
    return [
        EventInfo(
            seq=seq,
            at=at,
            what=type(what).__name__,
            decided=isinstance(what, Decision),
            about=about,
            text=text,
            data=to_plain(what),
        )
        for seq, _, at, text, what, about in lines
    ]


def answered(happened: list[LogEntry]) -> set[int]:
    """Ids of the decisions that these events answer."""
    answers = (entry.event for entry in happened)
    return {event.decision for event in answers if isinstance(event, (events.Confirmed, events.Refused))}


def _event_text(event: events.Event, decisions: dict[int, Decision]) -> str:
    match event:
        case events.JobSubmitted(job=job):
            return f"submitted by {job.user or 'somebody'} to queue {job.queue}"
        case events.DurationPredicted(expected_s=expected, cautious_s=cautious):
            return f"expected to run {expected:.0f} s, rarely more than {cautious:.0f} s"
        case events.ProgressMeasured():
            return f"steps: {progress_view(event).text}"
        case events.StopRequested(by=by, reason=reason):
            return f"{by or 'somebody'} asked for its end" + (f": {reason}" if reason else "")
        case events.SuspendRequested(swap=swap, by=by):
            how = (
                "leave its cards, with its device memory"
                if swap
                else "be halted, with its device memory left on its cards"
            )
            return f"{by or 'somebody'} asked that it {how}"
        case events.MigrateRequested(to=to, by=by):
            return f"{by or 'somebody'} asked that it migrate to {', '.join(to) or 'other cards'}"
        case events.ResumeRequested(by=by):
            return f"{by or 'somebody'} asked that it go on"
        case events.RequeueRequested(by=by):
            return f"{by or 'somebody'} asked that it go back to its queue and start anew"
        case events.PriorityChanged(priority=priority, by=by):
            return f"{by or 'somebody'} gave it priority {priority.name.lower()}"
        case events.DesiredCountChanged(role=role, desired=desired, why=why):
            return f"role {role} should have {count_text(desired, 'task')}" + (f": {why}" if why else "")
        case events.TimeLimitChanged(time_limit_s=limit, by=by):
            return f"may run for {limit:.0f} s in all" + (f", says {by}" if by else "")
        case events.NodeChoiceChanged():
            return "may have other nodes than before, as other pods lie elsewhere now"
        case events.WaitExplained(summary=summary):
            return f"waits: {summary}"
        case events.Noted(text=text):
            return text
        case events.Confirmed(decision=number):
            return _confirmed_text(decisions.get(number), event.confinement)
        case events.Refused(decision=number, reason=reason):
            return f"{_REFUSED.get(type(decisions.get(number)), 'could not be done')}: {reason}"
        case events.Kept():
            return f"{_ended_text(event)}; its place is kept until {local_time(event.until)}"
        case events.Ended():
            return _ended_text(event)
        case _:
            return _machine_text(event)


def _machine_text(event: events.Event) -> str:
    """What happened to machines, cards, or the whole cluster."""
    match event:
        case events.NodeClosed(closure=closure):
            return _closure_text(closure)
        case events.NodeOpened(planned=planned, by=by):
            return f"opened by {by or 'somebody'}" + (", and what was planned given up" if planned else "")
        case events.NodePowerChanged(state=state, detail=detail):
            return f"power: {state.value}" + (f" ({detail})" if detail else "")
        case events.CardClosed(card=card, closure=closure):
            return f"card {card} {_closure_text(closure)}"
        case events.CardOpened(card=card, by=by):
            return f"card {card} opened by {by or 'somebody'}"
        case events.CardLayoutChanged():
            return _layout_text(event)
        case events.NodeJoined(node=node) if node.is_silent:
            return "silent"
        case events.NodeJoined(node=node):
            return f"joined with {count_text(len(node.devices), 'card')}"
        case events.NodeLost(by=by):
            return f"forgotten, as {by} says that it does not come back" if by else "lost"
        case events.SchedulingPaused(text=text):
            return f"nothing new starts: {text}"
        case events.SchedulingResumed(cause=cause):
            return f"work starts again ({cause.value} is over)"
        case events.DeviceHealthChanged(device=device, health=health, detail=detail):
            return f"card {device} is {health.value}" + (f": {detail}" if detail else "")
        case events.DeviceReported(device=device, text=text):
            return f"card {device} reports {text}"
        case _:
            return settings_text(event)


def _layout_text(event: events.CardLayoutChanged) -> str:
    into = f"card {event.card} {{}} divided into {layout_text(event.layout)}"
    match event.state:
        case LayoutChangeState.CHANGING:
            return f"{into.format('is being')}, which {event.for_job} waits for"
        case LayoutChangeState.DONE:
            return into.format("has been")
        case LayoutChangeState.FAILED:
            return f"{into.format('could not be')}: {event.detail}"


def _closure_text(closure: Cordon) -> str:
    what = "drained" if closure.drain else "closed"
    begin = f"to be {what} from {local_time(closure.begin)} on" if closure.planned else what
    until = "" if closure.until is None else f" until {local_time(closure.until)}"
    return f"{begin}{until} by {closure.by or 'somebody'}" + (f": {closure.reason}" if closure.reason else "")


def _confirmed_text(decision: Decision | None, confinement: Confinement) -> str:
    match decision:
        case Start(placements=placements):
            running = f"{count_text(len(placements), 'task')} running"
            if confinement.slices is not SliceHold.NOTHING:
                return running
            return f"{running}; nothing keeps it to its part of the card: {confinement.slices_reason}"
        case Stop():
            return "asked to end"
        case Suspend(mode=SuspendMode.FREEZE):
            return "halted; its device memory is on its cards still"
        case Suspend():
            return "left its cards"
        case Resume():
            return "goes on"
        case Migrate():
            return "live-migrated"
        case CapPower():
            return "power cap taken on"
        case Prefetch(contents=contents, node=node):
            return f"what it needs is on {node}" if contents else f"nothing is fetched ahead to {node}"
        case _:
            return "done"


def _ended_text(event: events.Ended | events.Kept) -> str:
    who = "all tasks" if event.task == events.ALL_TASKS else f"task {event.task}"
    code = "" if event.exit_code is None else f", exit code {event.exit_code}"
    beyond = beyond_exit_code(event.detail, event.exit_code)
    detail = f": {beyond}" if beyond else ""
    return f"{who} ended ({event.outcome.value}{code}){detail}"


def _decision_text(decision: Decision) -> str:
    match decision:
        case Start(cause=Cause.MIGRATED, placements=placements, attempt=attempt):
            cards = ", ".join(map(_cards, placements))
            return f"restart-migrated: start {count_text(len(placements), 'task')} on {cards} (attempt {attempt})"
        case Stop(cause=Cause.MIGRATED, grace_s=grace):
            return f"end all tasks within {seconds_text(grace)}, to be restart-migrated"
        case Stop(cause=Cause.CONSOLIDATED, grace_s=grace, for_job=successor):
            whom = f" for {successor}" if successor else ""
            return f"end all tasks within {seconds_text(grace)}, to be restart-migrated so that a node comes free{whom}"
        case Stop(cause=Cause.BALANCED, grace_s=grace):
            return f"end all tasks within {seconds_text(grace)}, to be restart-migrated off a busy card"
        case Start(placements=placements, attempt=attempt):
            nodes = ", ".join(dict.fromkeys(placement.node for placement in placements))
            load = "" if decision.load_milli is None else f", beside load of {decision.load_milli / 10:g} %"
            what = f"start {count_text(len(placements), 'task')} on {nodes}"
            return f"{what} (attempt {attempt}, {decision.cause.value}{load})"
        case Stop(cause=Cause.NOT_KEPT, tasks=tasks):
            return f"give the place of task {tasks[0]} back, as the job is tried again or goes on without it"
        case Stop(tasks=tasks, grace_s=grace, for_job=successor):
            which = "all tasks" if not tasks else f"task {', '.join(map(str, tasks))}"
            room = f" for {successor}" if successor else ""
            return f"end {which} within {seconds_text(grace)}{room} ({decision.cause.value})"
        case Suspend(mode=mode, for_job=successor):
            room = f" for {successor}" if successor else ""
            return f"suspend it ({mode.value}){room} ({decision.cause.value})"
        case Resume(placement=placement):
            where = f" on {_cards(placement)}" if placement is not None else ""
            return f"let it go on{where} ({decision.cause.value})"
        case Migrate(placement=placement):
            return f"live-migrate it to {_cards(placement)} ({decision.cause.value})"
        case CapPower():
            return _cap_text(decision)
        case Prefetch(contents=(), node=node):
            return f"fetch nothing ahead to {node} any more ({decision.cause.value})"
        case Prefetch(contents=contents, node=node):
            names = ", ".join(content.name for content in contents)
            return f"fetch {names} to {node} ahead of its start ({decision.cause.value})"
        case _:
            return f"{type(decision).__name__} ({decision.cause.value})"


def _cap_text(decision: CapPower) -> str:
    cause = decision.cause.value
    if not decision.cap_w:
        return f"keep its cards at no power cap any more ({cause})"
    measured = ""
    if decision.saved:
        slower, saved = max(100.0 * decision.slowdown, 0.0), 100.0 * decision.saved
        measured = f", where a step takes {slower:.1f} % longer and needs {saved:.1f} % less energy"
    return f"keep each of its cards at {decision.cap_w:.0f} W{measured} ({cause})"


def _cards(placement: Placement) -> str:
    return ", ".join(f"card {grant.device}" for grant in placement.grants) or placement.node


def _last_of_array(info: JobInfo, array: ArrayInfo, trials: TrialList | None, seq: int) -> EventInfo:
    """The end of an array in its history: of no event of its own, as it follows from those of its members.

    Args:
        trials: of a sweep, the best of them at least.
    """
    text = f"{info.state}: {array.summary}"
    if trials is not None and trials.metric and trials.trials:
        best = trials.trials[0]
        best_text = f"the best is trial {best.index} with {best.value:.6g}" if best.value is not None else ""
        text += f"; {best_text or f'no trial reported {trials.metric}'}"
    return EventInfo(seq=seq, at=info.ended_at or 0.0, what="Ended", decided=False, text=text, data={}, about=info.id)
