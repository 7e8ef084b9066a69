"""SSH into jobs: registered keys, and where the gateway is. ``Client().ssh.keys()``."""

from __future__ import annotations

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.specs.api.accounts.ssh import SshInfo, SshKeyInfo, SshKeyList


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
