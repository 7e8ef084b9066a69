"""A located document checked against a pydantic model; every fault comes back with its place and a hint."""

from __future__ import annotations

import re
import typing
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema, model_validator
from pydantic.fields import FieldInfo

from millpond.model.amounts import decimal_text
from millpond.specs.errors import BadValueError, Problem, SpecError, as_written, suggest
from millpond.specs.foreign_words import own_field
from millpond.specs.source_positions import Located, Path

PLAIN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Names that are safe in ids, paths and URLs."""

STORED: Final = object()
"""The context of a validation of what was accepted before: how long and how large it is, is not looked at again."""
LONGEST_NAME = 100
_LETTER_OR_DIGIT, _PART_OF_WORD = ("L", "N"), ("L", "N", "M")

_LONGEST_MESSAGE = 400
VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""Names of environment variables."""
URL_PATH: Final = r"^/[!-~]{0,500}$"
SERVER_URL: Final = r"^https?://[^\s/?#@]+/?$"
PATTERN_WORDS: Final = {
    PLAIN_NAME: "use letters from a to z, digits, '.', '_' and '-', with a letter or a digit first",
    VARIABLE: "use letters from a to z, digits and '_', with no digit first",
}
"""What texts of a form are made of, in words."""
_SURROGATE = re.compile("[\ud800-\udfff]")

M = TypeVar("M", bound="Strict")


def job_name(value: Any) -> Any:
    """A name that people chose, in letters of any script, in its composed form (NFC).

    Control characters, marks that turn the direction of text, spaces and what means something in a path or a URL are
    refused.

    Raises:
        BadValueError: other characters, or none, or too many.
    """
    if not isinstance(value, str):
        return value
    if not 0 < len(value) <= LONGEST_NAME:
        raise BadValueError(f"a name of {len(value)} characters", f"use 1 to {LONGEST_NAME} characters")
    name = unicodedata.normalize("NFC", value)
    kinds = [unicodedata.category(letter)[0] for letter in name]
    if kinds[0] not in _LETTER_OR_DIGIT or any(
        kind not in _PART_OF_WORD and letter not in "._-" for kind, letter in zip(kinds, name, strict=True)
    ):
        hint = "use letters of any script, digits, '.', '_' and '-', with a letter or a digit first"
        raise BadValueError(f"{as_written(value)} has characters that are not allowed here", hint)
    return name


JobName = Annotated[
    str,
    BeforeValidator(job_name),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}),
]


_MOST_BITS: Final = 128
MOST_REPORTED: Final = 100
"""Faults of one document that are named: each takes a search for the name that was meant."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How the amounts of a field are written; stands among the metadata of its type."""

    text: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class ByPrograms:
    """Among the metadata of a field that programs fill in, and people do not write."""


