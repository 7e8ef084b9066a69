"""All revisions of all services, in memory and in the store, and what people may ask of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Final

import sqlalchemy as sa

from millpond.model.errors import ConflictError
from millpond.node.host.clocks import WallClock
from millpond.server.serving.revisions import Phase, Revision
from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_ids import revision_job, service_of

NOTHING_COMES: Final = "look at its revisions with `pond rollout status`"


class RevisionStore(TableStore):
    """The table of one open database. Every ``save`` is a transaction."""

    def save(self, *revisions: Revision) -> None:
        """Keep these as they are now, all or none."""
        self._save(*((schema.revisions, _row(revision)) for revision in revisions))

    def all(self) -> list[Revision]:
        """All of them, service by service, the first first."""
        table = schema.revisions
        query = sa.select(table).order_by(table.c.service, table.c.number)
        return [
            Revision(**{**row._mapping, "document": json.loads(row.document), "phase": Phase(row.phase)})
            for row in self._rows(query)
        ]

    def forget(self) -> None:
        """Drop services of which no job is known any more."""
        table, jobs = schema.revisions, schema.jobs
        known = sa.select(table.c.service).join(jobs, jobs.c.id == table.c.job).where(jobs.c.document != "{}")
        coming = sa.select(table.c.service).where(table.c.phase.in_([phase for phase in Phase if phase.coming]))
        self._execute(table.delete().where(table.c.service.not_in(known), table.c.service.not_in(coming)))


class Revisions:
    """Every change is stored before it counts. Any thread."""

    def __init__(self, store: RevisionStore, clock: WallClock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()
        store.forget()
        self._by_service: dict[str, list[Revision]] = {}
        for revision in store.all():
            self._by_service.setdefault(revision.service, []).append(revision)

    @property
    def services(self) -> list[str]:
        """Services that were ever updated."""
        with self._lock:
            return list(self._by_service)

    def of(self, service: str) -> list[Revision]:
        """The revisions of a service, the first first; empty when it was never updated."""
        with self._lock:
            return list(self._by_service.get(service, ()))

    def present(self, service: str) -> Revision | None:
        """The present revision; None when the service was never updated."""
        return next((each for each in self.of(service) if each.phase is Phase.CURRENT), None)

    def coming(self, service: str) -> Revision | None:
        """The revision that comes, or is withdrawn."""
        return next((each for each in self.of(service) if each.phase.coming), None)

    def require_free_size(self, job: str) -> None:
        """That no rollout decides how many replicas a job of a service has: it would undo what somebody asks for.

        Raises:
            ConflictError: one does.
        """
        coming, present = self.coming(service_of(job)), self.present(service_of(job))
        if coming is None or present is None or job not in (coming.job, present.job):
            return
        if coming.phase is Phase.UNDOING or (coming.phase is Phase.ROLLING and not coming.paused):
            raise _on_its_way(coming)

    def begin(
        self, present: JobInfo, documents: tuple[dict[str, Any], dict[str, Any]], sizes: tuple[int, int], percent: float
    ) -> Revision:
        """Have another revision come.

        Args:
            present: the job that runs the present one.
            documents: its job file, and the new one.
            sizes: replicas that the present one has, and that the new one is to have.
            percent: of the requests that it gets first; 0: it takes over at once.

        Raises:
            ConflictError: another one comes already.
        """
        service = service_of(present.id)
        with self._lock:
            if (other := self.coming(service)) is not None:
                raise _on_its_way(other)
            known = self.of(service) or [
                Revision(
                    *(service, 1, present.id, documents[0], present.user, present.group),
                    created_at=present.submitted_at,
                    phase=Phase.CURRENT,
                    target=max(sizes[0], 1),
                )
            ]
            number = known[-1].number + 1
            fresh = Revision(
                *(service, number, revision_job(service, number), documents[1], present.user, present.group),
                created_at=self._clock(),
                phase=Phase.CANARY if percent else Phase.ROLLING,
                percent=percent,
                target=sizes[1],
                before=sizes[0],
            )
            self._put(known, fresh)
            return fresh

    def enter(self, revision: Revision, phase: Phase, told: str) -> bool:
        """The coming revision goes on to another phase; one that becomes the present one retires the one before.

        Returns:
            Whether it does: not where somebody has asked for something else since it was as it is given.
        """
        with self._lock:
            if revision not in self.of(revision.service):
                return False
            changed = [replace(revision, phase=phase, told=told, paused=False)]
            if phase is Phase.CURRENT and (before := self.present(revision.service)) is not None:
                changed.append(replace(before, phase=Phase.RETIRED, told=f"revision {revision.number} replaced it"))
            self._put(changed)
            return True

    def pause(self, service: str, *, paused: bool) -> Revision:
        """Have the coming revision stay as it is, or go on.

        Raises:
            ConflictError: none comes.
        """
        with self._lock:
            coming = self._one_that_comes(service)
            self._put([replace(coming, paused=paused)])
            return coming

    def promote(self, service: str) -> Revision:
        """Have a canary take the place of the present revision.

        Raises:
            ConflictError: there is no canary.
        """
        with self._lock:
            coming = self._one_that_comes(service)
            if coming.phase is not Phase.CANARY:
                raise ConflictError(f"revision {coming.number} of {service} is no canary", NOTHING_COMES)
            self._put([replace(coming, phase=Phase.ROLLING, paused=False, told="promoted")])
            return coming

    def withdraw(self, service: str, told: str) -> Revision:
        """Have the coming revision go again.

        Raises:
            ConflictError: none comes.
        """
        with self._lock:
            coming = self._one_that_comes(service)
            self.enter(coming, Phase.UNDOING, told)
            return coming

    def _one_that_comes(self, service: str) -> Revision:
        coming = self.coming(service)
        if coming is None:
            raise ConflictError(f"no revision of {service} is on its way", NOTHING_COMES)
        return coming

    def _put(self, changed: Iterable[Revision], *more: Revision) -> None:
        new = [*changed, *more]
        self._store.save(*new)
        service = new[0].service
        merged = {each.number: each for each in (*self._by_service.get(service, ()), *new)}
        self._by_service[service] = [merged[number] for number in sorted(merged)]


def _row(revision: Revision) -> dict[str, Any]:
    row = {field.name: getattr(revision, field.name) for field in fields(revision)}
    return row | {"document": json.dumps(revision.document), "phase": revision.phase.value}


def _on_its_way(revision: Revision) -> ConflictError:
    return ConflictError(
        f"revision {revision.number} of {revision.service} is on its way ({revision.phase})",
        f"pond rollout undo {revision.service}, or wait for it",
    )
