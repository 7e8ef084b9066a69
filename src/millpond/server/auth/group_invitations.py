"""Invitations into groups: a lead invites a user, who becomes a member only by accepting.

A lead may invite any name: whether there is such a user is not disclosed. An invitation counts for 14 days, and only as
long as the user who made it may still choose the group's members.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.records import GroupInvitation, GroupMember
from millpond.server.auth.roles import UserRole, Verb, allows

VALID_S: Final = 14 * 86_400.0
MOST_PER_GROUP: Final = 200
"""Open invitations, as each is a row that a lead makes at will."""


class GroupInvitations:
    """The open invitations of one server."""

    def __init__(self, store: AccountStore, accounts: Accounts, clock: WallClock) -> None:
        self._store = store
        self._accounts = accounts
        self._clock = clock
        self._lock = threading.Lock()
        self._open = {(each.group, each.user): each for each in store.group_invitations()}

    def invite(self, group: str, user: str, role: UserRole, by: str) -> GroupInvitation:
        """Offer a place in a group; a second offer replaces the first.

        Raises:
            NotFoundError: there is no such group.
            ConflictError: the user is a member already.
            InvalidInputError: the group has too many open invitations.
        """
        invitation = GroupInvitation(self._accounts.group(group).name, user, role, by, self._clock())
        with self._lock:
            self._forget_old()
            if any(member.user == user for member in self._accounts.members_of(group)):
                raise ConflictError(f"{user!r} is in group {group!r} already", "give another role with add-member")
            if sum(each.group == group and each.user != user for each in self._open.values()) >= MOST_PER_GROUP:
                cause = f"group {group!r} has {MOST_PER_GROUP} open invitations"
                raise InvalidInputError(cause, "withdraw some of them")
            self._store.save(invitation)
            self._open[group, user] = invitation
        return invitation

    def withdraw(self, group: str, user: str) -> GroupInvitation:
        """Take an invitation back, or decline it.

        Raises:
            NotFoundError: there is none.
        """
        with self._lock:
            invitation = self._open.get((group, user))
            if invitation is None:
                raise _no_invitation(group)
            self._drop(invitation)
        return invitation

    def forget(self, group: str, user: str) -> None:
        """Their membership was decided otherwise: an older offer, if any, neither changes it nor brings it back."""
        with suppress(NotFoundError):
            self.withdraw(group, user)

    def accept(self, group: str, user: str) -> GroupMember:
        """Make a user who was invited a member.

        Raises:
            NotFoundError: they are not invited, or no longer.
        """
        with self._lock:  # who is told that it is withdrawn has made no member of them
            invitation = self._open.get((group, user))
            if invitation is None or not self._is_valid(invitation):
                raise _no_invitation(group)
            member = self._accounts.put_member(group, user, invitation.role)
            self._drop(invitation)
        return member

    def of_user(self, user: str) -> list[GroupInvitation]:
        """The invitations that a user can accept now, by group."""
        return sorted((each for each in self._valid() if each.user == user), key=lambda each: each.group)

    def of_group(self, group: str) -> list[GroupInvitation]:
        """The open invitations of a group, by user."""
        return sorted((each for each in self._valid() if each.group == group), key=lambda each: each.user)

    def _valid(self) -> list[GroupInvitation]:
        with self._lock:
            kept = list(self._open.values())
        return [each for each in kept if self._is_valid(each)]

    def _is_valid(self, invitation: GroupInvitation) -> bool:
        """Whether it is neither too old nor of one who may not invite any more."""
        by = self._accounts.caller_named(invitation.by)
        is_old = self._clock() >= invitation.at + VALID_S
        return (
            not is_old
            and by is not None
            and allows(by, Verb.CHANGE_MEMBERS, self._accounts.target_group(invitation.group))
        )

    def _forget_old(self) -> None:
        for each in list(self._open.values()):
            if self._clock() >= each.at + VALID_S:
                self._drop(each)

    def _drop(self, invitation: GroupInvitation) -> None:
        self._store.drop(invitation)
        del self._open[invitation.group, invitation.user]


def _no_invitation(group: str) -> NotFoundError:
    return NotFoundError(f"no invitation to group {group!r}", "`pond whoami` shows your invitations")
