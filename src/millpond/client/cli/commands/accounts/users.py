"""``pond user``: accounts, and one's own password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.commands.accounts.limit_options import limit_options, limits_from, limits_text
from millpond.client.cli.connection import connect, state_dir_option, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.cli.terminal.secret_input import SecretInput, from_stdin
from millpond.client.sdk import Client
from millpond.model.errors import NotAllowedError, NotFoundError
from millpond.specs.api.accounts.accounts import (
    AccountLimits,
    GroupRole,
    Invitation,
    NewUser,
    UserChange,
    UserInfo,
    UserList,
)


def _groups(user: UserInfo) -> str:
    return ", ".join(f"{membership.group} ({membership.role})" for membership in user.groups)


def _kind(user: UserInfo) -> str:
    kind = "service" if user.service else "admin" if user.admin else "user"
    return f"{kind}, disabled" if user.disabled else kind


_TABLE: ListTable[UserInfo] = ListTable(
    (
        Column("USER", lambda user: user.name),
        Column("KIND", _kind),
        Column("GROUPS", _groups, gives_way=True),
        Column("LIMITS", lambda user: limits_text(user.limits), gives_way=True),
    )
)


@click.group("user", cls=SuggestingGroup)
def group() -> None:
    """Users: add, list, change, disable, bind; your password."""


@group.command("add")
@click.argument("name")
@click.option("--group", "group_name", help="Group to join.")
@click.option(
    "--role", type=click.Choice(["lead", "member", "viewer"]), default="member", show_default=True, help="As what."
)
@click.option("--admin", is_flag=True, help="May do everything.")
@click.option("--service", is_flag=True, help="A program's account: tokens, no password.")
@limit_options
@state_dir_option
def add(
    name: str,
    group_name: str | None,
    role: GroupRole,
    admin: bool,
    service: bool,
    state_dir: Path | None,
    **limits: Any,
) -> None:
    """Create an account and print an invitation with which its owner sets a password."""
    body = limits_from(AccountLimits(), **limits)
    user = NewUser.model_construct(name=name, admin=admin, service=service, group=group_name, role=role, limits=body)
    with connect(state_dir) as client:
        url = _public_url(client)
        _print_invitation(client.accounts.add_user(user), url)
    if not group_name and not admin:
        say(f"{name} is in no group and may submit no jobs: `pond group add-member GROUP {name}`")


@group.command("ls")
@lists()
def ls(client: Client) -> Listing:
    """List the accounts that you may see."""
    users = client.accounts.users()
    return Listing.of(UserList(users=users), users, _TABLE)


@group.command("set")
@click.argument("name")
@click.option("--admin/--no-admin", default=None, help="May do everything, or no longer.")
@limit_options
@with_client
def change(client: Client, name: str, admin: bool | None, **limits: Any) -> None:
    """Change the limits of an account, or make it an admin."""
    known = next((user for user in client.accounts.users() if user.name == name), None)
    if known is None:
        raise NotFoundError(f"no user {name!r}", "list them with `pond user ls`")
    request = UserChange(admin=admin, limits=limits_from(known.limits, **limits))
    changed = client.accounts.change_user(name, request)
    click.echo(f"{changed.name}: {_kind(changed)}, {limits_text(changed.limits)}")


@group.command("disable")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Enable it again.")
@with_client
def disable(client: Client, name: str, undo: bool) -> None:
    """Disable an account: its password and its tokens are refused. Its jobs go on."""
    changed = client.accounts.change_user(name, UserChange(disabled=not undo))
    click.echo(f"{changed.name}: {_kind(changed)}")
    if changed.warning:
        say(changed.warning)


@group.command("passwd")
@click.argument("name", required=False)
@from_stdin
@with_client
def passwd(client: Client, name: str | None, stdin: bool) -> None:
    """Change your password; with NAME, print an invitation for that user to set one."""
    if name is not None:
        url = _public_url(client)
        _print_invitation(client.accounts.invite(name), url)
        return
    secrets = SecretInput(stdin)
    me = client.accounts.whoami()
    present = "" if me.how == "owner" else secrets.ask("present password")
    client.accounts.change_password(present, secrets.ask_new())
    click.echo(f"{me.user} has a new password; other logins have ended")


@group.command("bind")
@click.argument("name")
@click.argument("subject")
@with_client
def bind(client: Client, name: str, subject: str) -> None:
    """Give an account to the user who logs in with OpenID Connect as SUBJECT; a refused login shows its SUBJECT."""
    bound = client.accounts.bind_user(name, subject)
    click.echo(f"{bound.user} is {bound.subject} at {bound.issuer}")


@group.command("unbind")
@click.argument("name")
@with_client
def unbind(client: Client, name: str) -> None:
    """Remove the OpenID Connect identity of an account. Its tokens and sessions stay."""
    ended = client.accounts.unbind_user(name)
    click.echo(f"{ended.user} is no longer {ended.subject} at {ended.issuer}")


def _public_url(client: Client) -> str:
    """By which people reach the server, as its configuration says, or else this command does.

    It is asked before an invitation is made, which is shown once.
    """
    try:
        listen = client.settings().settings.get("listen") or {}
    except NotAllowedError:  # a token may be for accounts alone
        listen = {}
    return str(listen.get("public_url") or client.address.url)


def _print_invitation(invitation: Invitation, url: str) -> None:
    user = invitation.user
    if invitation.warning:
        say(invitation.warning)
    if not invitation.invitation:
        click.echo(user.name)
        say(f"make it a token with `pond token create --user {user.name} NAME`")
        return
    say(f"{user.name} logs in with `pond login {url} --invitation` within 7 days, which asks for this, shown once:")
    click.echo(invitation.invitation)
