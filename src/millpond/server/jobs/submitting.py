"""Taking jobs on: what is checked, in which order, before a job is durably the scheduler's."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from typing import Any, Final

from millpond.server.asking import Asking
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import Caller
from millpond.server.forecasts import Forecaster
from millpond.server.ground import Ground
from millpond.server.inbox import Submission
from millpond.server.job_files import Accepted
from millpond.server.jobs.requirements import Requirements
from millpond.specs.job import JobSpec, check_job
from millpond.specs.job_bodies import JobInfo
from millpond.specs.origins import LONGEST_JOB_NAME

_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_UNNAMED: Final = "job"


class Submissions:
    """Takes jobs on.

    Args:
        forecaster: says how long a job will run.
    """

    def __init__(self, ground: Ground, asking: Asking, requirements: Requirements, forecaster: Forecaster) -> None:
        self._ground = ground
        self._asking = asking
        self._requirements = requirements
        self._forecaster = forecaster

    async def submit(self, document: Any, key: str, caller: Caller) -> JobInfo:
        """Take a job on.

        Args:
            document: a job file as plain data.
            key: repeating it with the same document gives the same job; empty: the document's own, if any.

        Raises:
            SpecError, InvalidInputError: the document is wrong, or the cluster can never run it, or it refers to files
                that were not sent or that it may not have, or to jobs that are not there for the caller.
            NotAllowedError: the caller may not use the queue.
            ConflictError: the key was used with another document; or they, or their group, hold too much on disk.
            UnavailableError: jobs of several people could not be kept apart here, or the disk is full.
        """
        spec, place = settle_place(self._ground.accounts, caller, check_job(document))
        await self._requirements.check_means(spec.file, place, caller)
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        settled = await self._requirements.admit(spec.file, spec.document, caller)
        await self._requirements.check_awaited(spec.file.after, caller)
        job = place.of(spec.to_job(_new_id(spec)))
        predict = self._forecaster.predict
        forecast = predict(job) if self._forecaster.ready else await asyncio.to_thread(predict, job)
        key = key or spec.file.idempotency_key or ""
        # Keys count for each user: nobody is given a job of somebody else's.
        own_key = hashlib.sha256(f"{caller.user}\0{key}".encode()).hexdigest() if key else ""
        if settled.document is spec.document:  # nothing was found for it, so what was checked is what is stored
            self._ground.job_files.note(job.id, Accepted(spec, job.user, job.group))
        submission = Submission(job, settled.document, own_key, digest, forecast, settled.waits)
        info = await self._asking.answered(self._ground.loop.submit(submission))
        warnings = [*spec.warnings, *settled.warnings]
        return info.model_copy(update={"warnings": warnings}) if warnings else info


def _new_id(spec: JobSpec) -> str:
    """The job's name, fit for ids, paths and host names, and five letters by chance."""
    name = re.sub(r"[^a-z0-9]+", "-", (spec.file.name or _UNNAMED).lower())[:LONGEST_JOB_NAME].strip("-") or _UNNAMED
    return f"{name}-{''.join(secrets.choice(_ID_LETTERS) for _ in range(5))}"
