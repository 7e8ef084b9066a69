"""Routes about secrets: their names can be listed, their values only be set."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Path

from millpond.model.errors import InvalidInputError
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, SecurityOf, ServiceOf, may, secret_in_path, secret_target
from millpond.server.auth.roles import Verb
from millpond.server.auth.vault.secrets import GROUP, SERVER, USER
from millpond.server.store.secrets import SecretRow
from millpond.specs.api.secrets import SecretInfo, SecretList, SecretPut
from millpond.specs.job.fields import VARIABLE

router = api_router(prefix="/secrets", tags=["secrets"])

Kind = Literal["user", "group", "server"]
SecretName = Annotated[str, Path(pattern=VARIABLE, max_length=100)]
Changer = Annotated[Access, may(Verb.CHANGE_SECRETS, secret_in_path)]


@router.get("")
async def list_secrets(access: Annotated[Access, may(Verb.READ_SECRETS)], service: ServiceOf) -> SecretList:
    """The secrets that one's jobs can have, or that one may change; never their values."""
    rows = await asyncio.to_thread(service.vault.all)
    seen = [row for row in rows if access.sees(secret_target(row.kind, row.owner, row.name))]
    return SecretList(secrets=[_info(row) for row in seen])


@router.put("/{kind}/{owner}/{secret}", status_code=201)
async def put_secret(
    kind: Kind,
    owner: str,
    secret: SecretName,
    put: SecretPut,
    access: Changer,
    service: ServiceOf,
    security: SecurityOf,
) -> SecretInfo:
    """Keep a secret of a user or a group, or (owner ``-``) of the server; one of the same name is replaced."""
    if kind == USER:
        security.accounts.user(owner)
    elif kind == GROUP:
        security.accounts.group(owner)
    elif owner != "-":
        raise InvalidInputError(f"the server's secrets have no owner {owner!r}", "write - for the owner")
    row = await asyncio.to_thread(
        service.vault.put, kind, "" if kind == SERVER else owner, secret, put.value, access.caller.user
    )
    access.note("set")
    return _info(row)


@router.delete("/{kind}/{owner}/{secret}", status_code=204)
async def drop_secret(kind: Kind, owner: str, secret: SecretName, access: Changer, service: ServiceOf) -> None:
    """Forget a secret. Tasks that run keep it; those that start later do not get it."""
    await asyncio.to_thread(service.vault.drop, kind, "" if kind == SERVER else owner, secret)
    access.note("removed")


def _info(row: SecretRow) -> SecretInfo:
    return SecretInfo(kind=row.kind, owner=row.owner, name=row.name, cipher=row.cipher, by=row.by, at=row.at)
