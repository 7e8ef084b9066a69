"""The pages about accounts and the server: users, groups, tokens, webhooks, the audit log, the configuration.

Each shows what the API's route of the same things answers the reader with, and is offered to those who may ask it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Final, TypeVar, get_args
from urllib.parse import urlencode

import yaml
from fastapi import APIRouter, Query, Response
from starlette.responses import RedirectResponse

from millpond.server.api.permits import Access, ClusterKeeper, Myself, SecurityOf, ServiceOf, Word, may
from millpond.server.api.routes.credentials import list_tokens
from millpond.server.api.routes.groups import list_groups
from millpond.server.api.routes.machines import entries
from millpond.server.api.routes.users import list_users
from millpond.server.auth.roles import Caller, Verb
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.rendering import PageReader, show
from millpond.specs.config.webhooks import Topic

ROWS_ON_A_PAGE: Final = 100
SETTINGS_SHOWN: Final = 100
"""Of each list of the configuration: thousands of nodes may be written there."""
MEMBERS_SHOWN: Final = 100
"""Of a group; others are found by their names."""
ENTRIES_SHOWN: Final = 500
DELIVERIES_SHOWN: Final = 200
GROUP_ROLES: Final = ("member", "lead", "viewer")

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]

router = APIRouter(prefix="/portal/admin", include_in_schema=False, route_class=PageRoute)

_TABS: Final = (
    ("users", Verb.READ_USERS),
    ("groups", Verb.READ_GROUPS),
    ("tokens", Verb.READ_TOKENS),
    ("webhooks", Verb.READ_DELIVERIES),
    ("audit", Verb.READ_AUDIT),
    ("settings", Verb.CHANGE_CLUSTER),
)
"""Each page, and what one has to be allowed for it."""


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Paging:
    """Where a page stands among all rows.

    Attributes:
        page: from 1.
        begin: how many rows stand before it.
        query: the beginning of the address of the other pages.
    """

    page: int
    begin: int
    shown: int
    matching: int
    query: str


@router.get("")
async def admin(access: Myself) -> Response:
    """Leads to the first page that the reader may see."""
    tab = next(iter(_tabs(access.caller)), "tokens")
    return RedirectResponse(f"/portal/admin/{tab}", 303, {"Cache-Control": "no-store"})


@router.get("/users")
def users(
    access: Annotated[Access, may(Verb.READ_USERS)],
    security: SecurityOf,
    visit: VisitOf,
    find: Word = "",
    page: PageNumber = 1,
) -> Response:
    """The accounts that one may see, a page of those whose names have a text in them."""
    found = [user for user in list_users(access, security).users if find.casefold() in user.name.casefold()]
    part, paging = _part(found, page, {"find": find})
    can_change = may_do(access.caller, Verb.CHANGE_USERS)
    content = {"users": part, "paging": paging, "find": find, "owner": security.accounts.owner}
    return _show("users", visit, access, **content, can_change=can_change)


@router.get("/groups")
def groups(
    access: Annotated[Access, may(Verb.READ_GROUPS)], security: SecurityOf, visit: VisitOf, find: Word = ""
) -> Response:
    """The groups that one may see, with their members, or with those whose names have a text in them."""
    caller, accounts = access.caller, security.accounts
    found = list_groups(access, security).groups
    changeable = {
        group.name for group in found if may_do(caller, Verb.CHANGE_MEMBERS, accounts.target_group(group.name))
    }
    can_add = may_do(caller, Verb.CHANGE_GROUPS)
    content = {"groups": found, "changeable": changeable, "can_add": can_add, "roles": GROUP_ROLES}
    members = {
        group.name: [
            (member, is_invited)
            for known, is_invited in ((group.members, False), (group.invited, True))
            for member in known
            if find.casefold() in member.user.casefold()
        ]
        for group in found
    }
    return _show("groups", visit, access, **content, members=members, find=find, most=MEMBERS_SHOWN)


@router.get("/tokens")
def tokens(
    access: Annotated[Access, may(Verb.READ_TOKENS)],
    security: SecurityOf,
    visit: VisitOf,
    everything: Annotated[bool, Query(alias="all")] = False,
    find: Word = "",
    page: PageNumber = 1,
) -> Response:
    """The tokens that one may see, a page of those of a user; ended ones only where they are asked for."""
    accounts = security.accounts
    valid = {token.id for token in accounts.tokens.all() if accounts.tokens.valid_verbs(token.id) is not None}
    seen = [token for token in list_tokens(access, security).tokens if not find or token.user == find]
    query = {"all": "true" if everything else "", "find": find}
    found, paging = _part([token for token in seen if everything or token.id in valid], page, query)
    revocable = {
        token.id
        for token in found
        if token.id in valid and may_do(access.caller, Verb.CHANGE_TOKENS, accounts.tokens.target(token.id))
    }
    content: dict[str, Any] = {"tokens": found, "revocable": revocable, "everything": everything, "verbs": list(Verb)}
    content |= {"paging": paging, "find": find}
    can_make = may_do(access.caller, Verb.CHANGE_TOKENS)
    return _show("tokens", visit, access, **content, can_make=can_make, is_admin=access.caller.admin)


@router.get("/webhooks")
async def webhooks(
    access: Annotated[Access, may(Verb.READ_DELIVERIES)], service: ServiceOf, visit: VisitOf
) -> Response:
    """Who is notified of what, and what came of it."""
    sent = await asyncio.to_thread(service.deliveries.latest, DELIVERIES_SHOWN, visit.language)
    may_change = may_do(access.caller, Verb.CHANGE_CLUSTER)
    queues = await service.queues.taking_jobs(access.caller) if may_change else []
    content = {"hooks": service.webhooks.all(), "deliveries": sent, "topics": get_args(Topic), "queues": queues}
    return _show("webhooks", visit, access, **content, may_change=may_change)


@router.get("/audit")
def audit(
    access: Annotated[Access, may(Verb.READ_AUDIT)],
    security: SecurityOf,
    visit: VisitOf,
    by: Word = "",
    about: Annotated[Word, Query(alias="object")] = "",
    since: date | None = None,
) -> Response:
    """Who changed what, and who was refused, the newest first."""
    begin = _begin_of(since)
    found = entries(access, security, by, begin, about, ENTRIES_SHOWN).entries
    asked = {"by": by, "object": about, "since": f"{begin:.0f}" if begin else ""}
    twin = urlencode({name: value for name, value in asked.items() if value})
    content = {"by": by, "about": about, "since": since or "", "twin": twin}
    return _show("audit", visit, access, entries=found, **content, most=ENTRIES_SHOWN)


@router.get("/settings")
async def settings(access: ClusterKeeper, service: ServiceOf, visit: VisitOf) -> Response:
    """The configuration that was read last, and how the server was started."""
    found = service.about.settings()
    lists = {name: each for name, each in found.settings.items() if isinstance(each, list)}
    begun = found.settings | {name: each[:SETTINGS_SHOWN] for name, each in lists.items()}
    text = yaml.safe_dump(begun, allow_unicode=True, sort_keys=False) if begun else ""
    server = await service.about.info(access.caller.admin)
    chosen = await service.about.adaptation()
    left = {name: len(each) - SETTINGS_SHOWN for name, each in lists.items() if len(each) > SETTINGS_SHOWN}
    about = {"server": server, "chosen": chosen, "process": os.getpid()}
    return _show("settings", visit, access, found=found, text=text, left=left, **about)


def _begin_of(day: date | None) -> float:
    """When a day of the server begins, in seconds since 1970; 0 for earlier days."""
    if day is None or day <= date(1970, 1, 1):
        return 0.0
    return max(datetime(day.year, day.month, day.day).timestamp(), 0.0)  # noqa: DTZ001 - the day of the server


def _part(found: Sequence[Row], page: int, query: Mapping[str, str]) -> tuple[Sequence[Row], Paging]:
    """A page of rows, and where it stands among all of them; behind the last one it is the last."""
    page = max(min(page, -(-len(found) // ROWS_ON_A_PAGE)), 1)
    begin = (page - 1) * ROWS_ON_A_PAGE
    asked = urlencode({name: value for name, value in query.items() if value})
    part = found[begin : begin + ROWS_ON_A_PAGE]
    return part, Paging(page, begin, len(part), len(found), f"{asked}&" if asked else "")


def _tabs(caller: Caller) -> list[str]:
    return [tab for tab, verb in _TABS if may_do(caller, verb)]


def _show(tab: str, visit: PageReader, access: Access, **content: Any) -> Response:
    return show(f"admin/{tab}.html", visit, tab=tab, tabs=_tabs(access.caller), **content)
