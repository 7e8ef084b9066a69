"""The portal's routes. Each page takes its content from what the API's route of the same things answers with."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from starlette.routing import BaseRoute

from millpond.server.api.permits import ClusterReader, SecurityOf, ServiceOf
from millpond.server.http.long_answers import StreamedAnswer
from millpond.server.web import admin_pages, entry, notification_page
from millpond.server.web.change_feed import ChangeFeed
from millpond.server.web.charts import curves_page, history_pages
from millpond.server.web.jobs import job_pages, output_page, sessions_page, submit_page
from millpond.server.web.pool import node_pages, overview_page, reservation_pages
from millpond.server.web.queues import queue_pages
from millpond.server.web.reports import report_pages, what_if_page

router = APIRouter(prefix="/portal", include_in_schema=False)
"""What is read by the pages and not by people: refused as requests to the API are, and never led to the login."""


def portal_routes() -> list[BaseRoute]:
    """All routes of the portal, for the application."""
    parts = (
        overview_page.router,
        job_pages.router,
        job_pages.selections,
        output_page.router,
        submit_page.router,
        submit_page.drafts,
        sessions_page.router,
        sessions_page.starts,
        node_pages.router,
        queue_pages.router,
        queue_pages.forms,
        reservation_pages.router,
        history_pages.router,
        curves_page.router,
        report_pages.router,
        what_if_page.router,
        admin_pages.router,
        notification_page.router,
        router,
        entry.router,
        entry.links,
        entry.others,  # the last: it takes every address that no other page has
    )
    return [route for part in parts for route in part.routes]


@router.get("/stream")
async def stream(request: Request, service: ServiceOf, access: ClusterReader, security: SecurityOf) -> Response:
    """Tells an open page when something has changed."""
    state = request.app.state
    if not hasattr(state, "change_feed"):
        state.change_feed = ChangeFeed(lambda: service.version(), service.closing.is_set)
    feed: ChangeFeed = state.change_feed
    events: AsyncIterator[bytes] = feed.events(access.lasting(security.accounts))
    return StreamedAnswer(events, media_type="text/event-stream")
