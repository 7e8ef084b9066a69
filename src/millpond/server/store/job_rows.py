"""Rows of jobs read as job files and last views. A damaged row does not keep the others from being read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from pydantic import ValidationError

from millpond.model.errors import InvalidInputError
from millpond.model.workloads import Kind
from millpond.server.store import schema
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.api.models import adapter_of
from millpond.specs.job.job_ids import array_id, split_member
from millpond.specs.job.members import member_document

JOB_INFO: Final = adapter_of(JobInfo)
OF_VIEW: Final = tuple(
    schema.jobs.c[name]
    for name in ("info", "id", "name", "queue", "user", "group", "state", "submitted_at", "ended_at", "parent")
)
"""What ``view_in`` needs of a row."""


def last_view_in(row: sa.Row[Any] | None) -> JobInfo | None:
    """The last view of a job; None where there is no such job, or it lives."""
    return None if row is None or row.info is None else view_in(row)


def view_in(row: sa.Row[Any]) -> JobInfo:
    """The last view of a job; of a damaged one, what its other columns say."""
    try:
        found: JobInfo = JOB_INFO.validate_json(row.info)
    except ValidationError:
        known = {name: getattr(row, name) or "" for name in ("name", "queue", "parent")}
        return damaged_view(
            id=row.id,
            user=row.user,
            group=row.group,
            submitted_at=row.submitted_at,
            ended_at=row.ended_at,
            state=row.state,
            reason="what is stored of it is damaged",
            **known,
        )
    return found


def damaged_view(*, reason: str, **known: Any) -> JobInfo:
    """The last view of a job of which nothing is known but why, and these fields."""
    fields = {"name": "", "queue": "", "pool": "", "kind": Kind.TRAIN.value, "priority": "normal", "attempt": 0}
    task = TaskInfo(task=0, role="", state=known["state"], detail=reason)  # whose detail lists and details show
    return JobInfo(**{**fields, **known}, reason=reason, tasks=[task])


def document_of(text: str, job: str) -> dict[str, Any]:
    """The job file in a row.

    Raises:
        InvalidInputError: it is damaged.
    """
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InvalidInputError(f"the stored file of job {job!r} is damaged", "submit it again, or restore a backup")
    return document


def document_or_empty(text: str, job: str) -> dict[str, Any]:
    """The job file in a row; empty where it is damaged."""
    try:
        return document_of(text, job)
    except InvalidInputError:
        return {}


def readable(rows: Sequence[sa.Row[Any]]) -> list[tuple[sa.Row[Any], dict[str, Any]]]:
    """Rows with the job files in them, but for damaged ones: what such a file referred to, no task will use."""
    found = ((row, document_or_empty(row.document, row.id)) for row in rows)
    return [(row, document) for row, document in found if document]


def document_in(text: str, job: str) -> dict[str, Any] | None:
    """The job file of a job, as its row has it; None when it is to be a member of what is no array.

    Raises:
        InvalidInputError: it is damaged.
    """
    member = split_member(job)
    document = document_of(text, array_id(job))
    if member is None:
        return document
    is_array = document.get("array") is not None or document.get("sweep") is not None
    return member_document(document, member[1]) if is_array else None
