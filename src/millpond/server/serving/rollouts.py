"""The thread that advances rollouts of services, one step after the other, from what is stored.

It may be killed anywhere: which revision comes and which is present is in the store, how many replicas each has in the
scheduler, and the rest follows. A revision's job is submitted when there is none by its id yet.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.engines.task_access import TaskAccess
from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import Kind
from millpond.node.host.clocks import MonotonicClock
from millpond.node.host.periodic_worker import EXPECTED, UNTIL_WOKEN, Periodic, PeriodicWorker, for_each
from millpond.server.runtime.inbox import Submission
from millpond.server.runtime.loop import Loop
from millpond.server.serving.front import ServiceFront, Split
from millpond.server.serving.probes import Probe
from millpond.server.serving.proxy.endpoints import TaskEndpoint, places_of
from millpond.server.serving.registry import Revisions
from millpond.server.serving.replica_counts import Goal, Sizing
from millpond.server.serving.revisions import GONE, HELD, TO_BE_SUBMITTED, Phase, Revision, Side, next_step
from millpond.server.storage.provisioning.admission import NEEDED
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_spec import stored_job
from millpond.specs.job.serving import Serve

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5
"""While any revision comes or goes."""
BY: Final = "the rollout"


class Rollouts(Periodic):
    """Looks after all services that have a revision on its way.

    Args:
        job_store: where jobs are known.
        front: whose routes are changed as revisions come and go.
    """

    def __init__(
        self,
        loop: Loop,
        job_store: JobStore,
        revisions: Revisions,
        front: ServiceFront,
        access: TaskAccess,
        clock: MonotonicClock,
    ) -> None:
        self._loop = loop
        self._job_store = job_store
        self._revisions = revisions
        self._routes = front.routes
        self._sizing = Sizing(loop, front.balancer, clock)
        self._access = access
        self._clock = clock
        self._probe = Probe(access)
        self._ready: Counter[str] = Counter()
        self._progress: dict[str, tuple[int, float]] = {}
        self._troubles: dict[str, str] = {}
        self._unsettled = set(revisions.services)
        self._worker = PeriodicWorker("rollouts", self._pass, LOOK_EVERY_S, "rollouts wait", (*EXPECTED, DBAPIError))
        for service in revisions.services:
            self._route(service)

    def close(self) -> None:
        """No more looks."""
        if self._worker.close():
            self._probe.close()

    def changed(self, service: str) -> None:
        """Something was asked of a service: its requests take their new routes at once."""
        self._unsettled.add(service)
        self._route(service)
        self._worker.wake()

    def speaks_for(self, job: str) -> bool:
        """Whether the number of a job's replicas is decided here at the moment."""
        for service in list(self._unsettled):
            coming, present = self._revisions.coming(service), self._revisions.present(service)
            if coming is None or present is None or coming.phase is Phase.CANARY:
                continue
            if job in (coming.job, present.job):
                return True
        return False

    def look(self) -> None:
        """Do the next step of each service; one that cannot be done now keeps no other waiting."""
        services = list(self._unsettled)
        replicas = [replica for service in services for replica in self._replicas(service)]
        self._ready = Counter(place.task.job for place in self._probe.ready_ones(replicas))
        for_each(services, self._try_step)

    def _pass(self) -> float:
        self.look()
        return LOOK_EVERY_S if self._unsettled else UNTIL_WOKEN

    def _replicas(self, service: str) -> list[tuple[TaskEndpoint, Serve]]:
        """The running replicas of the revisions between which a service changes."""
        coming, present = self._revisions.coming(service), self._revisions.present(service)
        if coming is None or present is None:
            return []
        found = []
        for revision in (coming, present):
            info = self._loop.job_cache.get(revision.job)
            if info is not None:
                # Nothing of it runs now, or its file cannot be read, which its step reports.
                with suppress(MillpondError):
                    places = places_of(info, self._access)
                    serve = stored_job(revision.document).file.serve or Serve()
                    found += [(place, serve) for place in places]
        return found

    def _try_step(self, service: str) -> None:
        try:
            self._step(service)
        except MillpondError as error:
            self._warn(service, str(error))
        else:
            self._troubles.pop(service, None)

    def _step(self, service: str) -> None:
        self._end_leftovers(service)
        coming = self._revisions.coming(service)
        if coming is not None:
            self._advance(coming)
        elif not self._leftovers(service):
            self._unsettled.discard(service)
            if self._revisions.coming(service) is not None:  # it was begun meanwhile
                self._unsettled.add(service)

    def _warn(self, service: str, trouble: str) -> None:
        """Log what keeps a service waiting, once."""
        if self._troubles.get(service) != trouble:
            self._troubles[service] = trouble
            log.warning("the rollout of %s waits: %s", service, trouble)

    def _advance(self, revision: Revision) -> None:
        present = self._revisions.present(revision.service)
        assert present is not None, "a revision comes to take the place of another"
        file = stored_job(revision.document).file
        serve = file.serve or Serve()
        coming_side, present_side = self._side(revision), self._side(present)
        overdue = self._is_overdue(revision, coming_side, serve.rollout.deadline)
        step = next_step(revision, serve.rollout, coming_side, present_side, overdue)
        if step.phase is not None:
            told = step.told + self._circumstance(revision) if step.phase is Phase.UNDOING else step.told
            self._enter(revision, step.phase, told or revision.told)
            return
        if step.coming and not coming_side.submitted:
            self._submit(revision, step.coming)
        else:
            self._resize(revision.job, step.coming, f"revision {revision.number} comes", serve.drain)
        drain_s = (stored_job(present.document).file.serve or Serve()).drain
        self._resize(present.job, step.present, f"revision {revision.number} takes its place", drain_s)

    def _circumstance(self, revision: Revision) -> str:
        """What is known of why a revision did not come up; may be empty."""
        info = self._loop.job_cache.get(revision.job) or self._job_store.ended_job(revision.job)
        if info is None:
            return ""
        if info.state == JobState.QUEUED:
            why = self._loop.look_up(lambda core: core.scheduler.cause(info.id, core.now))
            return f"; it waits: {why.summary}"
        detail = next((task.detail for task in info.tasks if task.detail), "")
        return f": {detail}" if detail else ""

    def _enter(self, revision: Revision, phase: Phase, told: str) -> None:
        if not self._revisions.enter(revision, phase, told):
            return
        self._progress.pop(revision.job, None)
        self._route(revision.service)
        text = f"revision {revision.number} is {phase}" + (f": {told}" if told else "")
        present = self._revisions.present(revision.service)
        for job in {revision.job, present.job if present is not None else ""}:
            if self._loop.job_cache.get(job) is not None:
                self._loop.note(job, text)
                self._sizing.call_off(job)

    def _resize(self, job: str, replicas: int | None, why: str, drain_s: float) -> None:
        info = self._loop.job_cache.get(job)
        if replicas is not None and info is not None:
            self._sizing.pursue(info, Goal(replicas, why), drain_s)

    def _submit(self, revision: Revision, replicas: int) -> None:
        job = stored_job(revision.document).to_job(revision.job, revision.user)
        (role,) = job.roles
        first = replace(role, desired=min(replicas, role.maximum))
        placed = replace(job, roles=(first,), group=revision.group)
        # What it needs was settled when the revision was made, and may have left the machine since.
        submission = Submission(placed, revision.document, waits=not NEEDED.isdisjoint(revision.document))
        try:
            self._loop.wait_for(self._loop.submit(submission))
        except UnavailableError:
            raise  # a full disk, say: the next look submits it, or finds it submitted
        except MillpondError as error:
            self._enter(revision, Phase.UNDONE, f"it cannot be submitted: {error.cause}")

    def _side(self, revision: Revision) -> Side:
        """How the job of a revision stands now."""
        info = self._loop.job_cache.get(revision.job)
        if info is None and not self._is_known(revision.job):
            return TO_BE_SUBMITTED
        desired = None if info is None else self._sizing.now(revision.job)
        if info is not None and desired is None and info.state == JobState.QUEUED:
            return HELD  # the scheduler gets it when all that it needs is here
        if info is None or desired is None:
            return GONE
        waiting = sum(task.state == TaskState.QUEUED for task in info.tasks)
        return Side(desired, self._ready[revision.job], waiting=min(waiting, desired))

    def _is_known(self, job: str) -> bool:
        return self._loop.job_cache.get(job) is not None or self._job_store.is_job(job)

    def _is_overdue(self, revision: Revision, coming: Side, deadline_s: float) -> bool:
        """Whether it waits for a replica to become ready for too long; the time counts anew after a restart."""
        now = self._clock()
        most, since = self._progress.get(revision.job, (-1, now))
        if coming.ready > most or coming.ready >= coming.desired or revision.paused:
            most, since = max(coming.ready, most), now
        self._progress[revision.job] = (most, since)
        return now > since + deadline_s

    def _leftovers(self, service: str) -> list[JobInfo]:
        """Jobs of revisions that were replaced or withdrawn, and have not ended."""
        gone = [each for each in self._revisions.of(service) if each.phase in (Phase.RETIRED, Phase.UNDONE)]
        shown = [self._loop.job_cache.get(each.job) for each in gone]
        return [info for info in shown if info is not None and info.kind == Kind.SERVICE]

    def _end_leftovers(self, service: str) -> None:
        for info in self._leftovers(service):
            if info.state != "stopping":
                self._loop.stop_job(info.id, BY)

    def _route(self, service: str) -> None:
        """Send requests for a service where its revisions want them."""
        present, coming = self._revisions.present(service), self._revisions.coming(service)
        if present is None:
            return
        if coming is None:
            split = Split((present.job,))
        elif coming.phase is Phase.ROLLING:
            split = Split((present.job, coming.job))
        else:
            split = Split((present.job,), coming.job, coming.percent if coming.phase is Phase.CANARY else 0.0)
        self._routes.put(service, split)
