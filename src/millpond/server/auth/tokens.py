"""All tokens, in memory and in the store as accounts are: whose they are, and until when they are valid."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import ConflictError
from millpond.node.host.clocks import WallClock
from millpond.server.auth import secrets
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.records import Token, TokenKind
from millpond.server.auth.roles import AccessTarget, Verb, present

log = logging.getLogger(__name__)

USED_EVERY_S: Final = 300.0
"""A token's last use is written down at most so often."""
OLD_TOKENS_KEPT_S: Final = 90 * 86_400.0
IN_USE_S: Final = 7 * 86_400.0
"""A token that was not used for longer is not missed when it ends."""
MOST_TOKENS: Final = 200
"""Valid tokens one account may have."""
MOST_ENDED: Final = 1_000
"""Of those of one account that open nothing any more, the latest ones are remembered."""
_LOGINS: Final = (TokenKind.SESSION, TokenKind.LOGIN, TokenKind.INVITATION)


class TokenRegistry:
    """The tokens of one server."""

    def __init__(self, store: AccountStore, clock: WallClock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()
        store.forget_tokens(clock() - OLD_TOKENS_KEPT_S)
        self._tokens = {token.id: token for token in store.tokens()}

    def find(self, secret: str, digest: str) -> Token | None:
        """The token whose secret this is, valid or not; None when it is none's.

        Args:
            digest: of the secret.
        """
        token = self._tokens.get(secrets.id_of(secret) or "")
        return None if token is None or not secrets.is_same(digest, token.digest) else token

    def get(self, token_id: str) -> Token:
        """One token's record.

        Raises:
            NotFoundError: there is none of this id.
        """
        return present(self._tokens.get(token_id), "token", token_id)

    def valid_verbs(self, token_id: str) -> frozenset[Verb] | None:
        """What a token is confined to (empty: to nothing); None when it opens nothing any more."""
        token = self._tokens.get(token_id)
        return None if token is None or not token.is_valid(self._clock()) else token.verbs

    def all(self) -> list[Token]:
        """All tokens, the newest first."""
        with self._lock:
            return sorted(self._tokens.values(), key=lambda token: (-token.created_at, token.id))

    def next_end(self) -> float | None:
        """When the first of the made tokens that are in use ends; None where none does."""
        now = self._clock()
        used = (
            token.expires_at
            for token in tuple(self._tokens.values())  # without the lock, which may be waiting for the store
            if token.kind is TokenKind.PERSONAL
            and token.is_valid(now)
            and token.used_at is not None
            and now - token.used_at <= IN_USE_S
        )
        return min((at for at in used if at is not None), default=None)

    def target(self, token_id: str) -> AccessTarget:
        """A token as what a verb is applied to; without an owner when there is none of this id."""
        token = self._tokens.get(token_id)
        return AccessTarget("token", token_id, token.user if token else "")

    def is_use_due(self, token_id: str) -> bool:
        """Whether it is time to write down that a token is in use."""
        token = self._tokens.get(token_id)
        return token is not None and (token.used_at is None or self._clock() - token.used_at >= USED_EVERY_S)

    def note_use(self, token_id: str) -> None:
        """Write down that a token is in use. A store that cannot be written does not keep clients from reading."""
        with self._lock:
            token = self._tokens.get(token_id)
            if token is None:
                return
            self._tokens[token_id] = used = replace(token, used_at=self._clock())
            try:
                self._store.save(used)
            except DBAPIError as error:
                log.warning("the last use of token %s is not stored (%s)", token_id, error.orig)

    def issue(
        self,
        user: str,
        kind: TokenKind,
        lifetime_s: float | None,
        name: str = "",
        verbs: frozenset[Verb] = frozenset(),
    ) -> tuple[Token, str]:
        """Make a token; returns its record and the secret, which is not kept.

        Raises:
            ConflictError: the account has too many already.
        """
        secret, token_id = secrets.new_token()
        with self._lock:
            now = self._clock()
            valid = sum(token.user == user and token.is_valid(now) for token in self._tokens.values())
            if valid >= MOST_TOKENS:
                raise ConflictError(f"{user!r} has {valid} tokens", "revoke some with `pond token revoke`")
            self._forget_ended(user, now)
            expires_at = None if lifetime_s is None else now + lifetime_s
            token = Token(token_id, secrets.digest_of(secret), kind, user, name, verbs, now, expires_at)
            self._save(token)
        return token, secret

    def revoke(self, *tokens: Token) -> None:
        """Tokens open nothing any more."""
        with self._lock:
            now = self._clock()
            for token in tokens:
                if token.is_valid(now):
                    self._save(replace(token, revoked_at=now))

    def end_logins(self, user: str, keep: str = "") -> None:
        """End the logins of an account, and its invitations.

        Args:
            keep: id of a token that stays: the one in use.
        """
        with self._lock:
            of_user = [token for token in self._tokens.values() if token.user == user and token.kind in _LOGINS]
            self.revoke(*(token for token in of_user if token.id != keep))

    def _forget_ended(self, user: str, now: float) -> None:
        """Keep the latest of an account's tokens that open nothing any more: it can make and revoke some for ever."""
        ended = [token for token in self._tokens.values() if token.user == user and not token.is_valid(now)]
        oldest = ended[: max(len(ended) - MOST_ENDED, 0)]
        if oldest:
            self._store.drop(*oldest)
            for token in oldest:
                del self._tokens[token.id]

    def _save(self, token: Token) -> None:
        self._store.save(token)
        self._tokens[token.id] = token
