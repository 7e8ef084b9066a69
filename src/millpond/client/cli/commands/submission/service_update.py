"""What ``pond apply`` does for a service that runs already: which one that is, and what would change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from millpond.client.sdk import Client
from millpond.client.sdk.resources.services import named
from millpond.model.errors import InvalidInputError
from millpond.specs.api.services import FieldChange
from millpond.specs.job.job_spec import JobSpec

_LONGEST = 60


def target(client: Client, spec: JobSpec, chosen: str | None) -> str | None:
    """A job of the service that a job file is an update of; None when it is a job of its own.

    Args:
        chosen: the service that the user named.

    Raises:
        InvalidInputError: one was named, and the file is none of a service.
        ConflictError: several services have the file's name.
    """
    if spec.file.kind != "service":
        if chosen is not None:
            raise InvalidInputError(f"--update with a job of kind {spec.file.kind}", "only services are updated")
        return None
    if chosen is not None:
        return client.find(chosen).id
    if spec.file.name is None:
        return None
    return named(client.jobs().jobs, spec.file.name, client.accounts.whoami().user)


def show_changes(client: Client, job: str, document: Mapping[str, Any], *, err: bool) -> dict[str, Any] | None:
    """Print what an update would change; None if nothing would.

    Returns:
        The document with as many replicas as the update would have, for its plan.
    """
    plan = client.services.plan(job, document)
    if not plan.changes:
        click.echo(f"{job}: nothing changes", err=True)
        return None
    click.echo(f"updates {job}:", err=err)
    for change in plan.changes:
        click.echo(f"  {_line(change)}", err=err)
    tasks = document.get("tasks")
    return {**document, "tasks": {**tasks, "desired": plan.replicas} if isinstance(tasks, dict) else tasks or 1}


def _line(change: FieldChange) -> str:
    before, after = _text(change.before), _text(change.after)
    pairs = zip(before, after, strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after)))
    return f"{change.field}: {_shortened(before, same)} -> {_shortened(after, same)}"


def _text(value: Any) -> str:
    return "(left out)" if value is None else value if isinstance(value, str) else json.dumps(value)


def _shortened(text: str, difference: int) -> str:
    """The part of a text around the place where it begins to differ."""
    if len(text) <= _LONGEST:
        return text
    begin = max(0, min(difference - _LONGEST // 4, len(text) - _LONGEST))
    end = begin + _LONGEST
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
