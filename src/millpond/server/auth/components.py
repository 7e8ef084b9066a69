"""The components behind the guard of the routes, opened and closed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond.node.host.clocks import WallClock
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.audit import AuditLog
from millpond.server.auth.group_invitations import GroupInvitations
from millpond.server.auth.logins import Logins
from millpond.server.auth.oidc.identities import Identities
from millpond.server.auth.oidc.sign_on import SignOn
from millpond.server.auth.portal_links import PortalLinks
from millpond.server.auth.secrets import Passwords
from millpond.server.auth.ssh_keys import SshKeys, SshKeyStore
from millpond.server.store.store import Store
from millpond.specs.config.oidc import OidcRules

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class Security:
    """Who there is, how they come in, and what is written down about it."""

    accounts: Accounts
    keys: SshKeys
    logins: Logins
    audit: AuditLog
    invitations: GroupInvitations
    sign_on: SignOn
    portal_links: PortalLinks
    clock: WallClock

    def close(self) -> None:
        """Write what is not written yet."""
        self.audit.close()


@dataclass(frozen=True, slots=True)
class Oidc:
    """A provider of OpenID Connect.

    Attributes:
        rules: what the configuration says of it at this moment; None: there is none.
        transport: how requests to it travel; None: over the network.
    """

    rules: Callable[[], OidcRules | None]
    transport: httpx2.BaseTransport | None = None


NO_OIDC: Final = Oidc(lambda: None)


def open_security(
    store: Store,
    owner: str,
    owner_token: str,
    clock: WallClock,
    passwords: Passwords | None = None,
    oidc: Oidc = NO_OIDC,
) -> Security:
    """The security of a server on this store.

    Args:
        owner: account of the user who can read the state directory.
        owner_token: the token that lies there.
        oidc: at which provider people may log in besides.
    """
    account_store = AccountStore(store.database)
    accounts = Accounts(account_store, owner, owner_token, clock)
    identities = Identities(account_store, accounts, clock)
    sign_on = SignOn(oidc.rules, accounts, identities, clock, oidc.transport)
    logins = Logins(accounts, passwords or Passwords(), clock)
    invitations = GroupInvitations(account_store, accounts, clock)
    keys, audit = SshKeys(SshKeyStore(store.database), clock), AuditLog(store.audit)
    links = PortalLinks(accounts, clock)
    return Security(accounts, keys, logins, audit, invitations, sign_on, links, clock)
