"""From HTTP to the errors of this house: every failure of a request names its cause and its remedy."""

from __future__ import annotations

import http.client
import sys
from typing import TYPE_CHECKING, Protocol

from millpond.client.sdk.transport.discovery import no_answer_remedy
from millpond.client.sdk.transport.trust import distrusted
from millpond.model.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MillpondError,
    NotAllowedError,
    NotFoundError,
    NotLoggedInError,
    TooManyTriesError,
    UnavailableError,
)
from millpond.specs.api.base import ErrorBody, ErrorDetail, ErrorInfo
from millpond.specs.api.codec import from_json

if TYPE_CHECKING:
    import httpx2


class TooSlowError(UnavailableError):
    """The server waited no longer for the rest of a request: this machine slept meanwhile, say."""


_KINDS: dict[int, type[MillpondError]] = {
    400: InvalidInputError,
    401: NotLoggedInError,
    403: NotAllowedError,
    404: NotFoundError,
    408: TooSlowError,
    409: ConflictError,
    412: ConflictError,
    413: InvalidInputError,
    416: ConflictError,
    422: InvalidInputError,
    429: TooManyTriesError,
    503: UnavailableError,
}

_CUT_OFF = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, http.client.HTTPException)

_BY_CODE: dict[str, type[MillpondError]] = {
    "invalid": InvalidInputError,
    "not-found": NotFoundError,
    "conflict": ConflictError,
    "unavailable": UnavailableError,
    "forbidden": NotAllowedError,
}


class HttpAnswer(Protocol):
    """What a server answered; its body has been read."""

    @property
    def status_code(self) -> int: ...

    @property
    def content(self) -> bytes: ...

    @property
    def is_success(self) -> bool: ...


def from_transport(error: httpx2.TransportError, url: str) -> UnavailableError:
    """The error for a request that got no answer."""
    import httpx2

    by_encryption = distrusted(error, url)
    if by_encryption is not None:
        return by_encryption
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return UnavailableError(f"no Millpond server answers at {url}", no_answer_remedy(url))
    if isinstance(error, httpx2.TimeoutException):
        return _too_late(url)
    return _broken(error, url)


def from_local(error: OSError | http.client.HTTPException, url: str) -> UnavailableError:
    """The error for a request to this machine that got no answer."""
    if isinstance(error, TimeoutError):
        return _too_late(url)
    if isinstance(error, _CUT_OFF):
        return _broken(error, url)
    return UnavailableError(f"no Millpond server answers at {url}", no_answer_remedy(url))


def lost_answer(error: UnavailableError) -> bool:
    """Whether the request may have arrived, as the connection ended when its answer was due."""
    if isinstance(error.__cause__, _CUT_OFF):
        return True
    httpx2 = sys.modules.get("httpx2")  # which is not imported for requests that do not go by it
    return httpx2 is not None and isinstance(error.__cause__, httpx2.ReadError | httpx2.RemoteProtocolError)


def from_response(response: HttpAnswer, url: str) -> MillpondError:
    """The error for an answer that is not a success."""
    return from_answer(response.status_code, response.content, url)


def from_answer(status: int, content: bytes | bytearray, url: str) -> MillpondError:
    """The error for what a server answered that refused a request, or a WebSocket."""
    try:
        body = from_json(ErrorInfo, bytes(content)).error
    except ValueError:
        return UnavailableError(
            f"what answers at {url} is not a Millpond server (status {status})",
            "check MILLPOND_URL",
        )
    return _made(BusyError if body.code == "busy" else _KINDS.get(status, MillpondError), body)


def from_body(body: ErrorBody) -> MillpondError:
    """The error that a stream ends with."""
    return _made(_BY_CODE.get(body.code, MillpondError), body)


def _made(kind: type[MillpondError], body: ErrorBody) -> MillpondError:
    error = kind(body.cause, _remedy(body))
    error.code = body.code or error.code
    return error


def _too_late(url: str) -> UnavailableError:
    return UnavailableError(f"the server at {url} did not answer in time", "try again; its log says what it does")


def _broken(error: Exception, url: str) -> UnavailableError:
    return UnavailableError(f"the connection to {url} broke ({error})", "try again")


def _remedy(body: ErrorBody) -> str:
    lines = [_detail(detail) for detail in body.details]
    if body.remedy:
        lines.append(body.remedy)
    if body.id:
        lines.append(f"the server's log says more about error {body.id}")
    return "\n".join(lines)


def _detail(detail: ErrorDetail) -> str:
    where = f"line {detail.line}, column {detail.column}: " if detail.line else ""
    field = f"{detail.loc}: " if detail.loc else ""
    hint = f" ({detail.hint})" if detail.hint else ""
    return f"{where}{field}{detail.message}{hint}"
