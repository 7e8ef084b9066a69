"""Which HTTP status an error has, and its word for programs."""

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

_KINDS: Final = (
    (NotFoundError, 404, "not-found"),
    (ConflictError, 409, "conflict"),
    (InvalidInputError, 422, "invalid"),
    (UnavailableError, 503, "unavailable"),
    (NotLoggedInError, 401, "unauthorized"),
    (TooManyTriesError, 429, "too-many-tries"),
    (NotAllowedError, 403, "forbidden"),
)


def status_of(error: MillpondError) -> tuple[int, str] | None:
    """Status and word; None for an error that no request should meet."""
    return next(((status, code) for kind, status, code in _KINDS if isinstance(error, kind)), None)
