"""The bodies of the REST API by which programs log in at an OpenID Connect provider, and accounts are bound to one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millpond.specs.api.accounts.accounts import Line, Secret
from millpond.specs.api.models import Body, RequestBody


class SignOnRequest(RequestBody):
    """A login that a program begins.

    Attributes:
        challenge: SHA-256, in hexadecimal digits, of a secret that the program keeps.
        port: where it listens at 127.0.0.1, if the browser runs on the same machine.
        label: what its token is called in lists, and what the person is asked about.
    """

    challenge: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    port: Annotated[int, Field(ge=1024, le=65_535)] | None = None
    label: Line = ""


class SignOnInfo(Body):
    """A login that was begun.

    Attributes:
        link: what the person opens in a browser.
        code: what they are asked for there.
        ask_every_s: so often the program asks how it goes.
    """

    id: str
    link: str
    code: str
    expires_at: float
    ask_every_s: float


class SignOnProof(RequestBody):
    """What a program shows to get its token.

    Attributes:
        secret: whose hash was the challenge.
        code: what came to its port, once it has.
    """

    secret: Secret
    code: Secret = ""


class SignOnProgress(Body):
    """How it goes: the token is there once the person has allowed it."""

    state: Literal["waiting", "granted"]
    user: str = ""
    token: str = ""
    expires_at: float | None = None


class Binding(RequestBody):
    """Who an account's owner is at the provider that the configuration names: their ``sub`` there."""

    subject: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f\u0085\u2028\u2029]+$")]


class IdentityInfo(Body):
    """Who an account's owner is at a provider."""

    user: str
    issuer: str
    subject: str
