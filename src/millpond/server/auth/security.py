"""Everything the door needs, opened and closed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.server.auth.accounts import Accounts
from millpond.server.auth.audit import AuditLog
from millpond.server.auth.logins import Logins
from millpond.server.auth.secrets import Passwords
from millpond.server.auth.ssh_keys import SshKeys
from millpond.server.store.store import Store


@dataclass(frozen=True, slots=True)
class Security:
    """Who there is, how they come in, and what is written down about it."""

    accounts: Accounts
    keys: SshKeys
    logins: Logins
    audit: AuditLog
    clock: Callable[[], float]

    def close(self) -> None:
        """Write what is not written yet."""
        self.audit.close()


def open_security(
    store: Store, owner: str, owner_token: str, clock: Callable[[], float], passwords: Passwords | None = None
) -> Security:
    """The security of a server on this store.

    Args:
        owner: account of whoever can read the state directory.
        owner_token: the token that lies there.
        clock: seconds since 1970.
    """
    accounts = Accounts(store.accounts, owner, owner_token, clock)
    logins = Logins(accounts, passwords or Passwords(), clock)
    return Security(accounts, SshKeys(store.ssh_keys, clock), logins, AuditLog(store.audit), clock)
