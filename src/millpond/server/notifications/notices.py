"""What is told: a job started, was preempted or suspended, or ended, and what time alone brings about.

A job that has failed and whose place is kept is told of at once, and not again when the place is given back. Of arrays
the end alone is told, of their members nothing: ten thousand of them would be as many messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from millpond.model.decisions import Start, Stop, Suspend
from millpond.model.reasons import Cause
from millpond.server.catalogues import ENGLISH, TextCatalogue, Translate
from millpond.server.phrases.phrasebook import phrase_in
from millpond.server.runtime.loop_dependencies import TurnResult
from millpond.server.wording import local_time, rounded_span
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.notifications import Topic

TRIAL: Final = "trial"
"""The topic of messages that somebody has sent to see whether they come."""
_PREEMPTING = (Cause.PREEMPTED, Cause.RECLAIMED, Cause.DRAINED)
_LATER_FIELDS: Final = {"reservation": "", "by": "", "span_s": None, "ends_at": None, "cards": 0}
"""What notices of turns have not, so that their bodies are what receivers of webhooks know."""
_LONGEST_DETAIL: Final = 500
NOTICE_TEXTS: Final = TextCatalogue("millpond.server.notifications", "notices")
"""What messages to users say."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened.

    Attributes:
        at: seconds since 1970.
        job: its id; empty where the notice is of a queue or a reservation.
        user: whose it is: the owner of the job, or who made the reservation.
        exit_code: of a job that ended.
        detail: why it failed, where more is known than the exit code.
        for_job: the job that it made room for, when it was preempted.
        reservation: the name of one that began, with its ``cards``.
        by: who changed a queue; empty for the configuration.
        span_s: how long a job has waited, or has been idle.
        ends_at: when it ends.
    """

    topic: Topic
    at: float
    job: str
    name: str
    user: str
    queue: str
    attempt: int = 0
    exit_code: int | None = None
    detail: str = ""
    for_job: str = ""
    reservation: str = ""
    by: str = ""
    span_s: float | None = None
    ends_at: float | None = None
    cards: int = 0

    def plain(self) -> dict[str, Any]:
        """As data for JSON."""
        return {name: value for name, value in asdict(self).items() if _LATER_FIELDS.get(name, self) != value}

    @classmethod
    def of_plain(cls, data: Mapping[str, Any]) -> Self:
        """The notice whose data this is."""
        return cls(**{**data, "topic": Topic(data["topic"])})

    @property
    def sentence(self) -> str:
        """For people, in English."""
        return sentence(self, ENGLISH)


def sentence(notice: Notice, language: str) -> str:
    """A notice in words of a language, of one line."""
    _ = NOTICE_TEXTS.words(language)
    who = _("%(job)s of %(user)s") if notice.user else "%(job)s"
    values = {
        "who": who % {"job": _named(notice), "user": notice.user},
        "queue": notice.queue,
        "by": notice.by,
        "run": notice.attempt,
        "for_job": notice.for_job,
        "reservation": notice.reservation,
        "cards": notice.cards,
        "span": phrase_in(language, rounded_span(notice.span_s or 0.0)),
        "end": local_time(notice.ends_at or 0.0),
        "why": phrase_in(language, notice.detail or f"exit code {notice.exit_code}"),
    }
    return one_line(_template(notice, _) % values, _LONGEST_DETAIL)


def stored_text(plain: Mapping[str, Any], text: str, language: str) -> str:
    """What was or is to be sent, in words of a language, as far as it has words for it.

    Args:
        plain: the notice as it is stored.
        text: the English words that are stored with it.
    """
    if language == ENGLISH:
        return text
    if plain.get("topic") not in set(Topic):
        return phrase_in(language, text)
    return sentence(Notice.of_plain(plain), language)


def _named(notice: Notice) -> str:
    """The job by its id, and by its name where the id, which is in ASCII, does not tell it."""
    is_told = not notice.name or notice.job.startswith(notice.name)
    return notice.job if is_told else f"{notice.job} ({notice.name})"


def _template(notice: Notice, _: Translate) -> str:
    match notice.topic:
        case Topic.STARTED:
            return _("%(who)s started, run %(run)d") if notice.attempt > 1 else _("%(who)s started")
        case Topic.PREEMPTED:
            return _("%(who)s was preempted for %(for_job)s") if notice.for_job else _("%(who)s was preempted")
        case Topic.SUSPENDED:
            return _("%(who)s was suspended for %(for_job)s") if notice.for_job else _("%(who)s was suspended")
        case Topic.SUCCEEDED:
            return _("%(who)s succeeded")
        case Topic.CANCELLED:
            return _("%(who)s was cancelled")
        case Topic.FAILED:
            return _("%(who)s failed: %(why)s")
        case Topic.WAITING:
            return _("%(who)s has waited for its start for %(span)s")
        case Topic.IDLE:
            return _("the cards of %(who)s have not computed for %(span)s")
        case Topic.ENDING:
            return _("%(who)s ends at %(end)s")
        case Topic.RESERVATION_BEGAN:
            return _("reservation %(reservation)s of queue %(queue)s has begun: %(cards)d cards")
        case Topic.QUEUE_CHANGED:
            return _("%(by)s changed queue %(queue)s") if notice.by else _("queue %(queue)s was changed")


def one_line(text: str, longest: int) -> str:
    """A text without line ends, control characters and what turns its direction, cut where it is endless."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[:longest]}…"


def notices_of(turn: TurnResult) -> list[Notice]:
    """The notices of one turn."""
    at, found = turn.at, []
    for decision in turn.decisions:
        info = turn.jobs(decision.job)
        if info is None or info.parent:
            continue
        match decision:
            case Start(joins=False):
                found.append(job_notice(Topic.STARTED, at, info, attempt=decision.attempt))
            case Stop(tasks=()) if decision.cause in _PREEMPTING:
                found.append(job_notice(Topic.PREEMPTED, at, info, for_job=decision.for_job))
            case Suspend() if decision.cause is not Cause.TURN_TAKEN:  # which comes round every few minutes
                found.append(job_notice(Topic.SUSPENDED, at, info, for_job=decision.for_job))
            case _:
                continue
    for info in turn.settled:
        if info.parent or (info.kept_until is not None and not info.is_kept):
            continue
        detail = info.array.summary if info.array else info.culprit.detail if info.culprit else ""
        if info.kept_until is not None:
            detail = f"{detail}; its place is kept until {local_time(info.kept_until)}"
        found.append(job_notice(Topic(f"job.{info.settled}"), at, info, exit_code=info.exit_code, detail=detail))
    return found


def job_notice(topic: Topic, at: float, info: JobInfo, **more: Any) -> Notice:
    """A notice of a job."""
    basics: dict[str, Any] = {"attempt": info.attempt} | more
    return Notice(topic, at, info.id, info.name, info.user, info.queue, **basics)
