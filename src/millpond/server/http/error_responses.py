"""Answers for each kind of error: status, code, cause and remedy, in the client's language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

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
from millpond.server.catalogues import language_for
from millpond.server.phrases.phrasebook import phrase_in
from millpond.specs.api.base import ErrorBody, ErrorDetail, ErrorInfo
from millpond.specs.errors import SpecError

_STATUS: Final = (
    (NotFoundError, 404),
    (ConflictError, 409),
    (InvalidInputError, 422),
    (BusyError, 503),
    (UnavailableError, 503),
    (NotLoggedInError, 401),
    (TooManyTriesError, 429),
    (NotAllowedError, 403),
)

_USUAL_REMEDY: Final = "look at it as it is now, and see /docs for what can be asked"
"""For errors of the core that advise nothing themselves."""
_MEND: Final = "mend what is named, then send it again"


def error_answer(
    asked: Headers, status: int, body: ErrorBody, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer to a request that is refused.

    Args:
        asked: the headers of the request.
        headers: of the answer.
    """
    language = language_asked(asked)
    said = {**(headers or {}), "Content-Language": language}
    return JSONResponse(asdict(ErrorInfo(error=in_language(language, body))), status, said)


def language_asked(asked: Headers) -> str:
    """The language of an answer: the portal asks for that of its page, and programs for none, which is English."""
    return language_for("", asked.get("accept-language", ""))


def in_language(language: str, body: ErrorBody) -> ErrorBody:
    """What is wrong, in the words of a reader as far as they are known."""
    details = [
        replace(each, message=phrase_in(language, each.message), hint=phrase_in(language, each.hint))
        for each in body.details
    ]
    return replace(
        body, cause=phrase_in(language, body.cause), remedy=phrase_in(language, body.remedy), details=details
    )


def status_of(error: MillpondError) -> int | None:
    """The status of an answer; None for an error that no request should meet."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), None)


def refusal_of(error: MillpondError) -> tuple[int, ErrorBody] | None:
    """Status and body for an error of the request; None for a defect of the server."""
    status = status_of(error)
    if status is None:
        return None
    if isinstance(error, SpecError):
        details = [
            ErrorDetail(loc=item.loc, line=item.line, column=item.column, message=item.message, hint=item.hint)
            for item in error.problems
        ]
        return status, ErrorBody(cause=error.summary, code=error.code, remedy=_MEND, details=details)
    return status, ErrorBody(cause=error.cause, code=error.code, remedy=error.remedy or _USUAL_REMEDY)
