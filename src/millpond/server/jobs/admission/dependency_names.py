"""Resolve the names in ``after`` to jobs: of the same submission, by id, or by name among the caller's own."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from millpond.model.errors import InvalidInputError
from millpond.model.states import JobState
from millpond.server.auth.roles import Caller, Verb, allows, job_target
from millpond.server.runtime.active_jobs.dependencies import no_job_to_wait_for
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_ids import array_id, member_id, split_member
from millpond.specs.job.job_spec import JobSpec

_NAMED_IN_DOUBT = 4


class AwaitedJobs:
    """Finds the jobs that those of one submission wait for: each name is looked up in the history once."""

    def __init__(self, job_cache: JobCache, lookup: JobLookup, job_store: JobStore, caller: Caller) -> None:
        self._job_cache = job_cache
        self._lookup = lookup
        self._job_store = job_store
        self._caller = caller
        self._ended: dict[str, JobInfo | None] = {}

    async def resolve(self, spec: JobSpec, together: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """The id of each job that ``after`` names.

        Args:
            together: ids of the other jobs of the submission, by name.

        Raises:
            InvalidInputError: there is no such job for the caller, or there are several.
        """
        names = spec.file.after.jobs
        return await asyncio.to_thread(self._ids_of, names, together) if names else {}

    def _ids_of(self, names: Sequence[str], together: Mapping[str, Sequence[str]]) -> dict[str, str]:
        return {name: self._id_of(name, together) for name in names}

    def _id_of(self, written: str, together: Mapping[str, Sequence[str]]) -> str:
        text = unicodedata.normalize("NFC", written)
        member = split_member(text)
        if text not in together and member is not None and (array := together.get(member[0])):
            return member_id(_only(member[0], array), member[1])
        if named := together.get(text):
            return _only(text, named)
        info = self._lookup.find(text)
        if info is not None and allows(self._caller, Verb.READ_JOBS, job_target(info)):
            return info.id
        own = self._own(text)
        if own is None and member is not None and (array_info := self._own(member[0])) is not None:
            own = self._lookup.find(member_id(array_info.id, member[1]))
        if own is None:
            raise no_job_to_wait_for(text)
        return own.id

    def _own(self, name: str) -> JobInfo | None:
        """The caller's job of this name: the one that lives, else the one that was submitted last."""
        if living := self._living.get(name):
            _only(name, [info.id for info in living])
            return living[0]
        if name not in self._ended and name.isprintable():  # no other name can be, and a database may refuse it
            self._ended[name] = self._job_store.latest_named(name, self._caller.user)
        return self._ended.get(name)

    @cached_property
    def _living(self) -> dict[str, list[JobInfo]]:
        """The caller's jobs that have not ended, by name, the newest first; members of arrays left out."""
        found: dict[str, list[JobInfo]] = {}
        for info in self._job_cache.newest_first():
            if info.user == self._caller.user and not info.parent and not JobState(info.state).ended:
                found.setdefault(info.name, []).append(info)
        return found


def with_ids(spec: JobSpec, ids: Mapping[str, str]) -> JobSpec:
    """The job file with ids for what ``after`` names."""
    if all(name == found for name, found in ids.items()):
        return spec
    after = spec.file.after.renamed(ids)
    document = {**spec.document, "after": after.model_dump(exclude_defaults=True)}
    return replace(spec, document=document, file=spec.file.model_copy(update={"after": after}))


def check_order(ids: Sequence[str], specs: Sequence[JobSpec], awaited: Sequence[Mapping[str, str]]) -> None:
    """Whether jobs that are submitted together can start one after the other.

    Raises:
        InvalidInputError: some wait for each other, or for a member that an array does not have.
    """
    members = {job: spec.members for job, spec in zip(ids, specs, strict=True)}
    for name, found in ((name, split_member(job)) for each in awaited for name, job in each.items()):
        if found is not None and found[0] in members:
            array = members[found[0]]
            if array is None or array.position(found[1]) is None:
                raise no_job_to_wait_for(name)
    arrays = [{array_id(job) for job in found.values()} | set(found.values()) for found in awaited]
    try:
        TopologicalSorter(dict(zip(ids, arrays, strict=True))).prepare()
    except CycleError as error:
        circle = [job.rpartition("-")[0] for job in reversed(error.args[1])]
        raise InvalidInputError(
            f"these jobs wait for each other: {' after '.join(circle)}", "leave one of them out of `after`"
        ) from error


def _only(name: str, ids: Sequence[str]) -> str:
    if len(ids) > 1:
        some = ", ".join(sorted(ids)[:_NAMED_IN_DOUBT])
        raise InvalidInputError(
            f"{len(ids)} jobs are called {name!r} ({some})",
            "write the id of the one to wait for",
        )
    return ids[0]
