"""Models that take long to make, or are large, as answers (``server.http.long_answers``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.server.api.permits import Access
from millpond.server.api.service import Service
from millpond.specs.api.models import adapter_of


async def long_answer(service: Service, request: Request, access: Access, make: Callable[[], Any]) -> Response:
    """The answer with one model as JSON, when it is its caller's turn.

    Args:
        make: may block.

    Raises:
        UnavailableError: the caller has too many of these under way.
    """
    answers = service.long_answers

    def made() -> Response:
        model = make()
        kind: Any = type(model)
        return Response(adapter_of(kind).dump_json(model), media_type="application/json")

    return await answers.answer(request, access.caller.user, lambda: answers.in_thread(made))
