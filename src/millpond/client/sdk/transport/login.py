"""Getting a token: the requests that are made without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from millpond.client.sdk.transport import failures
from millpond.client.sdk.transport.discovery import Address, is_on_this_machine
from millpond.client.sdk.transport.trust import trust
from millpond.model.errors import UnavailableError
from millpond.specs.api.accounts.accounts import LoginInfo, LoginRequest
from millpond.specs.api.base import API_PREFIX

B = TypeVar("B", bound=BaseModel)

_TIMEOUT_S = 30.0


def log_in(
    url: str, request: LoginRequest, transport: httpx2.BaseTransport | None = None, authority: str = ""
) -> LoginInfo:
    """Log in at a server.

    Args:
        url: its base address, without a slash at the end.
        transport: how the request travels, for tests.
        authority: file with the certificates that may vouch for it; empty: those that the system trusts.

    Raises:
        NotLoggedInError: password or invitation is wrong.
        TooManyTriesError: too many logins failed before.
        UnavailableError: nothing there answers as a Millpond server.
    """
    return ask_openly(LoginInfo, url, f"{API_PREFIX}/login", request, transport, authority)


def require_answer(url: str, authority: str = "") -> None:
    """Check that something answers at ``url``, before a person types a password in vain.

    Raises:
        UnavailableError: nothing does.
    """
    with _connection(url, None, authority) as http:
        http.get("/healthz")


def ask_openly(
    kind: type[B],
    url: str,
    path: str,
    request: BaseModel,
    transport: httpx2.BaseTransport | None = None,
    authority: str = "",
) -> B:
    """Send a body to a route that needs no token; the answer.

    Args:
        kind: of the answer.
        url, transport, authority: as of ``log_in``.

    Raises:
        UnavailableError: nothing there answers as a Millpond server.
        MillpondError: it refuses.
    """
    with _connection(url, transport, authority) as http:
        response = http.post(path, json=request.model_dump(exclude_defaults=True))
    if not response.is_success:
        raise failures.from_response(response, url)
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise UnavailableError(f"what answers at {url} is not a Millpond server", "check the address") from error


@contextlib.contextmanager
def _connection(url: str, transport: httpx2.BaseTransport | None, authority: str) -> Iterator[httpx2.Client]:
    """For requests without a token; what keeps them from an answer is an error of this house."""
    try:
        verify = trust(Address(url, "", authority=authority))
        with httpx2.Client(
            base_url=url, timeout=_TIMEOUT_S, transport=transport, trust_env=not is_on_this_machine(url), verify=verify
        ) as http:
            yield http
    except httpx2.TransportError as error:
        raise failures.from_transport(error, url) from error
    except httpx2.InvalidURL as error:
        raise UnavailableError(f"{url!r} is no address ({error})", "write for example http://pool:7433") from error
