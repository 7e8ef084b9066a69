"""How each kind of error reads to a client: status, word, cause, remedy."""

from __future__ import annotations

from typing import Final

from millpond.model.errors import (
    ConflictError,
    InvalidInputError,
    MillpondError,
    NotAllowedError,
    NotFoundError,
    NotLoggedInError,
    TooManyTriesError,
    UnavailableError,
)
from millpond.specs.api.base import ErrorBody, ErrorDetail
from millpond.specs.errors import SpecError

_STATUS: Final = (
    (NotFoundError, 404, "not-found"),
    (ConflictError, 409, "conflict"),
    (InvalidInputError, 422, "invalid"),
    (UnavailableError, 503, "unavailable"),
    (NotLoggedInError, 401, "unauthorized"),
    (TooManyTriesError, 429, "too-many-tries"),
    (NotAllowedError, 403, "forbidden"),
)

_USUAL_REMEDY: Final = "look at it as it is now, and see /docs for what can be asked"
"""For errors of the core that advise nothing themselves."""
_MEND: Final = "mend what is named, then send it again"


def status_of(error: MillpondError) -> tuple[int, str] | None:
    """Status and word; None for an error that no request should meet."""
    return next(((status, code) for kind, status, code in _STATUS if isinstance(error, kind)), None)


def refusal_of(error: MillpondError) -> tuple[int, ErrorBody] | None:
    """Status and body for an error of the request; None for a defect of the server."""
    known = status_of(error)
    if known is None:
        return None
    status, code = known
    if isinstance(error, SpecError):
        details = [
            ErrorDetail(loc=item.loc, line=item.line, column=item.column, message=item.message, hint=item.hint)
            for item in error.problems
        ]
        return status, ErrorBody(cause=error.summary, code=code, remedy=_MEND, details=details)
    return status, ErrorBody(cause=error.cause, code=code, remedy=error.remedy or _USUAL_REMEDY)
