"""The ``oidc`` section of the server's configuration: a provider at which people log in, and what it says of them."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from millpond.specs.api.accounts.accounts import AccountName, GroupRole
from millpond.specs.config.listen import is_loopback
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.validation import Strict

CALLBACK_PATH: Final = "/oidc/callback"
"""Where the provider sends people back to, below ``listen.public_url``; it has to know this address."""

_Value = Annotated[str, Field(min_length=1, max_length=300)]


def is_safe_url(url: str) -> bool:
    """Whether secrets may go to an address: over HTTPS, or on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) if parts.scheme == "https" else parts.scheme == "http" and is_loopback(host)


def _issuer(value: Any) -> Any:
    if isinstance(value, str) and (not is_safe_url(value) or {"?", "#", "@", " "} & set(value)):
        raise BadValueError(
            f"{as_written(value)} is no issuer", "write its address, for example https://login.example.org"
        )
    return value


class OidcGroupFile(Strict):
    """What a value of the groups' claim stands for: a group here, and a role in it.

    Attributes:
        group: of this server.
        role: in it.
    """

    group: AccountName
    role: GroupRole = "member"


class OidcFile(Strict):
    """An OpenID Connect provider, and what counts of what it says.

    Attributes:
        client_id: what the provider knows this server by.
        issuer: its address, exactly as it calls itself.
        client_secret_file: holds the secret it knows this server by; left out for a public client.
        scopes: what is asked for besides ``openid``.
        user_claim: what a new account is called by.
        groups_claim: lists the groups of a user there.
        groups: by value of that claim.
        create_users: a user it vouches for gets an account; otherwise an admin binds accounts.
        admins: who has one of these values of the groups' claim is an admin, as long as they have it.
        allowed: only who has one of these values gets in; empty: every user the provider vouches for.
    """

    issuer: Annotated[str, BeforeValidator(_issuer), Field(max_length=300)]
    client_id: _Value
    client_secret_file: Annotated[str, Field(min_length=1)] | None = None
    scopes: list[Annotated[str, Field(pattern=r"^[!#-\[\]-~]{1,100}$")]] = Field(default=["profile"])
    user_claim: _Value = "preferred_username"
    groups_claim: _Value = "groups"
    groups: dict[_Value, OidcGroupFile] = Field(default={})
    create_users: bool = True
    admins: list[_Value] = Field(default=[])
    allowed: list[_Value] = Field(default=[])


class OidcRules(OidcFile):
    """A checked provider.

    Attributes:
        client_secret: that it knows this server by; empty for a public client.
        public_url: how people reach this server, without a slash at the end.
    """

    client_secret: str = Field(repr=False)
    public_url: str

    @property
    def scope(self) -> str:
        """What is asked for."""
        return " ".join(dict.fromkeys(("openid", *self.scopes)))

    @property
    def callback(self) -> str:
        """The address that the provider sends people back to."""
        return f"{self.public_url}{CALLBACK_PATH}"

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach this server by HTTPS."""
        return self.public_url.startswith("https:")

    @property
    def asks_for_groups(self) -> bool:
        """Whether anything depends on the groups' claim."""
        return bool(self.groups or self.admins or self.allowed)
