"""The route about queues."""

from __future__ import annotations

from millpond.server.api.dependencies import ServiceOf
from millpond.server.api.description import api_router
from millpond.server.api.permits import ClusterReader
from millpond.specs.api.queues import QueueList

router = api_router(prefix="/queues", tags=["cluster"])


@router.get("")
async def list_queues(service: ServiceOf, access: ClusterReader) -> QueueList:
    """The queues of one's groups, for admins all: what each is promised, may not exceed, and holds."""
    return QueueList(queues=await service.queues.seen_by(access.caller))
