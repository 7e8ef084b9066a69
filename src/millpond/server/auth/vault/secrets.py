"""Secrets of users, groups and the server itself: kept encrypted, handed to tasks and signatures, never shown.

The key lies in a file of the state directory, not in the database: neither alone discloses anything. Each secret is
sealed together with its owner and its name, so that none can be passed off as another.
"""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from millpond.model.errors import ConflictError, NotFoundError, UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.vault.ciphers import NONCE_BYTES, Cipher
from millpond.server.auth.vault.keys import own_key
from millpond.server.store.settings import SecretRow, SecretStore

KEY_FILE: Final = "secrets.key"
USER, GROUP, SERVER = "user", "group", "server"
"""Whose a secret can be."""
WEBHOOK_ADDRESS: Final = "webhook"
"""The kind of what a webhook's address is kept as, under the webhook's name; it is set and removed with the webhook."""
MOST_SECRETS: Final = 200
"""Of one owner: they lie in the database, where no limit of disk counts them."""


class Vault:
    """The secrets of one server.

    Args:
        state_dir: where the key lies.
        cipher: gives the one for what is kept from now on.
    """

    def __init__(self, store: SecretStore, state_dir: Path, cipher: Callable[[], Cipher], clock: WallClock) -> None:
        self._store = store
        self._key_file = state_dir / KEY_FILE
        self._cipher = cipher
        self._clock = clock
        self._lock = threading.Lock()

    def put(self, kind: str, owner: str, name: str, value: str, by: str) -> SecretRow:
        """Keep a secret; one of the same owner and name is replaced.

        Args:
            by: who does it.

        Raises:
            ConflictError: the owner has too many.
            UnavailableError: nothing can be encrypted here.
        """
        cipher = self._cipher()
        nonce = secrets.token_bytes(NONCE_BYTES)
        key = cipher.key_from(own_key(self._key_file), b"secrets")
        sealed = nonce + cipher.seal(key, nonce, value.encode(), _about(kind, owner, name))
        row = SecretRow(kind, owner, name, cipher.value, base64.b64encode(sealed).decode(), by, self._clock())
        with self._lock:
            if self._store.others_of(kind, owner, name) >= MOST_SECRETS:
                raise ConflictError(
                    f"{_whose(kind, owner)} has {MOST_SECRETS} secrets", "remove some with `pond secret rm`"
                )
            self._store.save(row)
        return row

    def all(self) -> list[SecretRow]:
        """Every secret that is set and removed as such, as it is kept, by owner and name."""
        return [row for row in self._store.all() if row.kind != WEBHOOK_ADDRESS]

    def drop(self, kind: str, owner: str, name: str) -> None:
        """Forget a secret.

        Raises:
            NotFoundError: there is none.
        """
        if not self._store.drop(kind, owner, name):
            raise NotFoundError(f"no secret {name!r} of {_whose(kind, owner)}", "list them with `pond secret ls`")

    def value(self, kind: str, owner: str, name: str) -> str:
        """A secret in the clear.

        Raises:
            NotFoundError: there is none.
            UnavailableError: it cannot be opened: the key is another, or it was changed.
        """
        row = self._store.find(kind, owner, name)
        if row is None:
            command = f"pond secret set {name}{' --server' if kind == SERVER else ''}"
            raise NotFoundError(f"no secret {name!r} of {_whose(kind, owner)}", f"set it with `{command}`")
        cipher = Cipher(row.cipher)
        sealed = base64.b64decode(row.sealed)
        key = cipher.key_from(own_key(self._key_file), b"secrets")
        value = cipher.open(key, sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _about(kind, owner, name))
        if value is None:
            what = f"the secret {name!r} of {_whose(kind, owner)}"
            raise UnavailableError(
                f"{what} cannot be opened: it was changed, or {self._key_file} is not its key",
                "put the right key there, or set the secret again",
            )
        return value.decode()

    def check(self, user: str, group: str, names: Iterable[str]) -> None:
        """Whether a job of a user and group can be given these.

        Raises:
            NotFoundError: one is not there.
        """
        for name in names:
            self._owner(user, group, name)

    def environment(self, user: str, group: str, names: Iterable[str]) -> dict[str, str]:
        """Variables for a job's tasks: the user's own secrets before those of the group.

        Raises:
            NotFoundError, UnavailableError: one is gone, or cannot be opened.
        """
        return {name: self.value(*self._owner(user, group, name), name) for name in names}

    def _owner(self, user: str, group: str, name: str) -> tuple[str, str]:
        for kind, owner in ((USER, user), (GROUP, group)):
            if owner and self._store.find(kind, owner, name) is not None:
                return kind, owner
        also = f" or of group {group}" if group else ""
        raise NotFoundError(f"no secret {name!r} of user {user}{also}", f"set it with `pond secret set {name}`")


def _about(kind: str, owner: str, name: str) -> bytes:
    return "\0".join((kind, owner, name)).encode()


def _whose(kind: str, owner: str) -> str:
    return {SERVER: "the server", WEBHOOK_ADDRESS: "the webhooks"}.get(kind) or f"{kind} {owner}"
