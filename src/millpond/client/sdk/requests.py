"""How the parts of a client ask: what they need of a connection, and how they write a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

_Answer = TypeVar("_Answer", bound=BaseModel)


class RequestFunction(Protocol):
    """One request and the body of its answer."""

    def __call__(self, answer: type[_Answer], method: str, path: str, **request: Any) -> _Answer: ...


class Telling(Protocol):
    """One request whose answer has no body."""

    def __call__(self, method: str, path: str, **request: Any) -> object: ...


class StreamFunction(Protocol):
    """One request for a streamed answer, in raw pieces."""

    def __call__(
        self, path: str, params: Mapping[str, Any], silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]: ...


class Posting(Protocol):
    """One body that is given a streamed answer, in raw pieces."""

    def __call__(self, path: str, body: Any, silence_s: float) -> Iterator[bytes]: ...


def segment(text: str) -> str:
    """``text`` as one segment of a path."""
    return quote(text, safe="")
