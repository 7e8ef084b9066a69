"""The route to the audit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Query

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, SecurityOf, Word, may
from millpond.server.auth.roles import Verb
from millpond.server.store.audit import AuditQuery
from millpond.specs.api.accounts import AuditInfo, AuditList

router = api_router(tags=["audit"])


@router.get("/audit")
def entries(
    access: Annotated[Access, may(Verb.READ_AUDIT)],
    security: SecurityOf,
    by: Word = "",
    since: Annotated[float, Query(ge=0, le=1e12)] = 0.0,
    about: Annotated[Word, Query(alias="object")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> AuditList:
    """Who changed what, and who was refused, the newest first: of all, or of the groups that one leads."""
    caller, accounts = access.caller, security.accounts
    groups = None if caller.admin else [name for name in caller.groups if access.sees(accounts.target_group(name))]
    found = security.audit.find(AuditQuery(by, since, about, groups, limit))
    return AuditList(entries=[AuditInfo(**asdict(entry)) for entry in found])
