"""Accounts as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.model.amounts import decimal_text
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.records import Group, GroupInvitation, SshKey, Token, User
from millpond.specs.api.accounts.accounts import (
    AccountLimits,
    GroupInfo,
    MemberInfo,
    MembershipInfo,
    TokenInfo,
    UserInfo,
)
from millpond.specs.api.accounts.ssh import PublicKey, SshKeyInfo


def memberships(accounts: Accounts, user: str) -> list[MembershipInfo]:
    """The groups a user is in, the oldest first."""
    return [
        MembershipInfo(group=member.group, queue=accounts.group(member.group).queue, role=member.role.value)
        for member in accounts.memberships(user)
    ]


def user_info(accounts: Accounts, user: User) -> UserInfo:
    """An account, without its password."""
    return UserInfo(
        name=user.name,
        admin=user.admin,
        service=user.service,
        disabled=user.disabled,
        has_password=bool(user.password),
        created_at=user.created_at,
        groups=memberships(accounts, user.name),
        limits=user.limits,
    )


def group_info(accounts: Accounts, group: Group, invited: Iterable[GroupInvitation] = ()) -> GroupInfo:
    """A group with its members, and who is invited where that may be seen."""
    return GroupInfo(
        name=group.name,
        queue=group.queue,
        members=[MemberInfo(user=member.user, role=member.role.value) for member in accounts.members_of(group.name)],
        invited=[MemberInfo(user=each.user, role=each.role.value) for each in invited],
        limits=group.limits,
    )


def token_info(token: Token, secret: str = "") -> TokenInfo:
    """A token's record; its secret only where it has just been made."""
    return TokenInfo(
        id=token.id,
        kind=token.kind.value,
        user=token.user,
        name=token.name,
        verbs=sorted(token.verbs),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        used_at=token.used_at,
        secret=secret,
    )


def ssh_key_info(key: SshKey) -> SshKeyInfo:
    """A registered key, without itself."""
    return SshKeyInfo(
        id=key.id,
        user=key.user,
        name=key.name,
        kind=key.kind,
        fingerprint=PublicKey(key.kind, key.blob).fingerprint,
        created_at=key.created_at,
        used_at=key.used_at,
    )


def limits_text(limits: AccountLimits) -> str:
    """Limits in a few words, for the audit log."""
    given = {name: value for name, value in limits.model_dump().items() if value is not None}
    return ", ".join(f"{name} {decimal_text(value)}" for name, value in given.items()) or "no limits"
