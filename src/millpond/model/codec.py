"""Model values to plain JSON data and back, for the event log and for snapshots.

Every dataclass becomes an object with its type's name under ``"type"``; enums become their values; tuples, lists.
Fields left at their default are not written, so that logs stay small and old logs stay readable.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

from millpond.model import (
    confinement,
    contents,
    decisions,
    engine,
    events,
    policy_trials,
    reasons,
    resources,
    task_spacing,
    windows,
    workloads,
)
from millpond.model.errors import InvalidInputError
from millpond.model.hardware import card_layouts, devices, node_power, node_selection, nodes
from millpond.model.tenancy import cells, tenants

_MODULES = (
    card_layouts,
    cells,
    confinement,
    contents,
    decisions,
    devices,
    engine,
    events,
    node_power,
    node_selection,
    nodes,
    policy_trials,
    reasons,
    resources,
    task_spacing,
    tenants,
    windows,
    workloads,
)
_TYPES: dict[str, type] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
}


def to_plain(value: Any) -> Any:
    """A model value as JSON-able data."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain: dict[str, Any] = {"type": type(value).__name__}
        for name, default in _fields(type(value)):
            item = getattr(value, name)
            if item != default or type(item) is not type(default):
                plain[name] = to_plain(item)
        return plain
    raise TypeError(f"{type(value).__name__} is not a model value")


def from_plain(plain: Any) -> Any:
    """The model value that ``to_plain`` wrote.

    Raises:
        InvalidInputError: the data names an unknown type or lacks a field.
    """
    if not isinstance(plain, dict):
        return plain
    name = plain.get("type", "")
    cls = _TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise InvalidInputError(f"unknown record type {name!r}", "it was written by a newer Millpond; upgrade this one")
    hints = _hints(cls)
    try:
        return cls(**{key: _convert(hints[key], item) for key, item in plain.items() if key != "type"})
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"a broken {name} record ({error})", "restore the file from a backup") from error


_REQUIRED = object()


@cache
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of a dataclass's fields."""
    return tuple(
        (field.name, _REQUIRED if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(cls)
    )


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _convert(hint: Any, plain: Any) -> Any:
    """``plain`` as the field type ``hint`` wants it."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if plain is None:
            return None
        (inner,) = (part for part in typing.get_args(hint) if part is not type(None))
        return _convert(inner, plain)
    if origin is tuple:
        parts = typing.get_args(hint)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_convert(parts[0], item) for item in plain)
        return tuple(_convert(part, item) for part, item in zip(parts, plain, strict=True))
    if isinstance(plain, dict):
        return from_plain(plain)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(plain)
    if hint is float:
        return float(plain)
    return plain
