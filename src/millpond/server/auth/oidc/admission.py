"""The account for a user whom the provider has authenticated, and what the provider's claims change about it."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.errors import ConflictError, NotAllowedError, NotFoundError
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.oidc.id_tokens import Person
from millpond.server.auth.oidc.identities import Identities
from millpond.server.auth.records import OidcIdentity, User
from millpond.server.auth.roles import UserRole
from millpond.specs.config.oidc import OidcRules

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""As ``specs.api.accounts.accounts.AccountName``."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A person who got in.

    Attributes:
        changes: what is otherwise about their account now, in words; empty when nothing.
    """

    user: User
    changes: str = ""


class OidcAdmission:
    """Decides by the rules of the configuration."""

    def __init__(self, rules: OidcRules, accounts: Accounts, identities: Identities) -> None:
        self._rules = rules
        self._accounts = accounts
        self._identities = identities

    def admit(self, person: Person) -> Admitted:
        """The account of a person, brought up to date.

        Raises:
            NotAllowedError: they are in none of the groups that get in, or their account is disabled, or they have none
                and get none.
            ConflictError: another person's account has their name.
        """
        if self._rules.allowed and person.values.isdisjoint(self._rules.allowed):
            raise NotAllowedError(
                f"{person.name or person.subject!r} is in none of the groups that may log in here",
                "ask the administrator of your groups at the provider, or an admin of this server",
            )
        identity = self._identities.find(person.issuer, person.subject)
        changes = []
        if identity is None:
            identity = self._new(person)
            changes.append("a new account")
        user = self._accounts.user(identity.user)
        if user.disabled:
            raise NotAllowedError(f"the account {user.name!r} is disabled", "ask an admin of this server")
        changes += self._follow_groups(identity, person)
        changes += self._follow_admin(identity, person)
        return Admitted(self._accounts.user(user.name), ", ".join(changes))

    def _new(self, person: Person) -> OidcIdentity:
        how_to_bind = f"ask an admin to bind an account to you: pond user bind NAME {person.subject}"
        if not self._rules.create_users:
            raise NotAllowedError(f"{person.name or 'you'} have no account here", how_to_bind)
        if not _NAME.fullmatch(person.name):
            raise NotAllowedError(
                f"{person.name!r}, which the provider has as {self._rules.user_claim}, cannot be an account's name",
                how_to_bind,
            )
        try:
            return self._identities.add_user(User(person.name), person.issuer, person.subject)
        except ConflictError as error:
            # A person who may choose their name at the provider must not get an account by choosing its owner's.
            raise ConflictError(
                f"an account {person.name!r} exists already, and it is not bound to you",
                f"if it is, ask an admin for: pond user bind {person.name} {person.subject}",
            ) from error

    def _follow_groups(self, identity: OidcIdentity, person: Person) -> list[str]:
        """Memberships by the provider's word: such as it gives now, and no others. Those made here stay as they are."""
        accounts, changes = self._accounts, []
        granted: dict[str, UserRole] = {}
        for value, meant in self._rules.groups.items():
            if value in person.values:
                before = granted.get(meant.group, UserRole.VIEWER)
                granted[meant.group] = min(UserRole(meant.role), before, key=list(UserRole).index)
        present = {member.group: member for member in accounts.memberships(identity.user)}
        for group, member in present.items():
            if member.issuer and group not in granted:
                accounts.drop_member(group, identity.user)
                changes.append(f"no longer in {group}")
        for group, role in granted.items():
            known = present.get(group)
            if known is not None and (not known.issuer or known.role is role):
                continue
            try:
                accounts.put_member(group, identity.user, role, identity.issuer)
            except NotFoundError:
                log.warning("oidc.groups names the group %r, which is not there: make it with pond group add", group)
                changes.append(f"not in {group}, which is not there")
            else:
                changes.append(f"{role.value} of {group}")
        return changes

    def _follow_admin(self, identity: OidcIdentity, person: Person) -> list[str]:
        """Admin by the provider's word, as long as it says so. Who was made one here stays one."""
        granted = not person.values.isdisjoint(self._rules.admins)
        user = self._accounts.user(identity.user)
        if granted == identity.makes_admin or (granted and user.admin):
            return []
        # In this order a server that dies in between leaves no user an admin for good.
        if granted:
            self._identities.keep(replace(identity, makes_admin=True))
        try:
            self._accounts.change_user(user.name, lambda known: replace(known, admin=granted))
        except ConflictError as error:  # the server's owner stays one
            log.warning("%s", error)
            return []
        if not granted:
            self._identities.keep(replace(identity, makes_admin=False))
        return ["an admin" if granted else "no longer an admin"]
