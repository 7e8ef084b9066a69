"""Keeps a job for every gang of pods that others made and that name Millpond as their scheduler.

It is level-triggered: each look compares the gangs that wait with the jobs that stand for them. A gang that no waiting
job stands for is submitted as a new one; those that wait are told why, in the words of ``pond why``. Before a job is
submitted the engine knows which gang it stands for, so that it can never come to start it as a job of the server's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from millpond.engines.kubernetes.adoption.gangs import Adoption, FoundGang, GangKey
from millpond.model.errors import ConflictError, InconsistentStateError, MillpondError, UnavailableError
from millpond.model.events import NodeChoiceChanged, StopRequested
from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.states import JobState, TaskState
from millpond.model.task_spacing import SpacingRule
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker, for_each
from millpond.scheduling.records import JobRecord
from millpond.server.jobs.admission.submission import new_ids
from millpond.server.jobs.adoption.gang_documents import as_pods_can, name_of, place_of, spec_of
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import ChangeJob, Submission
from millpond.server.runtime.loop import ANSWER_WITHIN_S
from millpond.server.server_components import ServerComponents
from millpond.server.store.jobs import Owners
from millpond.server.views.reasons import reason_info
from millpond.server.views.visibility import Reader
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo
from millpond.specs.config.kubernetes import AdoptFile

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
SOON_S: Final = 1.0
AGAIN_S: Final = 15.0
"""A gang that was refused is tried again after so long: the cluster, or the configuration, may have changed."""
MOST_ANSWERS: Final = 40
"""So many jobs are asked about in one look, each in a question to the scheduler's thread of its own."""
_COVERING: Final = frozenset({JobState.QUEUED, JobState.STARTING, JobState.STOPPING})
"""States of a job that has, or will have, the pods of its gang that wait."""


NodeChoice: TypeAlias = "tuple[NodeSelection, tuple[SpacingRule, ...]]"
"""The nodes that a job may have, and how its tasks must lie towards each other."""
_MADE_ANEW: Final = "delete these pods, or their owner, and make them anew to line them up again"
_GROWS: Final = "the least of its gang runs; this pod joins when there is room for it"


@dataclass(frozen=True, slots=True)
class _Refused:
    """A gang as it was refused, and when."""

    gang: FoundGang
    at: float


@dataclass(frozen=True, slots=True)
class _SentGang:
    """A gang that was submitted, and the answer that is to come."""

    gang: FoundGang
    job: str
    answer: Future[list[JobInfo]]


