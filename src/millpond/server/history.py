"""One job's story for people: what happened and what was decided, in order, a sentence each."""

from __future__ import annotations

from millpond.model import events
from millpond.model.codec import to_plain
from millpond.model.decisions import Decision, Resume, Start, Stop, Suspend
from millpond.model.nodes import Closure
from millpond.server.store.histories import DecisionEntry, LogEntry, node_of
from millpond.server.wording import local_time
from millpond.specs.api import EventInfo


def story(happened: list[LogEntry], decided: list[DecisionEntry]) -> list[EventInfo]:
    """Events and decisions of one job merged, counted from 1: a decision comes after the events of its turn."""
    told = account(happened, decided, {entry.decision.id: entry.decision for entry in decided})
    return [line.model_copy(update={"seq": number}) for number, line in enumerate(told, start=1)]


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
        case events.StopRequested(by=by, reason=reason):
            return f"{by or 'somebody'} asked for its end" + (f": {reason}" if reason else "")
        case events.SuspendRequested():
            return "somebody asked that it leave its cards"
        case events.ResumeRequested():
            return "somebody asked that it go on"
        case events.DesiredCountChanged(role=role, desired=desired, why=why):
            return f"role {role} should have {_count(desired, 'task')}" + (f": {why}" if why else "")
        case events.TimeLimitChanged(time_limit_s=limit):
            return f"may run for {limit:.0f} s in all"
        case events.Noted(text=text):
            return text
        case events.NodeClosed(closure=closure):
            return _closure_text(closure)
        case events.NodeOpened(planned=planned, by=by):
            return f"opened by {by or 'somebody'}" + (", and what was planned given up" if planned else "")
        case events.NodeJoined(node=node):
            return f"joined with {_count(len(node.devices), 'card')}"
        case events.NodeLost():
            return "lost"
        case events.StartsHeld(text=text):
            return f"nothing new starts: {text}"
        case events.StartsFreed(cause=cause):
            return f"work starts again ({cause.value} is over)"
        case events.DeviceHealthChanged(device=device, health=health, detail=detail):
            return f"card {device} is {health.value}" + (f": {detail}" if detail else "")
        case events.Confirmed(decision=number):
            return _confirmed_text(decisions.get(number))
        case events.Refused(reason=reason):
            return f"could not be done: {reason}"
        case events.Ended():
            return _ended_text(event)
        case _:
            return type(event).__name__


def _closure_text(closure: Closure) -> str:
    what = "drained" if closure.drain else "closed"
    begin = f"to be {what} from {local_time(closure.begin)} on" if closure.planned else what
    until = "" if closure.until is None else f" until {local_time(closure.until)}"
    return f"{begin}{until} by {closure.by or 'somebody'}" + (f": {closure.reason}" if closure.reason else "")


def _confirmed_text(decision: Decision | None) -> str:
    match decision:
        case Start(placements=placements):
            return f"{_count(len(placements), 'task')} running"
        case Stop():
            return "told to end"
        case Suspend():
            return "left its cards"
        case Resume():
            return "goes on"
        case _:
            return "done"


def _ended_text(event: events.Ended) -> str:
    who = "all tasks" if event.task == events.ALL_TASKS else f"task {event.task}"
    code = "" if event.exit_code is None else f", exit code {event.exit_code}"
    detail = f": {event.detail}" if event.detail else ""
    return f"{who} ended ({event.outcome.value}{code}){detail}"


def _decision_text(decision: Decision) -> str:
    match decision:
        case Start(placements=placements, attempt=attempt):
            nodes = ", ".join(dict.fromkeys(placement.node for placement in placements))
            return f"start {_count(len(placements), 'task')} on {nodes} (attempt {attempt}, {decision.cause.value})"
        case Stop(tasks=tasks, grace_s=grace, for_job=successor):
            which = "all tasks" if not tasks else f"task {', '.join(map(str, tasks))}"
            room = f" for {successor}" if successor else ""
            return f"end {which} within {grace:g} s{room} ({decision.cause.value})"
        case Suspend(mode=mode, for_job=successor):
            room = f" for {successor}" if successor else ""
            return f"suspend it ({mode.value}){room} ({decision.cause.value})"
        case Resume():
            return f"let it go on ({decision.cause.value})"
        case _:
            return f"{type(decision).__name__} ({decision.cause.value})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
