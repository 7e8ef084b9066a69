"""Routes about groups and who is in them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import Path

from millpond.model.errors import NotAllowedError
from millpond.server.api.account_views import group_info, limits_text
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, SecurityOf, TenantsOf, group_in_path, may
from millpond.server.auth.components import Security
from millpond.server.auth.records import Group
from millpond.server.auth.roles import UserRole, Verb, allows
from millpond.specs.api.accounts.accounts import GroupChange, GroupInfo, GroupList, Membership, NewGroup
from millpond.specs.validation import PLAIN_NAME

router = api_router(prefix="/groups", tags=["groups"])

SelfChanger = Annotated[Access, may(Verb.CHANGE_SELF)]
InvitedName = Annotated[str, Path(pattern=PLAIN_NAME, max_length=64)]
MemberChanger = Annotated[Access, may(Verb.CHANGE_MEMBERS, group_in_path)]


@router.get("")
def list_groups(access: Annotated[Access, may(Verb.READ_GROUPS)], security: SecurityOf) -> GroupList:
    """The groups that one may see, with their members."""
    accounts = security.accounts
    seen = [group for group in accounts.groups() if access.sees(accounts.target_group(group.name))]
    return GroupList(groups=[_group_info(security, access, group.name) for group in seen])


@router.post("", status_code=201)
async def add_group(
    body: NewGroup, access: Annotated[Access, may(Verb.CHANGE_GROUPS)], security: SecurityOf, tenants: TenantsOf
) -> GroupInfo:
    """Make a group. It owns a queue, which is made with it where the configuration has none of that name."""
    group = Group(body.name, body.queue or body.name, limits=body.limits)
    await tenants.check_queue(group.queue)
    await tenants.check_limits(group)
    made = await asyncio.to_thread(security.accounts.add_group, group)
    access.note(f"queue {made.queue}, {limits_text(made.limits)}", target=security.accounts.target_group(made.name))
    await tenants.changed_group(made)
    return group_info(security.accounts, made)


@router.patch("/{group}")
async def change_group(
    group: str,
    body: GroupChange,
    access: Annotated[Access, may(Verb.CHANGE_GROUPS, group_in_path)],
    security: SecurityOf,
    tenants: TenantsOf,
) -> GroupInfo:
    """Give a group other limits."""

    def change(known: Group) -> Group:
        changed = replace(known, limits=body.limits)
        access.note(limits_text(changed.limits), limits_text(known.limits))
        return changed

    await tenants.check_limits(replace(security.accounts.group(group), limits=body.limits))
    changed = await asyncio.to_thread(security.accounts.change_group, group, change)
    await tenants.changed_group(changed)
    return group_info(security.accounts, changed)


@router.put("/{group}/members/{user}")
def put_member(group: str, user: str, body: Membership, access: MemberChanger, security: SecurityOf) -> GroupInfo:
    """Give a member another role. An admin also takes users into a group so; a lead invites them."""
    accounts = security.accounts
    known = next((member for member in accounts.members_of(group) if member.user == user), None)
    if known is None and not access.caller.admin:
        cause = f"{user!r} is not in group {group!r}, and a lead adds no user without asking"
        raise NotAllowedError(cause, f"invite them with `pond group invite {group} {user}`")
    member = accounts.put_member(group, user, UserRole(body.role))
    security.invitations.forget(group, user)
    access.note(f"{user} is {member.role.value}", f"{user} is {known.role.value if known else 'no member'}")
    return _group_info(security, access, group)


@router.delete("/{group}/members/{user}")
def drop_member(group: str, user: str, access: MemberChanger, security: SecurityOf) -> GroupInfo:
    """Let a user leave a group; their jobs stay the group's."""
    accounts = security.accounts
    member = accounts.drop_member(group, user)
    security.invitations.forget(group, user)
    access.note(f"{user} is no member", f"{user} is {member.role.value}")
    return _group_info(security, access, group)


@router.put("/{group}/invitations/{user}")
def invite(group: str, user: InvitedName, body: Membership, access: MemberChanger, security: SecurityOf) -> GroupInfo:
    """Invite a user into a group, who becomes a member by accepting. Whether there is such a user is not disclosed."""
    security.invitations.invite(group, user, UserRole(body.role), access.caller.user)
    access.note(f"{user} is invited as {body.role}")
    return _group_info(security, access, group)


@router.delete("/{group}/invitations/{user}")
def withdraw(group: str, user: str, access: MemberChanger, security: SecurityOf) -> GroupInfo:
    """Take an invitation back."""
    invitation = security.invitations.withdraw(group, user)
    access.note(f"{user} is not invited", f"{user} is invited as {invitation.role.value}")
    return _group_info(security, access, group)


@router.post("/{group}/membership")
def accept(group: str, access: SelfChanger, security: SecurityOf) -> GroupInfo:
    """Accept an invitation."""
    user = access.caller.user
    member, target = security.invitations.accept(group, user), security.accounts.target_group(group)
    access.note(f"{user} is {member.role.value}, by accepting an invitation", f"{user} is no member", target)
    return group_info(security.accounts, security.accounts.group(group))


@router.delete("/{group}/membership", status_code=204)
def decline(group: str, access: SelfChanger, security: SecurityOf) -> None:
    """Decline an invitation."""
    user = access.caller.user
    invitation = security.invitations.withdraw(group, user)
    target = security.accounts.target_group(group)
    access.note(f"{user} declined", f"{user} is invited as {invitation.role.value}", target)


def _group_info(security: Security, access: Access, group: str) -> GroupInfo:
    """A group as the caller may see it."""
    accounts, target = security.accounts, security.accounts.target_group(group)
    chooses = allows(access.caller, Verb.CHANGE_MEMBERS, target)
    return group_info(accounts, accounts.group(group), security.invitations.of_group(group) if chooses else ())
