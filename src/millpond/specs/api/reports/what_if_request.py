"""The question what a change would do, as the API takes it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from millpond.specs.api.base import LATEST
from millpond.specs.api.models import RequestBody

MOST_CHANGES: Final = 200
"""Of one kind, in one question."""

Named = Annotated[str, Field(min_length=1, max_length=200)]


class QueueSetting(RequestBody):
    """Another value for a field of a queue.

    Attributes:
        queue: its name.
        field: as in the section ``queues`` of the configuration: ``guarantee``, or for a part of it
            ``guarantee.gpus`` or ``guarantee.models.A100``.
        value: as there; null takes it away.
    """

    queue: Named
    field: Named
    value: Any = None


class PastSpan(RequestBody):
    """Which part of the recorded past: jobs that were submitted between two instants."""

    since: float = Field(ge=0, le=LATEST)
    until: float = Field(default=LATEST, ge=0, le=LATEST)


class WhatIfRequest(RequestBody):
    """Changes that are all made together, on a copy.

    Attributes:
        set: fields of queues.
        add_nodes: machines to be added, as ``NxG:MODEL``.
        remove_nodes: names of machines that are drained.
        ordering, placement, preempt, reserve: other policies; null as they are.
        cancel: jobs, by id or name.
        submit: job files as plain data.
        past: ask about the recorded past; null: about the present.
        horizon_s: how far the present is played forward.
    """

    set: tuple[QueueSetting, ...] = Field(default=(), max_length=MOST_CHANGES)
    add_nodes: tuple[Named, ...] = Field(default=(), max_length=MOST_CHANGES)
    remove_nodes: tuple[Named, ...] = Field(default=(), max_length=MOST_CHANGES)
    ordering: str | None = Field(default=None, max_length=100)
    placement: str | None = Field(default=None, max_length=100)
    preempt: bool | None = None
    reserve: bool | None = None
    cancel: tuple[Named, ...] = Field(default=(), max_length=MOST_CHANGES)
    submit: tuple[dict[str, Any], ...] = Field(default=(), max_length=MOST_CHANGES)
    past: PastSpan | None = None
    horizon_s: float = Field(default=7 * 86_400.0, gt=0, le=366 * 86_400)
