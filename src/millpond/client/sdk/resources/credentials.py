"""Secrets and SSH keys of a server as Python methods: ``Client().secrets.all()``, ``Client().ssh.keys()``.

Values of secrets can be set and never be read.
"""

from __future__ import annotations

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.specs.api.accounts.accounts import SecretInfo, SecretList
from millpond.specs.api.accounts.ssh import SshInfo, SshKeyInfo, SshKeyList

SERVER = "server"


class SecretsClient(Requests):
    """The secrets of the server that a client talks to."""

    def all(self) -> list[SecretInfo]:
        """Those that one's jobs can have, or that one may change."""
        return self._ask(SecretList, "GET", "/secrets").secrets

    def put(self, kind: str, owner: str, name: str, value: str) -> SecretInfo:
        """Keep a secret.

        Args:
            kind: ``user``, ``group`` or ``server``; then the owner is empty.
        """
        return self._ask(SecretInfo, "PUT", _path(kind, owner, name), json={"value": value})

    def drop(self, kind: str, owner: str, name: str) -> None:
        """Forget a secret."""
        self._connection.send("DELETE", _path(kind, owner, name))


def _path(kind: str, owner: str, name: str) -> str:
    return "/secrets/" + "/".join(segment(part) for part in (kind, owner or "-", name))


class SshClient(Requests):
    """The SSH side of the server that a client talks to."""

    def gateway(self) -> SshInfo:
        """Where the gateway is; its host is empty where there is none."""
        return self._ask(SshInfo, "GET", "/ssh")

    def keys(self) -> list[SshKeyInfo]:
        """The keys that one may see, the newest first."""
        return self._ask(SshKeyList, "GET", "/ssh-keys").keys

    def add_key(self, key: str, name: str = "", user: str | None = None) -> SshKeyInfo:
        """Register a public key, a line as in a ``.pub`` file.

        Raises:
            InvalidInputError: it is none, or too weak.
            ConflictError: it is registered for another user.
        """
        return self._ask(SshKeyInfo, "POST", "/ssh-keys", json={"key": key, "name": name, "user": user})

    def remove_key(self, key_id: str) -> SshKeyInfo:
        """A key opens nothing any more."""
        return self._ask(SshKeyInfo, "DELETE", f"/ssh-keys/{segment(key_id)}")
