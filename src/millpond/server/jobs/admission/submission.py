"""Submit jobs: the checks, in their order, before a job is stored and handed to the scheduler."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millpond.forecasting.durations import Forecast
from millpond.model.workloads import Job
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import Caller
from millpond.server.jobs.admission.dependency_names import check_order, with_ids
from millpond.server.jobs.admission.requirements import Requirements
from millpond.server.jobs.monitors.deadlines import check_deadline, foreseen
from millpond.server.runtime.batch import numbered
from millpond.server.runtime.forecasts import Forecaster
from millpond.server.runtime.inbox import Submission
from millpond.server.server_components import ServerComponents
from millpond.server.storage.job_files import Accepted
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.config.origins import LONGEST_JOB_NAME, slug_of
from millpond.specs.errors import Problem, SpecError
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_ids import name_of_program
from millpond.specs.job.job_spec import JobSpec, check_job

_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_UNNAMED: Final = "job"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A submission that the scheduler may take, and what was accepted in it and has no effect."""

    submission: Submission
    warnings: tuple[str, ...]


class Submissions:
    """Takes jobs on."""

    def __init__(self, components: ServerComponents, requirements: Requirements) -> None:
        self._components = components
        self._requirements = requirements

    async def submit(self, documents: Sequence[Any], key: str, caller: Caller) -> list[JobInfo]:
        """Take jobs on: all of them or none.

        Args:
            documents: job files as plain data; ``after`` in one may name another.
            key: repeating it with the same documents gives the same jobs; empty: each document's own, if any.

        Raises:
            SpecError, InvalidInputError: a document is wrong, or the cluster can never run it, or it refers to files
                that were not sent or that it may not have, or to jobs that are not there for the caller.
            NotAllowedError: the caller may not use the queue.
            ConflictError: the key was used with another document; or they, or their group, hold too much on disk.
            UnavailableError: jobs of several people could not be kept apart here, or the disk is full.
        """
        count = len(documents)
        specs = await _checked(documents)
        names = [spec.file.name or "" for spec in specs]
        ids = await asyncio.to_thread(new_ids, self._components.store.jobs, names)
        awaited_jobs, awaited = self._requirements.awaited_jobs(caller), []
        for number, spec in enumerate(specs):
            others = _by_name(specs, ids, number)
            with numbered(number, count, spec.file.name or ""):
                awaited.append(await awaited_jobs.resolve(spec, others))
        check_order(ids, specs, awaited)
        prepared = []
        for number, (spec, job_id) in enumerate(zip(specs, ids, strict=True)):
            own = spec.file.idempotency_key if count > 1 else key
            keyed = _Keyed(documents[number], own or (f"{key}\0{number}" if key else ""))
            with numbered(number, count, spec.file.name or ""):
                prepared.append(await self._prepare(with_ids(spec, awaited[number]), job_id, keyed, caller))
        answers = await self._components.loop.answered(
            self._components.loop.submit(*(one.submission for one in prepared))
        )
        return [
            await self._foreseen(replace(info, warnings=list(one.warnings)) if one.warnings else info)
            for info, one in zip(answers, prepared, strict=True)
        ]

    async def _foreseen(self, info: JobInfo) -> JobInfo:
        """The answer, with the outlook for its deadline if it has one."""
        return info if info.deadline is None else await self._components.loop.ask(lambda core: foreseen(core, info))

    async def _prepare(self, checked: JobSpec, job_id: str, keyed: _Keyed, caller: Caller) -> _Prepared:
        """A checked job file as a submission, everything that it refers to checked too."""
        spec, place = settle_place(
            self._components.accounts, self._components.queue_settings.rules, caller, checked.submitted_at(time.time())
        )
        spec = self._components.on_cluster(spec)
        await self._requirements.check_available(spec.file, place, caller)
        settled = await self._requirements.admit(spec.file, spec.document, caller)
        job = place.of(spec.to_job(job_id))
        forecast = await forecast_of(self._components.forecaster, spec.file, job)
        check_deadline(job, forecast, time.time())
        if settled.document is spec.document:  # nothing was found for it, so what was checked is what is stored
            self._components.job_files.note(job.id, Accepted(spec, job.user, job.group))
        own_key = keyed.own_key(caller, spec.file)
        digest = keyed.digest if own_key else ""
        submission = Submission(job, settled.document, own_key, digest, forecast, settled.waits)
        return _Prepared(submission, (*spec.warnings, *settled.warnings))


async def forecast_of(forecaster: Forecaster, file: JobFile, job: Job) -> Forecast | None:
    """How long a job should run, by those that ended before it; None where they do not show it."""
    if _is_called_by_its_program(file):
        return None
    return forecaster.predict(job) if forecaster.ready else await asyncio.to_thread(forecaster.predict, job)


def _is_called_by_its_program(file: JobFile) -> bool:
    """Whether its name is that of its program: other jobs of that program do not show how long it takes."""
    return file.command is not None and file.name == name_of_program(file.command)


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A document as it came, and the key that came with it."""

    document: Any
    key: str

    @property
    def digest(self) -> str:
        """Distinguishes documents that came with the same key."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()

    def own_key(self, caller: Caller, file: JobFile) -> str:
        """The key among those of all users, as no user is given a job of another; empty where there is none."""
        key = self.key or file.idempotency_key or ""
        return hashlib.sha256(f"{caller.user}\0{key}".encode()).hexdigest() if key else ""


async def _checked(documents: Sequence[Any]) -> list[JobSpec]:
    """The documents as checked job files, with the faults of all of them; others are served between any two."""
    specs: list[JobSpec] = []
    problems: list[Problem] = []
    for number, document in enumerate(documents):
        name = document.get("name", "") if isinstance(document, dict) else ""
        if number:
            await asyncio.sleep(0)
        try:
            with numbered(number, len(documents), str(name)[:LONGEST_JOB_NAME]):
                specs.append(check_job(document))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return specs


def _by_name(specs: Sequence[JobSpec], ids: Sequence[str], number: int) -> dict[str, list[str]]:
    """Ids of all jobs of a submission but one, by their names."""
    found: dict[str, list[str]] = {}
    for other, spec in enumerate(specs):
        if other != number and spec.file.name is not None:
            found.setdefault(spec.file.name, []).append(ids[other])
    return found


def new_ids(jobs: JobStore, names: Sequence[str]) -> list[str]:
    """An id for each job of these names that no other job has, nor ever had: of one name there may be very many."""
    numbers: dict[str, int] = {}
    while left := set(range(len(names))).difference(numbers.values()):
        drawn = {_draw_id(names[number]): number for number in left}
        known = jobs.existing(list(drawn)) | numbers.keys()
        numbers.update((each, number) for each, number in drawn.items() if each not in known)
    return sorted(numbers, key=numbers.__getitem__)


def _draw_id(name: str) -> str:
    """A name as far as it fits into ids, paths and host names, and five letters by chance."""
    letters = "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in secrets.token_bytes(5))  # 256 is 8 times 32
    return f"{slug_of(name) or _UNNAMED}-{letters}"