class Strict(BaseModel):
    """Base of everything people write: no unknown fields, no silent conversion of types.

    Attributes:
        instead: what to write, by fields that are expected here and stand elsewhere.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    instead: ClassVar[Mapping[str, str]] = {}


class Shortened(Strict):
    """A section that can be written in a shorter form as well; a subclass says which (``or_short``), and reads it."""

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else cls.from_short(value)

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """The whole form of what is no mapping.

        Raises:
            BadValueError: it is no short form either.
        """
        raise NotImplementedError


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


def validate(
    model: type[M], located: Located, written: Callable[[Path], Path] = same_path, context: object = None
) -> M:
    """The document as a ``model``.

    Args:
        context: ``STORED``, or None for what people write now.
        written: where the author wrote what the model has at a path, for documents that were translated first.

    Raises:
        SpecError: with all faults found.
    """
    if not isinstance(located.value, dict):
        raise SpecError([located.problem((), "a list of 'name: value' fields is expected here", _fields_hint(model))])
    odd = _odd(located.value, _is_no_text)
    if odd is not None:
        raise SpecError([located.problem(written(odd), "characters that are no text", "write it in UTF-8")])
    odd = _odd(located.value, _is_immense)
    if odd is not None:
        raise SpecError([located.problem(written(odd), "a number of too many digits", "write a smaller one")])
    try:
        return model.model_validate(located.value, context=context)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        problems = [_problem(model, located, fault, written) for fault in faults[:MOST_REPORTED]]
        problems.sort(key=lambda problem: (problem.source, problem.line, problem.column))
        if len(faults) > MOST_REPORTED:
            problems.append(Problem(f"{len(faults) - MOST_REPORTED:,} faults more", "mend these first"))
        raise SpecError(problems) from None  # it says all that pydantic's error does, in better words


def _is_no_text(value: Any) -> bool:
    """Whether it holds half of a surrogate pair, which JSON and YAML can write and nothing can store or send."""
    return isinstance(value, str) and not value.isascii() and _SURROGATE.search(value) is not None


def _is_immense(value: Any) -> bool:
    """Whether it is a number that no field has room for, and that would take long to write or to compute with."""
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def _odd(value: Any, is_odd: Callable[[Any], bool], path: Path = ()) -> Path | None:
    """Where a document holds such a value."""
    if isinstance(value, dict):
        parts = [*((name, path) for name in value), *((each, (*path, name)) for name, each in value.items())]
    elif isinstance(value, list):
        parts = [(each, (*path, number)) for number, each in enumerate(value)]
    else:
        return path if is_odd(value) else None
    return next((odd for part, where in parts if (odd := _odd(part, is_odd, where)) is not None), None)


def _fields_hint(model: type[BaseModel]) -> str:
    return f"fields are {', '.join(people_fields(model))}"


def _problem(
    model: type[Strict], located: Located, fault: Mapping[str, Any], written: Callable[[Path], Path]
) -> Problem:
    path: Path = tuple(fault["loc"])
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    unit = unit_in(_field(model, path))
    message, hint = _words(kind, value, context, fault["msg"], decimal_text if unit is None else unit.text)
    at_key = False
    if kind == "extra_forbidden":
        at_key = True
        owner = model_at(model, path[:-1])
        name = str(path[-1])
        message, hint = f"unknown field {_shown(name)}", _meant_field(name, owner)
    elif kind in ("dict_type", "model_type") and (owner := model_at(model, path)) is not model_at(model, path[:-1]):
        hint = f"write {{name: value}}; {_fields_hint(owner)}"
    elif kind == "missing":
        message, hint = f"the field {str(path[-1])!r} is missing", "add it"
    return located.problem(written(path), message, hint, at_key=at_key)


def _meant_field(name: str, owner: type[Strict]) -> str:
    """What to write instead of a field that a model does not have."""
    own = own_field(name)
    known = people_fields(owner)
    return owner.instead.get(name) or (f"did you mean {own!r}?" if own in known else suggest(name, known))


def _words(
    kind: str, value: Any, context: Mapping[str, Any], fallback: str, write_bound: Callable[[Any], str]
) -> tuple[str, str]:
    """Message and hint for a pydantic fault; ``write_bound``: how a bound of the field is written."""
    match kind:
        case "value_error" if isinstance(cause := context["error"], BadValueError):
            return _cut(cause.cause), cause.hint
        case "literal_error":
            allowed = [word.strip(" '") for word in context["expected"].replace(" or ", ", ").split(",")]
            hint = f"allowed: {', '.join(allowed)}"
            near = suggest(str(value), allowed)
            return f"{_shown(value)} is not allowed", f"{near} {hint}" if near.endswith("?") else hint
        case "string_type":
            return f"{_shown(value)} is not text", "put it in quotes"
        case "int_type" | "int_from_float":
            return f"{_shown(value)} is not a whole number", f"write digits only{_unquoted(value)}"
        case "float_type" | "finite_number":
            return f"{_shown(value)} is not a number", f"write a number{_unquoted(value)}"
        case "bool_type":
            return f"{_shown(value)} is neither true nor false", "write true or false"
        case "list_type" | "tuple_type":
            return f"{_shown(value)} is not a list", "write [a, b] or one '- item' per line"
        case "dict_type" | "model_type":
            return f"{_shown(value)} is not a set of 'name: value' fields", "write name: value, one per line"
        case "greater_than" | "greater_than_equal":
            least = write_bound(context.get("ge", context.get("gt")))
            return f"{_shown(value)} is too small", f"use {'at least' if 'ge' in context else 'more than'} {least}"
        case "less_than_equal" | "less_than":
            most = write_bound(context.get("le", context.get("lt")))
            return f"{_shown(value)} is too large", f"use {'at most' if 'le' in context else 'less than'} {most}"
        case "string_pattern_mismatch":
            return _misfit(value, context["pattern"])
        case "string_too_long" | "string_too_short" | "too_long" | "too_short":
            return f"{_shown(value)} has the wrong length", _length_hint(kind, context)
        case _:
            return f"{_shown(value)}: {fallback}", ""


def _misfit(value: Any, pattern: str) -> tuple[str, str]:
    if pattern == URL_PATH:
        return f"{_shown(value)} is not a path", "write one that begins with /, such as /health"
    if pattern == SERVER_URL:
        hint = "write scheme and host alone, such as https://pond.example.org"
        return f"{_shown(value)} is not the address of a server", hint
    hint = PATTERN_WORDS.get(pattern, f"it must match {pattern}")
    return f"{_shown(value)} has characters that are not allowed here", hint


def _length_hint(kind: str, context: Mapping[str, Any]) -> str:
    bound = context["max_length"] if kind.endswith("long") else context["min_length"]
    one, many = ("character", "characters") if kind.startswith("string") else ("entry", "entries")
    return f"use at {'most' if kind.endswith('long') else 'least'} {bound} {one if bound == 1 else many}"


def _unquoted(value: Any) -> str:
    """What to add to the advice to write a number, where one was written as text."""
    is_quoted = isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?", value) is not None
    return ", without quotes" if is_quoted else ""


def _shown(value: Any) -> str:
    text = as_written(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _cut(message: str) -> str:
    """A message that may hold a whole value, with the middle of a long one left out."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:200]}...{message[-100:]}"


def model_at(model: type[Strict], path: Path) -> type[Strict]:
    """The model whose fields stand at ``path``."""
    owner = model
    for part in path:
        if isinstance(part, str) and part in owner.model_fields:
            owner = _model_in(owner.model_fields[part].annotation) or owner
    return owner


def _field(model: type[Strict], path: Path) -> FieldInfo | None:
    """The field at ``path``; None where that is no field."""
    return model_at(model, path[:-1]).model_fields.get(str(path[-1])) if path else None


def people_fields(model: type[BaseModel]) -> list[str]:
    """The names of a model's fields, without those that programs fill in."""
    return [name for name, field in model.model_fields.items() if ByPrograms() not in field.metadata]


def unit_in(part: Any) -> Unit | None:
    """The unit among the metadata of a field or of a part of its annotation."""
    if isinstance(part, FieldInfo):
        found = [each for each in part.metadata if isinstance(each, Unit)]
        return found[0] if found else unit_in(part.annotation)
    own = [each for each in getattr(part, "__metadata__", ()) if isinstance(each, Unit)]
    inner = (unit_in(each) for each in typing.get_args(part))
    return own[0] if own else next((each for each in inner if each is not None), None)


def _model_in(annotation: Any) -> type[Strict] | None:
    """The model inside an annotation such as ``tuple[RoleFile, ...] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    for part in typing.get_args(annotation):
        if (found := _model_in(part)) is not None:
            return found
    return None
