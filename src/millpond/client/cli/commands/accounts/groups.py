"""``pond group``: groups, their queues and limits, and who is in them."""

from __future__ import annotations

from typing import Any

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.commands.accounts.limit_options import limit_options, limits_from, limits_text
from millpond.client.cli.connection import with_client
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.errors import NotFoundError
from millpond.specs.api.accounts.accounts import AccountLimits, GroupInfo, GroupList, MemberInfo


def _members(members: list[MemberInfo]) -> str:
    return ", ".join(member.user if member.role == "member" else f"{member.user} ({member.role})" for member in members)


_TABLE: ListTable[GroupInfo] = ListTable(
    (
        Column("GROUP", lambda known: known.name),
        Column("QUEUE", lambda known: known.queue),
        Column("MEMBERS", lambda known: _members(known.members), gives_way=True),
        Column("LIMITS", lambda known: limits_text(known.limits), gives_way=True),
    ),
)
_role_option = click.option(
    "--role", type=click.Choice(["lead", "member", "viewer"]), default="member", show_default=True, help="As what."
)


@click.group("group", cls=SuggestingGroup)
def group() -> None:
    """Groups: add, list, limit; members and invitations."""


@group.command("add")
@click.argument("name")
@click.option("--queue", help="Queue that it owns [default: the group's name; made where there is none].")
@limit_options
@with_client
def add(client: Client, name: str, queue: str | None, **limits: Any) -> None:
    """Make a group. Its members submit to its queue."""
    _print_group(client.accounts.add_group(name, queue, limits_from(AccountLimits(), **limits)))


@group.command("ls")
@lists()
def ls(client: Client) -> Listing:
    """List the groups that you may see, with their members."""
    groups = client.accounts.groups()
    return Listing.of(GroupList(groups=groups), groups, _TABLE, empty="no groups; `pond group add NAME` makes one")


@group.command("set")
@click.argument("name")
@limit_options
@with_client
def change(client: Client, name: str, **limits: Any) -> None:
    """Change a group's limits: what its members may hold together."""
    known = next((each for each in client.accounts.groups() if each.name == name), None)
    if known is None:
        raise NotFoundError(f"no group {name!r}", "list them with `pond group ls`")
    _print_group(client.accounts.limit_group(name, limits_from(known.limits, **limits)))


@group.command("invite")
@click.argument("name", metavar="GROUP")
@click.argument("user")
@_role_option
@click.option("--withdraw", is_flag=True, help="Take the invitation back.")
@with_client
def invite(client: Client, name: str, user: str, role: str, withdraw: bool) -> None:
    """Invite USER into GROUP; with `pond group accept` they become a member."""
    accounts = client.accounts
    _print_group(accounts.withdraw_invitation(name, user) if withdraw else accounts.invite_member(name, user, role))


@group.command("accept")
@click.argument("name", metavar="GROUP")
@with_client
def accept(client: Client, name: str) -> None:
    """Accept the invitation to GROUP and become a member; `pond whoami` lists invitations."""
    _print_group(client.accounts.accept_invitation(name))


@group.command("decline")
@click.argument("name", metavar="GROUP")
@with_client
def decline(client: Client, name: str) -> None:
    """Decline the invitation to GROUP."""
    client.accounts.decline_invitation(name)
    click.echo(f"declined the invitation to {name}")


@group.command("add-member")
@click.argument("name", metavar="GROUP")
@click.argument("user")
@_role_option
@with_client
def add_member(client: Client, name: str, user: str, role: str) -> None:
    """Add USER to GROUP (admins only), or change the role of a member."""
    _print_group(client.accounts.put_member(name, user, role))


@group.command("remove-member")
@click.argument("name", metavar="GROUP")
@click.argument("user")
@with_client
def remove_member(client: Client, name: str, user: str) -> None:
    """Remove USER from GROUP; their jobs stay the group's."""
    _print_group(client.accounts.drop_member(name, user))


def _print_group(known: GroupInfo) -> None:
    members = _members(known.members) or "no members"
    invited = f"; invited: {_members(known.invited)}" if known.invited else ""
    click.echo(f"{known.name}: queue {known.queue}, {members}{invited}; {limits_text(known.limits)}")
