"""Routes about queues: what they hold, and how they are defined."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query

from millpond.server.api.description import api_router
from millpond.server.api.permits import (
    Access,
    ClusterKeeper,
    ClusterReader,
    QueueChanger,
    ServiceOf,
    may,
    queue_in_path,
)
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.server.runtime.queue_settings.book import changed_fields
from millpond.server.runtime.queue_settings.service import QueueEdit, QueueEdited
from millpond.specs.api.jobs.requests import NewQueueRequest, QueueChangeRequest
from millpond.specs.api.pool.cells import CellMapInfo
from millpond.specs.api.pool.queues import QueueDetailInfo, QueueEditInfo, QueueList
from millpond.specs.flow_text import flow_text

router = api_router(prefix="/queues", tags=["cluster"])
cells = api_router(tags=["cluster"])

SeenVersion = Annotated[int | None, Query(description="The version that was seen; refused if it is another by now.")]
DryRun = Annotated[bool, Query(description="Only say what would come of it.")]


@router.get("")
async def list_queues(service: ServiceOf, access: ClusterReader) -> QueueList:
    """The queues of one's groups, for admins all: what each is guaranteed, may not exceed, holds and has lent."""
    return QueueList(queues=await service.queues.seen_by(access.caller))


@cells.get("/cells")
async def list_cells(service: ServiceOf, access: ClusterReader) -> CellMapInfo:
    """Which cards are bound to whose cells, machine by machine; queues of other groups are not named."""
    return await service.cells_seen_by(access.caller)


@router.get("/{queue}")
async def show_queue(
    queue: str, service: ServiceOf, access: Annotated[Access, may(Verb.READ_JOBS, queue_in_path)]
) -> QueueDetailInfo:
    """A queue with its users, who has borrowed of its guarantee, and why its largest waiting job waits."""
    return await service.queues.one(queue, access.caller)


@router.post("", status_code=201)
async def add_queue(body: NewQueueRequest, service: ServiceOf, access: ClusterKeeper) -> QueueEditInfo:
    """Define a queue, in the fields of the configuration file."""
    access.act.target = AccessTarget("queue", body.name)
    edit = QueueEdit(access.caller.user, dry_run=body.dry_run)
    edited = await asyncio.to_thread(service.queue_settings.add, body.name, body.fields, edit)
    return _answer(edited, edit, access)


@router.patch("/{queue}")
async def change_queue(queue: str, body: QueueChangeRequest, service: ServiceOf, access: QueueChanger) -> QueueEditInfo:
    """Change fields of a queue. What runs goes on; what is beyond the guarantee then is borrowed."""
    edit = QueueEdit(access.caller.user, body.version, body.dry_run)
    edited = await asyncio.to_thread(service.queue_settings.change, queue, body.fields, edit)
    return _answer(edited, edit, access)


@router.delete("/{queue}")
async def delete_queue(
    queue: str, service: ServiceOf, access: QueueChanger, version: SeenVersion = None, dry_run: DryRun = False
) -> QueueEditInfo:
    """Delete a queue that no job uses, no group owns, and no other queue is below."""
    edit = QueueEdit(access.caller.user, version, dry_run)
    return _answer(await asyncio.to_thread(service.queue_settings.delete, queue, edit), edit, access)


def _answer(edited: QueueEdited, edit: QueueEdit, access: Access) -> QueueEditInfo:
    """What was done or, in a dry run, would be; noted for the audit log too."""
    before, after = edited.before, edited.after
    names = changed_fields(before or {}, after or {})
    access.note(f"{'dry run: ' if edit.dry_run else ''}{_text(after, names)}", _text(before, names))
    return QueueEditInfo(
        queue=edited.name,
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
        version=edited.version,
        effects=list(edited.effects),
        rooms=list(edited.rooms),
        dry_run=edit.dry_run,
    )


def _text(document: Mapping[str, Any] | None, names: Sequence[str]) -> str:
    """The fields of these names, in short."""
    if document is None:
        return "no queue"
    return ", ".join(f"{name}: {flow_text(document[name])}" for name in names if name in document) or "defaults"