class Adopter(Periodic):
    """Submits gangs and answers them, on a thread of its own.

    Args:
        rules: as the configuration has them now.
        known: the gangs of jobs that live, from before this server began.
    """

    def __init__(
        self,
        components: ServerComponents,
        adoption: Adoption,
        rules: Callable[[], AdoptFile],
        known: Mapping[str, GangKey],
    ) -> None:
        self._components = components
        self._loop = components.loop
        self._adoption = adoption
        self._rules = rules
        self._gangs = dict(known)
        self._sent: dict[GangKey, _SentGang] = {}
        """Submissions without an answer: a gang is not submitted again before it is known what became of the first."""
        self._refused: dict[GangKey, _Refused] = {}
        self._chosen: dict[str, NodeChoice] = {}
        """By job, the nodes that it asks for as far as was looked."""
        self._changed_at: dict[str, float] = {}
        """By job, when it was last told of other nodes, a moment ago."""
        self._sizes: dict[str, int] = {}
        """By job, how many pods were to start together when it was submitted, or first seen."""
        self._resized: set[str] = set()
        """Jobs that are given up as that is another number by now."""
        self._stopped: dict[GangKey, str] = {}
        """By gang, the job that was stopped while its pods waited: they are not lined up again by themselves."""
        self._asked: dict[str, str] = {}
        """By job, its last reason in short; those asked about longest ago first."""
        self._answered_at = time.monotonic()
        self._worker = PeriodicWorker("adopter", self.look, LOOK_EVERY_S, "pods of others are not looked after now")

    def wake(self) -> None:
        """There is a gang to be lined up. Any thread."""
        self._worker.wake()

    def look(self) -> float | None:
        """Compare gangs and jobs once; what was submitted is soon looked at again, to be told why it waits.

        While gangs come all the time, answers wait for a while: each keeps the scheduler from binding the next ones.
        """
        self._settle(0.0)
        covering = self._standing()  # before the gangs are asked for: a job that runs since has taken its pods by then
        found = {gang.key: gang for gang in self._adoption.gangs()}
        self._forget_ended(found)
        self._refused = {key: refused for key, refused in self._refused.items() if key in found}
        self._stopped = {key: job for key, job in self._stopped.items() if key in found}
        handled = covering.keys() | self._stopped.keys() | self._sent.keys()
        ready = [gang for gang in found.values() if not (gang.trouble or gang.key in handled)]
        due = [gang for gang in ready if self._is_due(gang)]
        self._submit(due)
        standing = {job: key for key, job in covering.items() if key in found}
        gangs = {job: found[key] for job, key in standing.items()}
        self._give_up_resized(gangs)
        self._choose_anew(gangs)
        now = time.monotonic()
        if not due or now - self._answered_at >= LOOK_EVERY_S:
            self._answered_at = now
            self._answer(standing)
        return SOON_S if due else None

    def _standing(self) -> dict[GangKey, str]:
        """By gang, the job that has or will have its pods that wait."""
        living = ((job, key, self._loop.job_cache.get(job)) for job, key in self._gangs.items())
        return {
            key: job for job, key, info in living if info is not None and (info.state in _COVERING or _may_grow(info))
        }

    def _forget_ended(self, waiting: Container[GangKey]) -> None:
        """Jobs that have ended stand for nothing any more; where one was stopped whose pods wait, these are told."""
        for job, key in list(self._gangs.items()):
            if self._loop.job_cache.get(job) is not None:
                continue
            self._adoption.withdraw(job)
            del self._gangs[job]
            ended = self._components.lookup.find(job) if key in waiting and job not in self._resized else None
            self._resized.discard(job)
            if ended is not None and ended.state == JobState.CANCELLED:
                self._stopped[key] = job
                self._adoption.answer(key, f"its job {job} was stopped; {_MADE_ANEW}")

    def _is_due(self, gang: FoundGang) -> bool:
        refused = self._refused.get(gang.key)
        return refused is None or refused.gang != gang or time.monotonic() - refused.at >= AGAIN_S

    def _submit(self, gangs: Sequence[FoundGang]) -> None:
        """Submit jobs that stand for gangs; all are on their way before the first is waited for.

        Raises:
            UnavailableError: the scheduler does not answer: the next look goes on with those that are on their way.
        """
        names = new_ids(self._components.store.jobs, [name_of(gang) for gang in gangs])
        for gang, job in zip(gangs, names, strict=True):
            try:
                submission = self._submission(gang, job)
            except MillpondError as error:
                self._refuse(gang, error)
                continue
            except Exception as error:  # one user's pods must not hold up those of all others
                log.exception("%s cannot be lined up by a defect", gang.key.text)
                self._refuse(gang, InconsistentStateError(f"a defect ({type(error).__name__})", "see the server's log"))
                continue
            self._adoption.entrust({job: gang.key})
            self._sent[gang.key] = _SentGang(gang, job, self._loop.submit(submission))
        self._settle(ANSWER_WITHIN_S)
        if self._sent:
            raise UnavailableError(
                f"no answer from the scheduler within {ANSWER_WITHIN_S:g} s", "the answer is waited for"
            )

    def _settle(self, within_s: float) -> None:
        """Note what became of submissions, as far as they are answered within so many seconds together."""
        done, _ = wait([sent.answer for sent in self._sent.values()], within_s)
        for key, sent in [(key, sent) for key, sent in self._sent.items() if sent.answer in done]:
            del self._sent[key]
            error = sent.answer.exception()
            if error is None:
                self._gangs[sent.job] = key
                self._refused.pop(key, None)
            elif isinstance(error, MillpondError):
                self._adoption.withdraw(sent.job)
                self._refuse(sent.gang, error)
            else:
                raise error

    def _submission(self, gang: FoundGang, job_id: str) -> Submission:
        rules = self._rules()
        place = place_of(gang, rules)
        spec = spec_of(gang, place, rules)
        group = self._components.accounts.group_of_queue(place.queue)
        job = spec.to_job(job_id, place.user)
        job = replace(job, group=group.name if group is not None else "")
        return Submission(job, spec.document, forecast=self._components.forecaster.predict_at_once(job))

    def _choose_anew(self, standing: Mapping[str, FoundGang]) -> None:
        """Have jobs that wait ask for the nodes that their pods may have now, as other pods lie elsewhere by then."""
        chosen = {job: (gang.terms.selection, gang.terms.spacing) for job, gang in standing.items() if not gang.trouble}
        now = time.monotonic()
        self._changed_at = {job: at for job, at in self._changed_at.items() if now - at < SOON_S}
        news = {
            job: choice
            for job, choice in chosen.items()
            if self._chosen.get(job) != choice and job not in self._changed_at
        }
        waiting = self._loop.look_up(partial(_waiting, jobs=tuple(news))) if news else {}
        for job, asked in waiting.items():
            if asked != news[job]:
                self._changed_at[job] = now  # where pods come and go all the time, not with each of them
                self._loop.change_job(ChangeJob(job, partial(_changed, choice=news[job])))
        # One that is being started may come back, so it is looked at again.
        self._chosen = {
            job: choice for job, choice in chosen.items() if job in waiting or self._chosen.get(job) == choice
        }

    def _give_up_resized(self, standing: Mapping[str, FoundGang]) -> None:
        """End jobs that wait and whose PodGroup says another size by now; their pods are lined up anew."""
        self._sizes = {job: self._sizes.get(job) or gang.size for job, gang in standing.items()}
        for job, gang in standing.items():
            info, before = self._loop.job_cache.get(job), self._sizes[job]
            if gang.size and gang.size != before and info is not None and info.state == JobState.QUEUED:
                self._resized.add(job)
                why = f"{gang.size} pods of {gang.key.text} start together now, and {before} did when it was lined up"
                self._loop.change_job(ChangeJob(job, partial(_given_up, why=why)))

    def _refuse(self, gang: FoundGang, error: MillpondError) -> None:
        self._refused[gang.key] = _Refused(gang, time.monotonic())
        self._adoption.answer(gang.key, _sentence(error.cause, error.remedy))

    def _answer(self, waiting: Mapping[str, GangKey]) -> None:
        """Say why jobs wait: a few at a time, those first that were asked about longest ago."""
        self._asked = {job: before for job, before in self._asked.items() if job in waiting}
        chosen = [*(job for job in waiting if job not in self._asked), *self._asked][:MOST_ANSWERS]
        for_each(chosen, lambda job: self._answer_one(job, waiting[job]))

    def _answer_one(self, job: str, key: GangKey) -> None:
        before = self._asked.pop(job, None)
        self._asked[job] = before or ""  # it counts as asked about also where that fails
        brief, found = self._loop.look_up(partial(_why, job=job, before=before), is_long=True)
        self._asked[job] = brief
        if found is not None:
            self._adoption.answer(key, self._veiled(job, found))
        elif brief == _GROWS != before:
            self._adoption.answer(key, _GROWS)

    def _veiled(self, job: str, reason: ReasonInfo) -> str:
        """What whoever made the pods may read of it."""
        info = self._loop.job_cache.get(job)
        user, group = ("", "") if info is None else (info.user, info.group)
        reader = Reader(Owners(user, frozenset({group} - {""})))
        shown = reader.reason(reason, self._components.lookup.find)
        shown = as_pods_can(shown, self._components.store.jobs.document(job) or {})
        return _sentence(shown.summary, shown.remedy.change if shown.remedy is not None else "")


