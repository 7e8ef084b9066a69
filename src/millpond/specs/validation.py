"""A located document checked against a pydantic model; every fault comes back with its place and a hint."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from millpond.specs.errors import BadValueError, Problem, SpecError, suggest
from millpond.specs.locate import Located, Path

M = TypeVar("M", bound="Strict")


class Strict(BaseModel):
    """Base of everything people write: no unknown fields, no silent conversion of types.

    ``not_built`` names fields that the design has and this version cannot honour; they are refused by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    not_built: typing.ClassVar[Mapping[str, str]] = {}


def or_short(*forms: dict[str, Any]) -> ConfigDict:
    """Settings of a model that may also be written in a short form: says so in its JSON schema."""

    def extend(schema: dict[str, Any]) -> None:
        full = dict(schema)
        schema.clear()
        schema.update(title=full["title"], anyOf=[*forms, full])

    return ConfigDict(json_schema_extra=extend)


def same_path(path: Path) -> Path:
    """The path unchanged."""
    return path


def validate(model: type[M], located: Located, written: Callable[[Path], Path] = same_path) -> M:
    """The document as a ``model``.

    Args:
        written: where the author wrote what the model has at a path, for documents that were translated first.

    Raises:
        SpecError: with all faults found.
    """
    if not isinstance(located.value, dict):
        raise SpecError([located.problem((), "a list of 'name: value' fields is expected here", _fields_hint(model))])
    try:
        return model.model_validate(located.value)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise SpecError([_problem(model, located, fault, written) for fault in faults]) from error


def _fields_hint(model: type[BaseModel]) -> str:
    return f"fields are {', '.join(model.model_fields)}"


def _problem(
    model: type[Strict], located: Located, fault: Mapping[str, Any], written: Callable[[Path], Path]
) -> Problem:
    path: Path = tuple(fault["loc"])
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    message, hint = _words(kind, value, context, fault["msg"])
    at_key = False
    if kind == "extra_forbidden":
        at_key = True
        owner = _owner(model, path[:-1])
        name = str(path[-1])
        if name in owner.not_built:
            message, hint = f"{name!r} is not supported yet", owner.not_built[name]
        else:
            message, hint = f"unknown field {name!r}", suggest(name, owner.model_fields)
    elif kind == "missing":
        message, hint = f"the field {str(path[-1])!r} is missing", "add it"
    return located.problem(written(path), message, hint, at_key=at_key)


def _words(kind: str, value: Any, context: Mapping[str, Any], fallback: str) -> tuple[str, str]:
    """Message and hint for a pydantic fault."""
    match kind:
        case "value_error" if isinstance(cause := context["error"], BadValueError):
            return cause.cause, cause.hint
        case "literal_error":
            allowed = [word.strip(" '") for word in context["expected"].replace(" or ", ", ").split(",")]
            hint = f"allowed: {', '.join(allowed)}"
            near = suggest(str(value), allowed)
            return f"{value!r} is not allowed", f"{near} {hint}" if near.endswith("?") else hint
        case "string_type":
            return f"{_shown(value)} is not text", "put it in quotes"
        case "int_type" | "int_from_float":
            return f"{_shown(value)} is not a whole number", "write digits only, without quotes"
        case "float_type" | "finite_number":
            return f"{_shown(value)} is not a number", "write a number without quotes"
        case "bool_type":
            return f"{_shown(value)} is neither true nor false", "write true or false"
        case "list_type" | "tuple_type":
            return f"{_shown(value)} is not a list", "write [a, b] or one '- item' per line"
        case "dict_type" | "model_type":
            return f"{_shown(value)} is not a set of 'name: value' fields", "write name: value, one per line"
        case "greater_than" | "greater_than_equal":
            least = context.get("ge", context.get("gt"))
            return f"{_shown(value)} is too small", f"use {'at least' if 'ge' in context else 'more than'} {least}"
        case "less_than_equal":
            return f"{_shown(value)} is too large", f"use at most {context['le']}"
        case "string_pattern_mismatch":
            return f"{_shown(value)} has characters that are not allowed here", f"it must match {context['pattern']}"
        case "string_too_long" | "string_too_short" | "too_long" | "too_short":
            return f"{_shown(value)} has the wrong length", fallback.lower()
        case _:
            return f"{_shown(value)}: {fallback}", ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _owner(model: type[Strict], path: Path) -> type[Strict]:
    """The model whose fields stand at ``path``."""
    owner = model
    for part in path:
        if isinstance(part, str) and part in owner.model_fields:
            owner = _model_in(owner.model_fields[part].annotation) or owner
    return owner


def _model_in(annotation: Any) -> type[Strict] | None:
    """The model inside an annotation such as ``tuple[RoleFile, ...] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    for part in typing.get_args(annotation):
        if (found := _model_in(part)) is not None:
            return found
    return None
