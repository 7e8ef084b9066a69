"""The section ``notifications`` of the configuration: how users are told of what happens to their jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from email.utils import parseaddr
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from millpond.specs.config.listen import is_loopback
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import SecretName
from millpond.specs.validation import Strict

_LOCAL: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS: Final = re.compile(rf"(?=.{{3,254}}\Z)(?P<local>{_LOCAL})@(?P<domain>{_LABEL}(?:\.{_LABEL})*)")
_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}


def is_mail_address(text: str) -> bool:
    """Whether a text is one mail address, in ASCII and without quotes or comments (RFC 5321, section 4.1.2)."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and len(found["local"]) <= 64


def _sender(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name, address = parseaddr(value)
    if not value.isprintable() or value not in (address, f"{name} <{address}>") or not is_mail_address(address):
        raise BadValueError(f"{as_written(value)} is no sender", "write an address, or Name <address>")
    return value


def _domain(value: Any) -> Any:
    if isinstance(value, str) and not is_mail_address(f"a@{value}"):
        raise BadValueError(f"{as_written(value)} is no domain of mail addresses", "write it as example.org")
    return value.lower() if isinstance(value, str) else value


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, by which two are compared; empty where it is none, or names a user."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        return ""
    shown = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{shown}" + (f":{port}" if port not in (None, usual) else "")


def _origin(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    origin = origin_of(value)
    if not origin or value.rstrip("/").lower() != origin:
        raise BadValueError(
            f"{as_written(value)} is no origin", "write scheme and host alone, as https://hooks.slack.com"
        )
    return origin


class MailFile(Strict):
    """The mail server that takes what users are told of.

    Attributes:
        host: of the server.
        port: of it; left out: 587 with STARTTLS, 465 with TLS, 25 without.
        encryption: `starttls`, `tls` from the first byte, or `none`.
        user: to log in as; left out: without a login.
        password: name of the server's secret with the password (`pond secret set --server`).
        password_file: holds it, instead; readable by nobody else.
        sender: from whom mail is, as `Millpond <pond@example.org>`.
        domains: mail goes to addresses of these alone; left out: to any.
    """

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:_-]+$")]
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    encryption: Literal["starttls", "tls", "none"] = "starttls"
    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    password: SecretName | None = None
    password_file: Annotated[str, Field(min_length=1)] | None = None
    sender: Annotated[str, BeforeValidator(_sender), Field(max_length=320)]
    domains: list[Annotated[str, BeforeValidator(_domain)]] = Field(default=[])

    @model_validator(mode="after")
    def _login_fits(self) -> MailFile:
        has_password = self.password is not None or self.password_file is not None
        if self.password is not None and self.password_file is not None:
            raise BadValueError("both password and password_file", "leave one of them out")
        if has_password != (self.user is not None):
            raise BadValueError("a login has a user and a password", "give both, or neither")
        if has_password and self.encryption == "none" and not is_loopback(self.host):
            raise BadValueError("the password would cross the network unencrypted", "set encryption: starttls or tls")
        return self

    def rules(self, password: str) -> MailRules:
        """The checked form.

        Args:
            password: from the file; empty where none is named.
        """
        return MailRules(
            self.host,
            self.port or _PORTS[self.encryption],
            self.encryption,
            self.sender,
            self.user or "",
            self.password or "",
            password,
            frozenset(self.domains),
        )


class NotificationsFile(Strict):
    """How users are told of what happens to their jobs; which events, they choose themselves.

    Attributes:
        mail: the mail server; left out: there is no mail.
        chat: to which origins webhooks of users may lead; left out: users have none.
    """

    mail: MailFile | None = None
    chat: list[Annotated[str, BeforeValidator(_origin)]] = Field(default=[])


@dataclass(frozen=True, slots=True)
class MailRules:
    """A checked mail server.

    Attributes:
        password_name: of the server's secret that has the password; empty: none has.
        password: the same from a file; empty: there is none.
        domains: empty: mail goes to addresses of any.
    """

    host: str
    port: int
    encryption: str
    sender: str
    user: str = ""
    password_name: str = ""
    password: str = field(default="", repr=False)
    domains: frozenset[str] = frozenset()

    @property
    def sender_address(self) -> str:
        """The sender without a name."""
        return parseaddr(self.sender)[1]

    def takes(self, address: str) -> bool:
        """Whether mail may go to an address."""
        domain = address.rpartition("@")[2].lower()
        return not self.domains or domain in self.domains


@dataclass(frozen=True, slots=True)
class NotificationRules:
    """The checked section."""

    mail: MailRules | None = None
    chat: tuple[str, ...] = ()
