"""The accounts that identities at an OpenID Connect provider are bound to, in memory and in the store.

An account is bound to issuer and subject, never to a name: names there may be chosen freely or change hands.
Source: OpenID Connect Core 1.0, section 2 (``sub``).
"""

from __future__ import annotations

import threading
from dataclasses import replace

from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.records import OidcIdentity, User


class Identities:
    """The identities that accounts are bound to, one for each account at most."""

    def __init__(self, store: AccountStore, accounts: Accounts, clock: WallClock) -> None:
        self._store = store
        self._accounts = accounts
        self._clock = clock
        self._lock = threading.RLock()
        self._known = {(found.issuer, found.subject): found for found in store.identities()}

    def find(self, issuer: str, subject: str) -> OidcIdentity | None:
        """The identity of a subject at a provider; None when no account is bound to it."""
        return self._known.get((issuer, subject))

    def of(self, user: str) -> OidcIdentity | None:
        """The identity that an account is bound to; None when it is bound to none."""
        with self._lock:
            return next((found for found in self._known.values() if found.user == user), None)

    def bind(self, user: str, issuer: str, subject: str) -> OidcIdentity:
        """From now on, who logs in as this subject has this account; what it was bound to before no longer opens it.

        Raises:
            NotFoundError: there is no such user.
            InvalidInputError: the account is a service's.
            ConflictError: the subject has another account.
        """
        with self._lock:
            if self._accounts.user(user).service:
                raise InvalidInputError(f"{user!r} is a service, which does not log in", "make it a token")
            taken = self.find(issuer, subject)
            if taken is not None and taken.user != user:
                raise ConflictError(
                    f"{subject!r} has the account {taken.user!r}", f"take it from there: pond user unbind {taken.user}"
                )
            if taken is not None:
                return taken
            if self.of(user) is not None:
                self.unbind(user)
            return self.keep(OidcIdentity(issuer, subject, user, self._clock()))

    def add_user(self, user: User, issuer: str, subject: str) -> OidcIdentity:
        """Make an account for a person who has none.

        Raises:
            ConflictError: the name is taken, or they have one.
        """
        with self._lock:
            if self.find(issuer, subject) is not None:
                raise ConflictError(f"{subject!r} has an account already", "log in once more")
            made = OidcIdentity(issuer, subject, user.name, self._clock())
            self._accounts.add_user(user, identity=made)
            self._known[issuer, subject] = made
            return made

    def unbind(self, user: str) -> OidcIdentity:
        """Unbind an account from its subject at the provider; what followed from the provider's word ends.

        Tokens that the account has stay; what browsers were given for jobs is void.

        Raises:
            NotFoundError: there is no such user, or it is not bound.
        """
        with self._lock:
            found = self.of(self._accounts.user(user).name)
            if found is None:
                raise NotFoundError(f"{user!r} is bound to nobody", "bind it with `pond user bind`")
            if found.makes_admin:
                self._accounts.change_user(user, lambda known: replace(known, admin=False))
            for member in self._accounts.memberships(user):
                if member.issuer:
                    self._accounts.drop_member(member.group, user)
            self._accounts.void_passes(user)
            self._store.drop(found)
            del self._known[found.issuer, found.subject]
            return found

    def keep(self, identity: OidcIdentity) -> OidcIdentity:
        """Keep an identity as it is now."""
        with self._lock:
            self._store.save(identity)
            self._known[identity.issuer, identity.subject] = identity
        return identity
