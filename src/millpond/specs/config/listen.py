"""The sections ``listen`` and ``ssh`` of the configuration: encryption, what stands in front, and the name outside."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.mounts import HostPath
from millpond.specs.validation import SERVER_URL, Strict

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
LONGEST_DOMAIN: Final = 189
"""Characters: a label of 63 and a dot before it make the longest host name (RFC 1035, section 2.3.4)."""


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an address, can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _network(value: Any) -> Any:
    if isinstance(value, str):
        try:
            ipaddress.ip_network(value)
        except ValueError as error:
            raise BadValueError(
                f"{as_written(value)} is neither an address nor a network", "write 127.0.0.1 or 10.0.0.0/8"
            ) from error
    return value


class ListenFile(Strict):
    """How requests come in.

    Attributes:
        certificate: PEM file with the server's certificate and those above it; with it, the server speaks TLS alone.
        key: PEM file with its private key, readable by the server's account alone.
        trusted_proxies: addresses and networks whose word counts on where a request comes from and whether it was
            encrypted.
        public_url: how people reach the server; its name is then one of the server's own.
        jobs_domain: what jobs serve is shown at names below it, an origin for each; left out: under paths of the
            server's own.
    """

    certificate: HostPath | None = None
    key: HostPath | None = None
    trusted_proxies: list[Annotated[str, BeforeValidator(_network)]] = Field(default=[])
    public_url: (
        Annotated[str, Field(pattern=SERVER_URL, max_length=300), AfterValidator(lambda url: url.rstrip("/"))] | None
    ) = None
    jobs_domain: (
        Annotated[str, Field(pattern=rf"^({_LABEL}\.)*[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?$", max_length=LONGEST_DOMAIN)]
        | None
    ) = None

    @model_validator(mode="after")
    def _whole(self) -> ListenFile:
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise BadValueError(f"{missing} is missing", "certificate and key go together")
        if self.jobs_domain and self.trusted_proxies and not self.public_url:
            hint = "it says by which scheme and port browsers come to the proxy in front, and so to jobs"
            raise BadValueError("jobs_domain behind a proxy needs public_url", hint)
        return self

    @property
    def is_encrypted(self) -> bool:
        """Whether requests are encrypted when they reach this server, or a proxy in front of it."""
        return self.certificate is not None or bool(self.trusted_proxies)


class SshFile(Strict):
    """The gateway; where the section is left out, there is none.

    Attributes:
        port: that it listens on; 0 takes a free one.
        host: the address that it listens on.
    """

    port: Annotated[int, Field(ge=0, le=65_535)]
    host: Annotated[str, Field(min_length=1, max_length=253)] = "127.0.0.1"
