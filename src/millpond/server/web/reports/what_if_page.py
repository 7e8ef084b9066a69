"""The page that asks what a change would do: a form whose address has the question, and the answer of a play."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from millpond.model.errors import InvalidInputError, MillpondError
from millpond.model.policies import ORDERINGS, PLACEMENTS
from millpond.model.units import DAY_S
from millpond.server.api.permits import Access, ServiceOf, may
from millpond.server.auth.roles import Verb
from millpond.server.http.disconnects import while_connected
from millpond.server.http.error_responses import refusal_of
from millpond.server.jobs.what_if.service import ANSWERED_WITHIN_S
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import show
from millpond.server.web.reports.periods import PeriodOf
from millpond.server.web.reports.report_frame import frame
from millpond.specs.api.base import ErrorBody
from millpond.specs.api.reports.what_if import WhatIfInfo
from millpond.specs.api.reports.what_if_request import PastSpan, QueueSetting, WhatIfRequest

SPANS_DAYS: Final = (0, 1, 3, 7, 14, 30)
"""The choices of how far back the play begins; 0 plays what runs and waits now."""
FIELDS: Final = ("guarantee.gpus", "limit.gpus")
JOBS_SHOWN: Final = 50
MOST_ROWS: Final = 100

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)

Asker = Annotated[Access, may(Verb.ASK_WHAT_IF)]
Typed = Annotated[str, Query(max_length=200)]
TypedRows = Annotated[tuple[Annotated[str, Query(max_length=200)], ...], Query(max_length=MOST_ROWS)]


@dataclass(frozen=True, slots=True)
class TypedSetting:
    """Another value of a field of a queue, as it was typed; no number takes it away. No queue: nothing."""

    queue: str = ""
    field: str = FIELDS[0]
    cards: str = ""

    def setting(self) -> QueueSetting:
        """The same for the API.

        Raises:
            InvalidInputError: the number is none.
        """
        try:
            cards = float(Decimal(self.cards)) if self.cards.strip() else None
            if cards is not None and not math.isfinite(cards):
                raise InvalidOperation(self.cards)
        except InvalidOperation as error:
            raise InvalidInputError(f"{self.cards[:40]!r} is not a number of cards", "write 8, or 0.5") from error
        return QueueSetting(queue=self.queue, field=self.field, value=cards)


@dataclass(frozen=True, slots=True)
class WhatIfForm:
    """What was typed.

    Attributes:
        past_days: one of ``SPANS_DAYS``.
        rows: changes of queues.
        add_nodes, remove_nodes: separated by commas or blanks.
    """

    past_days: int = 7
    ordering: str = ""
    placement: str = ""
    rows: tuple[TypedSetting, ...] = ()
    add_nodes: str = ""
    remove_nodes: str = ""

    @property
    def asks(self) -> bool:
        """Whether it names a change."""
        return any((self.ordering, self.placement, self.rows, self.add_nodes.strip(), self.remove_nodes.strip()))

    def request(self, now: float) -> WhatIfRequest:
        """The same for the API.

        Raises:
            InvalidInputError: a number is none.
        """
        past = PastSpan(since=now - self.past_days * DAY_S, until=now) if self.past_days else None
        return WhatIfRequest(
            set=tuple(row.setting() for row in self.rows),
            add_nodes=_words(self.add_nodes),
            remove_nodes=_words(self.remove_nodes),
            ordering=self.ordering or None,
            placement=self.placement or None,
            past=past,
        )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _form(
    past_days: Annotated[int, Query(ge=0, le=366)] = 7,
    ordering: Typed = "",
    placement: Typed = "",
    queue: TypedRows = (),
    part: Annotated[TypedRows, Query(alias="field")] = (),
    cards: TypedRows = (),
    add_nodes: Typed = "",
    remove_nodes: Typed = "",
) -> WhatIfForm:
    rows = (
        TypedSetting(name, of or FIELDS[0], number)
        for name, of, number in zip_longest(queue, part, cards, fillvalue="")
    )
    named = tuple(row for row in rows if row.queue)
    return WhatIfForm(past_days, ordering, placement, named, add_nodes, remove_nodes)


FormOf = Annotated[WhatIfForm, Depends(_form)]


@router.get("/what-if")
async def what_if(service: ServiceOf, access: Asker, visit: VisitOf, form: FormOf, period: PeriodOf) -> Response:
    """The form; where the address names a change, its script asks for the answer."""
    queues = [each.name for each in await service.queues.seen_by(access.caller)]
    content: dict[str, Any] = {
        "form": form,
        "rows": [*form.rows, TypedSetting()],
        "queues": queues,
        "fields": FIELDS,
        "spans": SPANS_DAYS,
        "within_s": ANSWERED_WITHIN_S,
    }
    content |= {"orderings": ORDERINGS, "placements": PLACEMENTS, "is_admin": access.caller.admin}
    return show("reports/what_if.html", visit, 200, **content, **frame(access.caller, period, {}))


@router.get("/what-if/answer")
async def answer(request: Request, service: ServiceOf, access: Asker, visit: VisitOf, form: FormOf) -> Response:
    """The answer; its play ends when the page is left."""
    found: WhatIfInfo | None = None
    refused: ErrorBody | None = None
    try:
        question = service.what_if.answer(form.request(time.time()), access.caller)
        found = await while_connected(request, question)
    except MillpondError as error:
        known = refusal_of(error)
        if known is None:
            raise
        refused = known[1]
    jobs = [] if found is None else found.jobs
    gains, losses = ([job for job in jobs if job.effect == effect] for effect in ("earlier", "later"))
    content: dict[str, Any] = {
        "answer": found,
        "refused": refused,
        "gains": gains,
        "losses": losses,
        "jobs_shown": JOBS_SHOWN,
    }
    return show("reports/what_if_answer.html", visit, 200, **content)
