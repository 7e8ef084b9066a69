"""Routes about queues."""

from __future__ import annotations

from typing import Annotated

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ClusterReader, ServiceOf, may, queue_in_path
from millpond.server.auth.roles import Verb
from millpond.specs.api.queues import QueueDetailInfo, QueueList

router = api_router(prefix="/queues", tags=["cluster"])


@router.get("")
async def list_queues(service: ServiceOf, access: ClusterReader) -> QueueList:
    """The queues of one's groups, for admins all: what each is guaranteed, may not exceed, holds and has lent."""
    return QueueList(queues=await service.queues.seen_by(access.caller))


@router.get("/{queue}")
async def show_queue(
    queue: str, service: ServiceOf, access: Annotated[Access, may(Verb.READ_JOBS, queue_in_path)]
) -> QueueDetailInfo:
    """A queue with its users, who has borrowed of its guarantee, and why its largest waiting job waits."""
    return await service.queues.one(queue, access.caller)
