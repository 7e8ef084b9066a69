"""Records of users, groups and tokens: immutable, as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from millpond.server.auth.roles import UserRole, Verb
from millpond.specs.api.accounts.accounts import AccountLimits


@dataclass(frozen=True, slots=True)
class User:
    """An account.

    Attributes:
        service: a program's: it has tokens and no password.
        password: its hash; empty where none is set.
        pass_epoch: what browsers were given for jobs holds only in the epoch in which they got it.
    """

    name: str
    admin: bool = False
    service: bool = False
    disabled: bool = False
    password: str = ""
    created_at: float = 0.0
    limits: AccountLimits = AccountLimits()
    pass_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Some users who share a queue."""

    name: str
    queue: str
    created_at: float = 0.0
    limits: AccountLimits = AccountLimits()


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A user's place in a group; the role is never that of an admin.

    Attributes:
        issuer: whose word it follows from, and ends with; empty: it was made here.
    """

    group: str
    user: str
    role: UserRole
    since: float = 0.0
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class GroupInvitation:
    """A place in a group that a user has been offered.

    Attributes:
        user: whom it is for; there may be no such user.
        by: who made it.
        at: when, in seconds since 1970.
    """

    group: str
    user: str
    role: UserRole
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class OidcIdentity:
    """Who an account's owner is to an OpenID Connect provider. Names there may change hands; a subject never does.

    Attributes:
        subject: the provider's own name for them, never given to another person.
        makes_admin: that the account is an admin's follows from the provider's word, and ends with it.
    """

    issuer: str
    subject: str
    user: str
    since: float = 0.0
    makes_admin: bool = False


class TokenKind(StrEnum):
    """What a token is for."""

    PERSONAL = "personal"
    """Made by hand, for a person or a service account."""
    LOGIN = "login"
    """What ``pond login`` keeps."""
    SESSION = "session"
    """A browser's cookie."""
    INVITATION = "invitation"
    """Lets its owner choose a password, once."""


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that stands for an account.

    Attributes:
        digest: SHA-256 of the secret.
        verbs: what it is confined to; empty: to nothing.
        expires_at: None: never.
    """

    id: str
    digest: str
    kind: TokenKind
    user: str
    name: str = ""
    verbs: frozenset[Verb] = frozenset()
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it still opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key by which its user comes in through SSH; ``blob`` is its base64."""

    id: str
    user: str
    name: str
    kind: str
    blob: str
    created_at: float = 0.0
    used_at: float | None = None
