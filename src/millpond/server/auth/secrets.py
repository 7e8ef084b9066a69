"""Secrets: tokens that stand for an account, what browsers send beside their cookie, and passwords.

A token is ``pond_ID_SECRET``. The id finds the record; of the secret, which has 256 bits of chance, only the SHA-256
is kept: there is nothing to guess, so a slow hash would protect nothing. Passwords are guessed, so they get argon2id
with the parameters that RFC 9106 recommends where memory is short (section 4, second choice: 64 MiB, 3 passes).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import ARGON2_VERSION

from millpond.model.errors import InvalidInputError

SHORTEST_PASSWORD: Final = 10
LONGEST_PASSWORD: Final = 256
_TOKEN: Final = re.compile(r"pond_([a-z2-7]{10})_([A-Za-z0-9_-]{43})")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"


def new_token() -> tuple[str, str]:
    """A fresh token and its id."""
    token_id = "".join(secrets.choice(_LETTERS) for _ in range(10))
    return f"pond_{token_id}_{secrets.token_urlsafe(32)}", token_id


def id_of(token: str) -> str | None:
    """The id in a token; None when it is no token of this platform."""
    found = _TOKEN.fullmatch(token)
    return found[1] if found else None


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_same(digest: str, other: str) -> bool:
    """Whether two digests are equal, in a time that does not depend on how far they agree."""
    return hmac.compare_digest(digest, other)


def csrf_of(token: str) -> str:
    """What this server's pages send beside the cookie: it follows from the session; no other site can read either."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


class Passwords:
    """Makes and checks password hashes.

    Args:
        hasher: how costly a hash is; the default takes about 50 ms and 64 MiB.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._nobody = _hash_of_nothing(self._hasher)

    def make(self, password: str, user: str) -> str:
        """The hash of a new password.

        Raises:
            InvalidInputError: it is too short, too long, or the user's name.
        """
        if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
            raise InvalidInputError(
                f"a password of {len(password)} characters", f"use {SHORTEST_PASSWORD} to {LONGEST_PASSWORD}"
            )
        if password.lower().strip() == user.lower():
            raise InvalidInputError("the password is the user's name", "choose another one")
        return self._hasher.hash(password)

    def check(self, password: str, kept: str) -> bool:
        """Whether this is the password. An account without one takes as long to refuse as one with it."""
        try:
            self._hasher.verify(kept or self._nobody, password)
        except (VerificationError, InvalidHashError):
            return False
        return bool(kept)


def _hash_of_nothing(hasher: PasswordHasher) -> str:
    """What looks like a hash of this hasher's and takes as long to check; making a real one would delay each start."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (hasher.salt_len, hasher.hash_len)
    )
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2{hasher.type.name.lower()}$v={ARGON2_VERSION}${costs}${salt}${digest}"
