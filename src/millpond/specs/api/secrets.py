"""The bodies of the REST API that are about secrets. A value goes in and never comes out again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.specs.api.accounts import AccountRequest
from millpond.specs.api.base import Body

LONGEST_SECRET = 65_536


class SecretPut(AccountRequest):
    """A secret to be kept; what it is called and whose it is stands in the path."""

    value: Annotated[str, Field(min_length=1, max_length=LONGEST_SECRET, pattern=r"^[^\x00]*$", repr=False)]


class SecretInfo(Body):
    """What is known of a secret.

    Attributes:
        kind: whose it is: ``user``, ``group`` or ``server``.
        owner: the name of the user or group; empty for the server.
        by, at: who set it last, and when.
    """

    kind: str
    owner: str
    name: str
    cipher: str
    by: str
    at: float


class SecretList(Body):
    """The secrets that one may use or change, by owner and name."""

    secrets: list[SecretInfo]
