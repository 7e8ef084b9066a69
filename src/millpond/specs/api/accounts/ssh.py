"""What the API carries about SSH: public keys by which people come in, and where the gateway is."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import Field

from millpond.model.errors import InvalidInputError
from millpond.specs.api.accounts.accounts import AccountName
from millpond.specs.api.models import Body, RequestBody

HOST_KEY_ALIAS: Final = "millpond"
"""What a host key is filed under by clients, with the server's own name behind it."""
LONGEST_KEY: Final = 10_000
_SHORTEST_RSA_BITS: Final = 2_048
_KINDS: Final = frozenset(
    (
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "ssh-rsa",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    )
)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of SSH.

    Attributes:
        blob: its base64, which is the same wherever the key is written.
    """

    kind: str
    blob: str
    comment: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """A key as it stands in a ``.pub`` file (RFC 4253, section 6.6).

        Raises:
            InvalidInputError: it is none, is too weak, or is a private one.
        """
        if "PRIVATE KEY" in text:
            raise InvalidInputError(
                "this is a private key, which must stay secret", "send the file that ends in .pub; replace it"
            )
        kind, _, rest = text.strip().partition(" ")
        blob, _, comment = rest.strip().partition(" ")
        if kind not in _KINDS:
            raise InvalidInputError("this is no public key of SSH", f"send one of these: {', '.join(sorted(_KINDS))}")
        try:
            fields = _fields(base64.b64decode(blob, validate=True))
        except (binascii.Error, ValueError) as error:
            raise InvalidInputError("the public key is damaged", "send the whole line of the .pub file") from error
        if not fields or fields[0] != kind.encode():
            raise InvalidInputError("the public key is damaged", "send the whole line of the .pub file")
        if kind == "ssh-rsa" and (len(fields) != 3 or int.from_bytes(fields[2]).bit_length() < _SHORTEST_RSA_BITS):
            raise InvalidInputError(
                f"an RSA key of fewer than {_SHORTEST_RSA_BITS} bits", "make another one: ssh-keygen -t ed25519"
            )
        plain = "".join(letter for letter in comment.strip() if letter.isprintable())[:100]
        return cls(kind, blob, plain)

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -l`` shows it."""
        return f"SHA256:{base64.b64encode(self._digest()).decode().rstrip('=')}"

    @property
    def id(self) -> str:
        """A short name that is safe in paths; 80 bits of the fingerprint."""
        return base64.b32encode(self._digest()[:10]).decode().lower()

    def _digest(self) -> bytes:
        return hashlib.sha256(base64.b64decode(self.blob)).digest()


class NewSshKey(RequestBody):
    """A key to be registered.

    Attributes:
        key: a line as in a ``.pub`` file.
        user: for whom; left out: for oneself.
        name: what it is called in lists; left out: its comment.
    """

    key: Annotated[str, Field(max_length=LONGEST_KEY)]
    user: AccountName | None = None
    name: Annotated[str, Field(max_length=100)] = ""


class SshKeyInfo(Body):
    """A registered key."""

    id: str
    user: str
    name: str
    kind: str
    fingerprint: str
    created_at: float
    used_at: float | None = None


class SshKeyList(Body):
    """Registered keys, the newest first."""

    keys: list[SshKeyInfo]


class SshInfo(Body):
    """The gateway of a server.

    Attributes:
        host: the address it listens on; empty where there is no gateway.
        host_key: its public key, as a line.
        name: under which clients file the host key.
    """

    host: str = ""
    port: int = 0
    host_key: str = ""
    name: str = ""


def _fields(blob: bytes) -> list[bytes]:
    """The strings that a key's blob consists of.

    Raises:
        ValueError: it ends within one.
    """
    found = []
    while blob:
        length = int.from_bytes(blob[:4])
        if len(blob) < 4 + length:
            raise ValueError("a string ends too early")
        found.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return found
