"""Routes about users."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from millpond.server.api.account_views import limits_text, user_info
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, SecurityOf, ServiceOf, TenantsOf, may, user_in_path
from millpond.server.auth.records import User
from millpond.server.auth.roles import UserRole, Verb
from millpond.specs.api.accounts.accounts import ChangedUser, Invitation, NewUser, UserChange, UserList
from millpond.specs.api.accounts.sign_on import Binding, IdentityInfo

router = api_router(prefix="/users", tags=["users"])

Changer = Annotated[Access, may(Verb.CHANGE_USERS, user_in_path)]


@router.get("")
def list_users(access: Annotated[Access, may(Verb.READ_USERS)], security: SecurityOf) -> UserList:
    """The accounts that one may see, by name."""
    accounts = security.accounts
    seen = [user for user in accounts.users() if access.sees(accounts.target_user(user.name))]
    return UserList(users=[user_info(accounts, user) for user in seen])


@router.post("", status_code=201)
async def add_user(
    body: NewUser,
    access: Annotated[Access, may(Verb.CHANGE_USERS)],
    security: SecurityOf,
    tenants: TenantsOf,
    service: ServiceOf,
) -> Invitation:
    """Make an account; a person's comes with an invitation by which they choose a password."""
    limits = body.limits
    user = User(body.name, body.admin, body.service, limits=limits)
    made = await asyncio.to_thread(security.accounts.add_user, user, body.group or "", UserRole(body.role))
    what = "service" if made.service else "admin" if made.admin else "user"
    access.note(f"{what}, {body.role} of {body.group}" if body.group else what)
    access.act.target = security.accounts.target_user(made.name)
    await tenants.changed_user(made)
    info = user_info(security.accounts, made)
    if made.service:
        return Invitation(user=info)
    token, secret = await asyncio.to_thread(security.logins.invite, made.name)
    warning = service.isolation.warning
    return Invitation(user=info, invitation=secret, expires_at=token.expires_at, warning=warning)


@router.patch("/{user}")
async def change_user(
    user: str, body: UserChange, access: Changer, security: SecurityOf, tenants: TenantsOf, service: ServiceOf
) -> ChangedUser:
    """Make a user an admin or no longer one, disable or enable an account, change its limits."""

    def change(known: User) -> User:
        changed = replace(
            known,
            admin=known.admin if body.admin is None else body.admin,
            disabled=known.disabled if body.disabled is None else body.disabled,
            limits=known.limits if body.limits is None else body.limits,
        )
        access.note(_summary(changed), _summary(known))
        return changed

    changed = await asyncio.to_thread(security.accounts.change_user, user, change)
    await tenants.changed_user(changed)
    warning = service.isolation.warning if body.disabled is False else ""
    return ChangedUser(**user_info(security.accounts, changed).model_dump(), warning=warning)


@router.post("/{user}/invitation", status_code=201)
def invite(user: str, access: Changer, security: SecurityOf) -> Invitation:
    """A new invitation, for a user who has lost their password; the present one stays until it is used."""
    token, secret = security.logins.invite(user)
    access.note("invited")
    info = user_info(security.accounts, security.accounts.user(user))
    return Invitation(user=info, invitation=secret, expires_at=token.expires_at)


@router.put("/{user}/identity")
def bind(user: str, body: Binding, access: Changer, security: SecurityOf) -> IdentityInfo:
    """Bind an account to a subject of the provider, who logs in as it from now on."""
    sign_on = security.sign_on
    before = sign_on.identities.of(user)
    bound = sign_on.identities.bind(user, sign_on.rules.issuer, body.subject)
    access.note(f"{bound.subject} at {bound.issuer}", f"{before.subject} at {before.issuer}" if before else "")
    return IdentityInfo(user=user, issuer=bound.issuer, subject=bound.subject)


@router.delete("/{user}/identity")
def unbind(user: str, access: Changer, security: SecurityOf) -> IdentityInfo:
    """Unbind an account from its subject at the provider; its tokens stay."""
    ended = security.sign_on.identities.unbind(user)
    access.note("bound to nobody", f"{ended.subject} at {ended.issuer}")
    return IdentityInfo(user=user, issuer=ended.issuer, subject=ended.subject)


def _summary(user: User) -> str:
    words = [word for word, holds in (("admin", user.admin), ("disabled", user.disabled)) if holds]
    return ", ".join([*words, limits_text(user.limits)])
