"""The pages of queues: the tree, one queue, and the form that edits one, with what the edit would come to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request, Response

from millpond.model.errors import MillpondError
from millpond.model.states import JobState
from millpond.server.api.permits import (
    Access,
    ClusterKeeper,
    ClusterReader,
    QueueChanger,
    ServiceOf,
    may,
    queue_in_path,
)
from millpond.server.api.service import Service
from millpond.server.auth.roles import Verb
from millpond.server.http.disconnects import while_connected
from millpond.server.http.error_responses import refusal_of
from millpond.server.jobs.listing import ListRequest
from millpond.server.monitoring.time_series.figures import Subject
from millpond.server.runtime.queue_settings.service import QueueEdit, QueueEdited
from millpond.server.store.job_filter import JobFilter
from millpond.server.views.visibility import reader_of
from millpond.server.web.charts.history_pages import charts_of, series_of
from millpond.server.web.pages import FormRoute, PageRoute, VisitOf, may_do
from millpond.server.web.pool.cell_drawing import colours_of, groups_of, main_part
from millpond.server.web.pool.pool_map import MOST_IN_DETAIL
from millpond.server.web.queues.queue_form import FIELDS, changed_fields, said_alike, shown, typed
from millpond.server.web.rendering import PageReader, show
from millpond.specs.api.base import ErrorBody
from millpond.specs.api.jobs.jobs import JobOrder
from millpond.specs.api.pool.queues import QueueInfo
from millpond.specs.api.reports.what_if import WhatIfInfo
from millpond.specs.api.reports.what_if_request import QueueSetting, WhatIfRequest
from millpond.specs.flow_text import flow_text

JOBS_SHOWN: Final = 50

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)
forms = APIRouter(prefix="/portal", include_in_schema=False, route_class=FormRoute)

QueueReader = Annotated[Access, may(Verb.READ_JOBS, queue_in_path)]


@router.get("/queues")
async def queues(service: ServiceOf, access: ClusterReader, visit: VisitOf) -> Response:
    """The tree of queues with what each holds."""
    found = await service.queues.seen_by(access.caller)
    depths: dict[str, int] = {}
    for each in found:  # each stands behind its parent
        depths[each.name] = depths.get(each.parent, -1) + 1
    may_change = may_do(access.caller, Verb.CHANGE_CLUSTER)
    return show("queues/tree.html", visit, queues=found, depths=depths, most=_widest(found), may_change=may_change)


@router.get("/cells")
async def cells(service: ServiceOf, access: ClusterReader, visit: VisitOf) -> Response:
    """Cells drawn on the hardware."""
    found = await service.cells_seen_by(access.caller)
    nodes = await service.machines.all(reader_of(access.caller))
    devices = {device.uuid: device for node in nodes for device in node.devices}
    return show(
        "pool/cells.html",
        visit,
        chains=[(chain, groups_of(chain, devices), len(chain.nodes) <= MOST_IN_DETAIL) for chain in found.chains],
        colours=colours_of(found),
        main_part=main_part,
    )


@router.get("/queues/{queue}")
async def one_queue(queue: str, service: ServiceOf, access: QueueReader, visit: VisitOf) -> Response:
    """One queue: its rules, who holds what, who waits, what became of its cells."""
    detail = await service.queues.one(queue, access.caller)
    everyone = await service.queues.seen_by(access.caller)
    reader = reader_of(access.caller)

    async def jobs_in(order: JobOrder, *states: JobState) -> Any:
        wanted = JobFilter(tuple(state.value for state in states), queue=queue)
        return await service.jobs.listed(ListRequest(wanted, limit=JOBS_SHOWN, order=order), reader)

    held = await jobs_in("cards", JobState.RUNNING, JobState.STARTING, JobState.SUSPENDED, JobState.STOPPING)
    waiting = await jobs_in("line", JobState.QUEUED)
    over_time = await asyncio.to_thread(series_of, service, Subject.QUEUES, None, None, {queue})
    return show(
        "queues/queue.html",
        visit,
        history=over_time,
        charts_of=charts_of,
        detail=detail,
        each=detail.queue,
        most=_widest([detail.queue]),
        below=[each for each in everyone if each.parent == queue],
        parent_seen=any(each.name == detail.queue.parent for each in everyone),
        held=held,
        waiting=waiting,
        settings={name: flow_text(value) for name, value in detail.settings.items()},
        may_change=may_do(access.caller, Verb.CHANGE_CLUSTER, access.target),
    )


@forms.get("/queues/{queue}/edit")
async def edit_queue(
    request: Request, queue: str, service: ServiceOf, access: QueueChanger, visit: VisitOf
) -> Response:
    """The form of a queue; with fields in the address also what changing them would come to."""
    detail = await service.queues.one(queue, access.caller)
    form = QueueForm(queue, detail.settings, dict(request.query_params), detail.version)
    await form.check(service, access.caller.user)
    return await _form_page(form, service, access, visit)


@forms.get("/queues/{queue}/play")
async def play_edit(request: Request, queue: str, service: ServiceOf, access: QueueChanger, visit: VisitOf) -> Response:
    """Who would wait less, and who longer, after such an edit."""
    detail = await service.queues.one(queue, access.caller)
    form = QueueForm(queue, detail.settings, dict(request.query_params), detail.version)
    settings = [QueueSetting(queue=queue, field=name, value=value) for name, value in form.fields.items()]
    answer: WhatIfInfo | None = None
    refused: ErrorBody | None = None
    try:
        if settings:
            question = service.what_if.answer(WhatIfRequest(set=tuple(settings)), access.caller)
            answer = await while_connected(request, question)
    except MillpondError as error:
        refused = _body(error)
    return show("queues/play.html", visit, queue=queue, answer=answer, refused=refused)


@forms.get("/new-queue")
async def new_queue(request: Request, service: ServiceOf, access: ClusterKeeper, visit: VisitOf) -> Response:
    """The same form for a queue that is not there yet."""
    written = dict(request.query_params)
    form = QueueForm(written.get("name", "").strip(), {}, written, None)
    await form.check(service, access.caller.user)
    return await _form_page(form, service, access, visit)


@dataclass(slots=True)
class QueueForm:
    """A form with what was typed, and what came of checking it.

    Attributes:
        name: of the queue; empty: none was given yet.
        document: what the queue says now.
        written: the parameters of the address; without ``preview`` nothing was typed.
        version: that was seen; None for a queue to be added.
        fields: what would be changed.
        refused: why that cannot be.
        edited: what it would come to.
    """

    name: str
    document: Mapping[str, Any]
    written: Mapping[str, str]
    version: int | None
    fields: dict[str, Any] = field(init=False)
    refused: ErrorBody | None = field(default=None, init=False)
    edited: QueueEdited | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.fields = changed_fields(self.document, typed(self.written)) if self.is_preview else {}

    @property
    def is_preview(self) -> bool:
        """Whether fields were typed."""
        return "preview" in self.written

    @property
    def texts(self) -> dict[str, str]:
        """What stands in the inputs."""
        if self.is_preview:
            return typed(self.written)
        return {**shown(self.document), **{name: text for name, text in self.written.items() if name == "parent"}}

    @property
    def body(self) -> str:
        """What the API is sent to do it."""
        if self.version is None:
            return json.dumps({"name": self.name, "fields": self.fields})
        return json.dumps({"fields": self.fields, "version": self.version})

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """Each field that changes: its name, and its text before and after."""
        return [
            (name, said_alike(name, self.document.get(name)), said_alike(name, value))
            for name, value in self.fields.items()
        ]

    async def check(self, service: Service, user: str) -> None:
        """Have the API's own checks say what would come of it; nothing is changed."""
        if not self.is_preview or not self.name or (self.version is not None and not self.fields):
            return
        settings = service.queue_settings
        act = settings.add if self.version is None else settings.change
        try:
            self.edited = await asyncio.to_thread(act, self.name, self.fields, QueueEdit(user, dry_run=True))
        except MillpondError as error:
            self.refused = _body(error)


async def _form_page(form: QueueForm, service: Service, access: Access, visit: PageReader) -> Response:
    found = await service.queues.seen_by(access.caller)
    return show(
        "queues/form.html",
        visit,
        form=form,
        texts=form.texts,
        long={each.name for each in FIELDS if each.is_long},
        queues=found,
    )


def _body(error: MillpondError) -> ErrorBody:
    known = refusal_of(error)
    if known is None:
        raise error
    return known[1]


def _widest(found: list[QueueInfo]) -> int:
    """What the whole length of a bar stands for, in milli of a card."""
    return max(
        (
            max(
                each.gpu_milli + (each.lent_gpu_milli or 0),
                each.promised_gpu_milli,
                each.limit_gpu_milli or 0,
            )
            for each in found
        ),
        default=0,
    )