def _waiting(core: Core, jobs: Sequence[str]) -> dict[str, NodeChoice]:
    """Those of these jobs that wait, and the nodes that each asks for."""
    records = filter(None, map(core.scheduler.jobs.get, jobs))
    return {each.id: (each.job.only_on, each.job.spacing) for each in records if each.state is JobState.QUEUED}


def _changed(record: JobRecord, now: float, *, choice: NodeChoice) -> NodeChoiceChanged:
    return NodeChoiceChanged(now, record.id, *choice)


def _given_up(record: JobRecord, now: float, *, why: str) -> StopRequested:
    if record.state is not JobState.QUEUED:
        raise ConflictError(f"job {record.id} waits no more", "it goes on as it was lined up")
    return StopRequested(now, record.id, by="Kubernetes", reason=why)


def _may_grow(info: JobInfo) -> bool:
    """Whether a job that runs has room for more pods of its gang."""
    return info.state == JobState.RUNNING and any(task.state == TaskState.QUEUED for task in info.tasks)


def _why(core: Core, job: str, before: str | None) -> tuple[str, ReasonInfo | None]:
    """Why a job waits, in short, and with all that would help where that is another reason than before."""
    record = core.scheduler.jobs.get(job)
    if record is None or record.state is not JobState.QUEUED:
        return _GROWS if record is not None and record.state is JobState.RUNNING else "", None
    brief = core.scheduler.cause(job, core.now).summary
    if brief == before:
        return brief, None
    return brief, reason_info(job, record.state, core.scheduler.explain(job, core.now, within_s=LOOK_EVERY_S))


def _sentence(what: str, remedy: str) -> str:
    return f"{what}; {remedy}" if remedy else what
