"""Registered public keys and the users they belong to, in memory and in the store, as accounts are (``accounts``)."""

from __future__ import annotations

import dataclasses
import threading
from typing import Final

import sqlalchemy as sa

from millpond.model.errors import ConflictError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.records import SshKey
from millpond.server.auth.roles import AccessTarget, present
from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.accounts.ssh import PublicKey

MOST_KEYS: Final = 50
"""One user may have."""


class SshKeyStore(TableStore):
    """The keys' table of one open database."""

    def all(self) -> list[SshKey]:
        """All keys, the oldest first."""
        table = schema.ssh_keys
        return [SshKey(**row._mapping) for row in self._rows(sa.select(table).order_by(table.c.created_at, table.c.id))]

    def save(self, key: SshKey) -> None:
        """Keep a key as it is now."""
        self._save((schema.ssh_keys, dataclasses.asdict(key)))

    def drop(self, key_id: str) -> None:
        """Forget a key."""
        table = schema.ssh_keys
        self._execute(table.delete().where(table.c.id == key_id))


class SshKeys:
    """The keys of all users."""

    def __init__(self, store: SshKeyStore, clock: WallClock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._keys = {key.id: key for key in store.all()}

    def all(self) -> list[SshKey]:
        """All keys, the newest first."""
        with self._lock:
            return sorted(self._keys.values(), key=lambda key: (-key.created_at, key.id))

    def find(self, key: PublicKey) -> SshKey | None:
        """The record of a key; None when it is not registered."""
        found = self._keys.get(key.id)
        return found if found is not None and found.blob == key.blob else None

    def get(self, key_id: str) -> SshKey:
        """One key's record.

        Raises:
            NotFoundError: there is none of this id.
        """
        return present(self._keys.get(key_id), "key", key_id)

    def target(self, key_id: str) -> AccessTarget:
        """A key as what a verb is applied to; without an owner when there is none of this id."""
        found = self._keys.get(key_id)
        return AccessTarget("key", key_id, found.user if found else "")

    def add(self, user: str, key: PublicKey, name: str) -> SshKey:
        """Register a key; the same for the same user again changes nothing.

        Raises:
            ConflictError: it stands for another user, or the user has too many.
        """
        with self._lock:
            known = self._keys.get(key.id)
            if known is not None and known.user == user:
                return known
            if known is not None:
                raise ConflictError("this key stands for another user", "use a key of your own: ssh-keygen -t ed25519")
            if sum(each.user == user for each in self._keys.values()) >= MOST_KEYS:
                raise ConflictError(f"{user!r} has {MOST_KEYS} keys", "remove some with `pond ssh-key rm`")
            made = SshKey(key.id, user, name or key.comment, key.kind, key.blob, self._clock())
            self._store.save(made)
            self._keys[made.id] = made
        return made

    def remove(self, key_id: str) -> SshKey:
        """Forget a key; open sessions by it stay open.

        Raises:
            NotFoundError: there is none of this id.
        """
        with self._lock:
            known = self.get(key_id)
            self._store.drop(key_id)
            del self._keys[key_id]
        return known

    def used(self, key_id: str) -> None:
        """Note a login by a key."""
        with self._lock:
            known = self._keys.get(key_id)
            if known is not None:
                used = dataclasses.replace(known, used_at=self._clock())
                self._store.save(used)
                self._keys[key_id] = used
