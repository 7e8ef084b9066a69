"""Secrets of a server as Python methods: ``Client().secrets.all()``. Values can be set and never be read."""

from __future__ import annotations

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.specs.api.accounts.accounts import SecretInfo, SecretList

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
