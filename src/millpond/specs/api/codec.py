"""Bodies as JSON and back, for a client: it imports pydantic only for bodies that are pydantic models.

The server has ``models.adapter_of``, which is faster on many bodies.
"""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

_Body = TypeVar("_Body")


def from_json(kind: type[_Body], text: bytes) -> _Body:
    """A body of this kind. Fields that it does not know are ignored: a newer server may add some.

    Raises:
        ValueError: it is no JSON, lacks a field, or a field is of another type.
    """
    of_model = getattr(kind, "model_validate_json", None)
    return cast(_Body, _read(kind, json.loads(text)) if of_model is None else of_model(text))


def to_plain(body: Any) -> Any:
    """A body as JSON-able data."""
    return body.model_dump(mode="json") if hasattr(body, "model_dump") else asdict(body)


def _read(hint: Any, plain: Any) -> Any:
    """``plain`` as a value of the type ``hint``."""
    if type(plain) is hint:
        return plain
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is UnionType:
        return plain if type(plain) in parts else _read(parts[0], plain)
    if hint is float and type(plain) is int:
        return float(plain)
    if kind is Literal and plain in parts:
        return plain
    expected = dict if is_dataclass(kind) else kind
    if hint is not Any and type(plain) is not expected:
        raise ValueError(f"{plain!r:.100} is no {getattr(kind, '__name__', hint)}")
    if kind is list:
        return [_read(parts[0], item) for item in plain]
    if kind is dict:
        return {key: _read(parts[1], item) for key, item in plain.items()}
    if not is_dataclass(kind):
        return plain
    hints = _hints(hint)
    try:
        return hint(**{name: _read(hints[name], item) for name, item in plain.items() if name in hints})
    except TypeError as error:
        raise ValueError(str(error)) from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
