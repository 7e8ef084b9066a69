"""Job files are read and checked: from text or data to the scheduler's ``Job``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Final

from millpond.model.errors import InvalidInputError
from millpond.model.workloads import Job
from millpond.specs.errors import Problem, SpecError
from millpond.specs.job import legacy_json
from millpond.specs.job.arrays import Members
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.cross_checks import cross_faults
from millpond.specs.job.dataset_refs import DATASET_PREFIX
from millpond.specs.job.images import Pinned
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.members import member_document, member_file, members_of, unfilled
from millpond.specs.job.to_model import build_job, contents_of
from millpond.specs.source_positions import Located, Path, read_documents
from millpond.specs.validation import STORED, same_path, validate
from millpond.specs.zoned_times import instant, instant_text, is_span

MOST_VALUES: Final = 20_000
"""In one job file: checking each takes a server a hundredth of a millisecond in which it does nothing else."""
_OF_ONE_SUBMISSION: Final = ("idempotency_key", "stdin", "pinned")
"""With the key it would be the same job; what standard input was is not kept; images and data are found anew."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A checked job file.

    Attributes:
        document: the file as plain data, as a client sends it; ``workdir`` in it is absolute.
        job: for the scheduler, under no id of its own yet.
        warnings: what was accepted and has no effect here.
        deadline_at: where its deadline is written, for what turns out to be wrong with it; None where there is none.
    """

    document: dict[str, Any]
    file: JobFile
    job: Job
    warnings: tuple[str, ...] = ()
    deadline_at: Problem | None = None

    def to_job(self, job_id: str, user: str = "") -> Job:
        """The job for the scheduler."""
        return replace(self.job, id=job_id, user=user)

    def in_queue(self, queue: str) -> JobSpec:
        """As if its file named this queue, which is there; nothing is checked again."""
        document, file = {**self.document, "queue": queue}, self.file.model_copy(update={"queue": queue})
        return replace(self, document=document, file=file, job=replace(self.job, queue=queue))

    def with_pinned(self, pinned: Pinned | None) -> JobSpec:
        """As if its file named what was found for it; nothing is checked again."""
        if pinned == self.file.pinned:
            return self
        file, document = self.file.model_copy(update={"pinned": pinned}), {**self.document}
        document.pop("pinned", None)
        if pinned is not None:
            document["pinned"] = pinned.model_dump(mode="json", exclude_defaults=True)
        return replace(self, document=document, file=file, job=replace(self.job, contents=contents_of(file)))

    def submitted_at(self, now: float) -> JobSpec:
        """As if its file named the instant of its deadline, where it names a length of time.

        Raises:
            SpecError: the deadline is past.
        """
        file, place = self.file, self.deadline_at
        if file.deadline is None or place is None:
            return self
        due = instant(file.deadline, now)
        if due <= now:
            hint = f"it is {instant_text(now)}; name a later one, or leave it out"
            raise SpecError([replace(place, message=f"the deadline {file.deadline} is past", hint=hint)])
        if not is_span(file.deadline):
            return self
        document = {**self.document, "deadline": instant_text(due)}
        return replace(
            self,
            document=document,
            file=file.model_copy(update={"deadline": instant_text(due)}),
            job=replace(self.job, deadline_s=float(round(due))),
        )

    @property
    def members(self) -> Members | None:
        """The members of the array or sweep that it asks for; None when it is one job."""
        return members_of(self.file)

    def member(self, index: int) -> JobSpec:
        """The job file of a member; this is that of its array, as it was accepted."""
        return JobSpec(member_document(self.document, index, self.file), member_file(self.file, index), self.job)

    @property
    def commands(self) -> dict[str, str | tuple[str, ...]]:
        """What the tasks of each role run: a line for the shell, or a program and its arguments."""
        return {role.name: role.command for role in self.file.all_roles() if role.command is not None}


def read_jobs(
    text: str, source: str = "", base: FilePath | None = None, changes: Sequence[FieldEdit] = ()
) -> list[JobSpec]:
    """All jobs of a YAML or JSON text, in Millpond's or in the older flat form.

    Args:
        source: the file's name, for messages.
        base: folder that a relative ``workdir`` (default: ``.``), ``data`` or ``output`` refers to; None leaves them
            as written.
        changes: made to each of them before it is checked.

    Raises:
        SpecError: with every fault of every document.
    """
    jobs: list[JobSpec] = []
    problems: list[Problem] = []
    for located in read_documents(text, source):
        try:
            jobs.append(read_job(located, base, changes))
        except SpecError as error:
            problems.extend(error.problems)
    if problems:
        raise SpecError(problems)
    return jobs


def read_job(located: Located, base: FilePath | None = None, changes: Sequence[FieldEdit] = ()) -> JobSpec:
    """One job of a text that was read already; ``base`` and ``changes`` as in ``read_jobs``.

    Raises:
        SpecError: with every fault found.
    """
    for change in changes:
        change.apply(located)
    return _read_one(located, base)


def document_again(document: Mapping[str, Any]) -> dict[str, Any]:
    """A stored job file as that of another job like it: without what was of that one submission alone."""
    return {name: value for name, value in document.items() if name not in _OF_ONE_SUBMISSION}


def check_job(document: Any, base: FilePath | None = None) -> JobSpec:
    """A job from plain data (the body of a request, a command line), checked like a file.

    Raises:
        SpecError: with every fault found; lines and columns are 0.
    """
    return _read_one(Located(document), base)


def stored_job(document: Any) -> JobSpec:
    """A job that was accepted before.

    Raises:
        SpecError: with every fault found.
    """
    return _read_one(Located(document), None, STORED)


def _read_one(located: Located, base: FilePath | None, context: object = None) -> JobSpec:
    if context is not STORED and _has_too_many_values(located.value):
        remedy = "put long lists into a file that the job reads"
        raise SpecError([located.problem((), f"more than {MOST_VALUES:,} values in a job file", remedy)])
    warnings: tuple[str, ...] = ()
    written: Callable[[Path], Path] = same_path
    if legacy_json.is_flat(located.value):
        document, warnings = legacy_json.translate(located)
        located = Located(document, located.source, located.values, located.keys, located.sources)
        written = legacy_json.written
    if isinstance(located.value, dict) and base is not None:
        located.value = {"workdir": ".", **located.value}
        _make_absolute(located.value, base)
    file = validate(JobFile, located, written, context)
    if file.adopted is not None and context is not STORED:
        raise SpecError([located.problem(("adopted",), "only the server itself writes 'adopted'", "leave it out")])
    if problems := cross_faults(file, located, written, context is STORED):
        raise SpecError(problems)
    try:
        job = build_job(file, "check", "")
    except InvalidInputError as error:
        raise SpecError([located.problem((), error.cause, error.remedy)]) from error
    deadline_at = None if file.deadline is None else located.problem(written(("deadline",)), "", at_key=False)
    return JobSpec(located.value, file, job, (*warnings, *unfilled(file)), deadline_at)


def _has_too_many_values(document: Any) -> bool:
    waiting, count = [document], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            count += len(value)
            if count > MOST_VALUES:
                return True
            waiting += value.values() if isinstance(value, dict) else value
    return False


def _make_absolute(document: dict[str, Any], base: FilePath) -> None:
    """Relative paths refer to the job file's folder; what is no path is left for the checks to find."""

    def absolute(value: Any) -> Any:
        if not isinstance(value, str) or not value or value.startswith(DATASET_PREFIX):
            return value
        return str(base.absolute().joinpath(FilePath(value).expanduser()))

    for name in ("workdir", "output"):
        if name in document:
            document[name] = absolute(document[name])
    if isinstance(document.get("data"), dict):
        document["data"] = {name: absolute(value) for name, value in document["data"].items()}
