"""Files that can be fetched, and sent, in parts: RFC 9110, sections 13 and 14, as far as a client needs to go on.

One span of bytes is given out (``Range: bytes=FIRST-``, ``FIRST-LAST`` or ``-COUNT``); where several are asked for, the
whole is, as the standard allows. ``If-Match`` and ``If-Range`` with the file's ``ETag`` keep a client from putting
parts of two versions together. What is sent goes on by ``Content-Range: bytes FIRST-LAST/TOTAL``, up to the end.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from millpond.model.errors import InvalidInputError
from millpond.server.http.error_responses import error_answer
from millpond.server.http.long_answers import StreamedAnswer
from millpond.server.storage.files.outputs import OpenedFile
from millpond.server.storage.files.service import Span
from millpond.specs.api.base import ErrorBody
from millpond.specs.escaped_text import visible

_SPAN: Final = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII)
SPAN_PATTERN: Final = r"^(bytes [0-9]{1,18}-[0-9]{1,18}/[0-9]{1,18})?$"
_PIECE: Final = 2**20


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of a file, from ``first`` on."""

    first: int
    length: int


def answer_with(opened: OpenedFile, asked: Headers, name: str = "") -> Response:
    """A file, or the part of it that is asked for; closes it in the end.

    What a job wrote is never shown by a browser in this server's name, only saved.

    Args:
        name: what a browser saves it as, with a question mark for each character that nobody sees.
    """
    tag = f'"{opened.version}"'
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Disposition": "attachment" + (f"; filename*=UTF-8''{quote(visible(name), safe='')}" if name else ""),
        "X-Content-Type-Options": "nosniff",
    }
    if asked.get("if-match", "*") not in ("*", tag):
        opened.file.close()
        changed = ErrorBody(cause="the file has changed since", code="conflict", remedy="fetch it from its beginning")
        return _refusal(asked, 412, headers, changed)
    span = _span(asked.get("range", ""), opened.size) if asked.get("if-range", tag) == tag else _Span(0, opened.size)
    if span is None:
        opened.file.close()
        headers["Content-Range"] = f"bytes */{opened.size}"
        outside = f"the file has {opened.size} bytes, none of them in that range"
        return _refusal(asked, 416, headers, ErrorBody(cause=outside, code="conflict", remedy="ask for others"))
    headers["Content-Length"] = str(span.length)
    status = 200
    if span.length < opened.size:
        status = 206
        headers["Content-Range"] = f"bytes {span.first}-{span.first + span.length - 1}/{opened.size}"
    return StreamedAnswer(_pieces(opened, span), status, headers, media_type="application/octet-stream")


def sent_span(content_range: str, headers: Headers) -> Span:
    """What part of a content a request brings, by its ``Content-Range``; the whole where it has none.

    Args:
        content_range: matches ``SPAN_PATTERN``.

    Raises:
        InvalidInputError: the part does not go to the end, or is not as long as the body.
    """
    length = headers.get("content-length")
    if not content_range:
        return Span(0, None if length is None else int(length))
    first, last, total = (int(number) for number in re.findall(r"[0-9]+", content_range))
    if not first <= last == total - 1 or (length is not None and int(length) != total - first):
        raise InvalidInputError(
            f"the body is not what Content-Range says ({content_range})", "send all of the rest at once"
        )
    return Span(first, total)


def _span(asked: str, size: int) -> _Span | None:
    """What part of a file is meant: the whole where that is not known, None where the file has no such part."""
    found = _SPAN.fullmatch(asked)
    if found is None or not any(found.groups()):
        return _Span(0, size)
    first, last = found.groups()
    if not first:
        length = min(int(last), size)
        return _Span(size - length, length) if length else None
    if last and int(last) < int(first):
        return _Span(0, size)
    if int(first) >= size:
        return None
    return _Span(int(first), min(int(last or size), size - 1) - int(first) + 1)


async def _pieces(opened: OpenedFile, span: _Span) -> AsyncIterator[bytes]:
    """Piece by piece, no more than the file had when it was opened."""
    left = span.length
    with opened.file:
        opened.file.seek(span.first)
        while left > 0 and (piece := await run_in_threadpool(opened.file.read, min(_PIECE, left))):
            left -= len(piece)
            yield piece


def _refusal(asked: Headers, status: int, headers: Mapping[str, str], body: ErrorBody) -> JSONResponse:
    kept = {name: value for name, value in headers.items() if name in ("ETag", "Content-Range")}
    return error_answer(asked, status, body, kept)
