"""Routes about lists of jobs that people have named."""

from __future__ import annotations

import asyncio
from typing import Annotated

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ServiceOf, may
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.specs.api.jobs.saved_views import SavedViewInfo, SavedViewList, SavedViewRequest

router = api_router(prefix="/views", tags=["jobs"])

ViewChanger = Annotated[Access, may(Verb.CHANGE_VIEWS)]


@router.get("")
async def list_views(service: ServiceOf, access: Annotated[Access, may(Verb.READ_VIEWS)]) -> SavedViewList:
    """The saved lists of jobs of one's own, then those of one's groups."""
    return SavedViewList(views=await asyncio.to_thread(service.saved_views.seen_by, access.caller))


@router.post("", status_code=201)
async def save_view(body: SavedViewRequest, service: ServiceOf, access: ViewChanger) -> SavedViewInfo:
    """Keep the filters of a list of jobs under a name, for oneself or, as its lead, for a group."""
    info = await asyncio.to_thread(service.saved_views.save, body, access.caller)
    access.note(info.query, target=AccessTarget("view", info.name, info.user, frozenset({info.group} - {""})))
    return info


@router.delete("/{view}", status_code=204)
async def delete_view(view: str, service: ServiceOf, access: ViewChanger) -> None:
    """Forget a saved list of jobs."""
    info = await asyncio.to_thread(service.saved_views.delete, view, access.caller)
    access.note("deleted", info.query, AccessTarget("view", info.name, info.user, frozenset({info.group} - {""})))
