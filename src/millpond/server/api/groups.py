"""Routes about groups and who is in them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from millpond.server.api.dependencies import TenantsOf
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, SecurityOf, group_in_path, may
from millpond.server.api.pictures import group_info, limits_of, limits_text
from millpond.server.auth.records import Group
from millpond.server.auth.roles import Role, Verb
from millpond.specs.accounts import GroupChange, GroupInfo, GroupList, Membership, NewGroup

router = api_router(prefix="/groups", tags=["groups"])

MemberChanger = Annotated[Access, may(Verb.CHANGE_MEMBERS, group_in_path)]


@router.get("")
def list_groups(access: Annotated[Access, may(Verb.READ_GROUPS)], security: SecurityOf) -> GroupList:
    """The groups that one may see, with their members."""
    accounts = security.accounts
    seen = [group for group in accounts.groups() if access.sees(accounts.target_group(group.name))]
    return GroupList(groups=[group_info(accounts, group) for group in seen])


@router.post("", status_code=201)
async def add_group(
    wish: NewGroup, access: Annotated[Access, may(Verb.CHANGE_GROUPS)], security: SecurityOf, tenants: TenantsOf
) -> GroupInfo:
    """Make a group. It owns a queue, which is made with it where the configuration has none of that name."""
    group = Group(wish.name, wish.queue or wish.name, limits=limits_of(wish.limits))
    await tenants.check_queue(group.queue)
    made = await asyncio.to_thread(security.accounts.add_group, group)
    access.tell(f"queue {made.queue}, {limits_text(made.limits)}", target=security.accounts.target_group(made.name))
    await tenants.changed_group(made)
    return group_info(security.accounts, made)


@router.patch("/{group}")
async def change_group(
    group: str,
    wish: GroupChange,
    access: Annotated[Access, may(Verb.CHANGE_GROUPS, group_in_path)],
    security: SecurityOf,
    tenants: TenantsOf,
) -> GroupInfo:
    """Give a group other limits."""

    def change(known: Group) -> Group:
        changed = replace(known, limits=limits_of(wish.limits))
        access.tell(limits_text(changed.limits), limits_text(known.limits))
        return changed

    changed = await asyncio.to_thread(security.accounts.change_group, group, change)
    await tenants.changed_group(changed)
    return group_info(security.accounts, changed)


@router.put("/{group}/members/{user}")
def put_member(group: str, user: str, wish: Membership, access: MemberChanger, security: SecurityOf) -> GroupInfo:
    """Take a user into a group, or give a member another role."""
    accounts = security.accounts
    known = next((member for member in accounts.members_of(group) if member.user == user), None)
    member = accounts.put_member(group, user, Role(wish.role))
    access.tell(f"{user} is {member.role.value}", f"{user} is {known.role.value if known else 'no member'}")
    return group_info(accounts, accounts.group(group))


@router.delete("/{group}/members/{user}")
def drop_member(group: str, user: str, access: MemberChanger, security: SecurityOf) -> GroupInfo:
    """Let a user leave a group; their jobs stay the group's."""
    accounts = security.accounts
    member = accounts.drop_member(group, user)
    access.tell(f"{user} is no member", f"{user} is {member.role.value}")
    return group_info(accounts, accounts.group(group))
