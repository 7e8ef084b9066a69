"""Queues as documents: what each says, in the words of the configuration file, checked as that file is.

A server keeps and changes queues in this form, so that a field of ``QueueFile`` is all that a new setting needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.model.tenancy.tenants import Queue
from millpond.specs.config.cluster import check_cluster
from millpond.specs.config.queues import LimitFile, QueueFile, QueueRules
from millpond.specs.errors import Problem, SpecError
from millpond.specs.source_positions import Located
from millpond.specs.validation import validate

QueueDocument = Mapping[str, Any]
"""The fields of one queue as they are written, without its name."""


def read_queues(documents: Mapping[str, QueueDocument]) -> tuple[Queue, ...]:
    """All queues of a tree, each behind its parent.

    Args:
        documents: by the names of the queues.

    Raises:
        SpecError: with every fault found; each names its queue and its field.
    """
    names = list(documents)
    located = Located({"queues": [{"name": name, **document} for name, document in documents.items()]})
    try:
        config = check_cluster(located)
    except SpecError as error:
        problems = [_of_its_queue(problem, names) for problem in error.problems]
        raise SpecError(problems, "the queues would not be valid") from error
    return config.queues


def read_queue_rules(documents: Mapping[str, QueueDocument]) -> dict[str, QueueRules]:
    """What holds for the jobs of queues beside their quotas, whether or not the queues go together.

    Raises:
        SpecError: a document is none of a queue.
    """
    return {
        name: validate(QueueFile, Located({"name": name, **document})).rules() for name, document in documents.items()
    }


def at_its_line(problem: Problem, located: Located) -> Problem:
    """A fault at ``vision.limit`` with its place in a configuration that names that queue, and else as it is."""
    name, _, field = problem.loc.partition(".")
    for index, queue in enumerate(located.value.get("queues") or ()):
        if queue["name"] == name:
            return located.problem(("queues", index, *filter(None, field.split("."))), problem.message, problem.hint)
    return problem


def with_field(document: QueueDocument, field: str, value: Any) -> dict[str, Any]:
    """A queue's document with another value of a field, or of a part of one; None takes it away.

    Args:
        field: ``weight``, ``limit.gpus``, ``cells.node`` or ``guarantee.models.H20.3e``: at most three levels, as names
            of models have points of their own.
    """
    top, *parts = field.split(".", 2)
    if not parts:
        return {**document, top: value}
    return {**document, top: _with_part(LimitFile.from_short(document.get(top)), parts, value)}


def _with_part(whole: Any, parts: Sequence[str], value: Any) -> dict[str, Any] | None:
    """A mapping with another value at a place within it; None where nothing is left."""
    first, *deeper = parts
    known = whole if isinstance(whole, Mapping) else {}
    changed = {**known, first: _with_part(known.get(first), deeper, value) if deeper else value}
    return {name: each for name, each in changed.items() if each is not None} or None


def _of_its_queue(problem: Problem, names: list[str]) -> Problem:
    """A fault at ``queues.3.limit`` as one at ``vision.limit``, by the name of that queue."""
    section, _, place = problem.loc.partition(".")
    number, _, field = place.partition(".")
    if section != "queues" or not number.isdecimal():
        return problem
    return replace(problem, loc=f"{names[int(number)]}.{field}")
