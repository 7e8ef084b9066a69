"""What people can write, for reading and for editors: pages of Markdown and JSON Schema, both made of the models.

What a field means stands once, in the docstring of its model; its example in ``reference_examples``.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from millpond.model.errors import InconsistentStateError
from millpond.specs.config.cluster import ClusterFile
from millpond.specs.job.job_file import JobFile
from millpond.specs.reference_examples import EXAMPLES
from millpond.specs.validation import Strict, people_fields, unit_in

_ATTRIBUTE: Final = re.compile(r"    (\w+(?:, \w+)*): (.*)")
_PLAIN: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Reference:
    """A kind of file that people write."""

    model: type[Strict]
    title: str
    about: str


REFERENCES: Final = {
    "job": Reference(
        JobFile,
        "Job file",
        "Every field of a job file, as `pond submit`, `pond run --set` and the API take it. Amounts are per task.",
    ),
    "config": Reference(
        ClusterFile,
        "Configuration file",
        "Every field of the file that `pond up --config FILE` reads; `pond config check FILE` checks it.",
    ),
}


def schema_of(reference: Reference) -> dict[str, Any]:
    """The JSON Schema of a kind of file, with what each field means and an example."""
    schema = reference.model.model_json_schema()
    parts = {reference.model.__name__: schema, **schema.get("$defs", {})}
    models = {model.__name__: model for model in models_in(reference.model)}
    for name, part in parts.items():
        if (model := models.get(name)) is None:
            del schema["$defs"][name]  # of a field that programs fill in
            continue
        meaning = meanings(model)
        fields = part if "properties" in part else part["anyOf"][-1]
        fields["description"] = _summary(model)
        for field in list(fields["properties"]):
            if field not in people_fields(model):
                del fields["properties"][field]
                continue
            described = fields["properties"][field]
            described["description"] = meaning[field].replace("``", "`")
            if described.get("default") is not None and unit_in(model.model_fields[field]) is not None:
                described["default"] = _default(model, field)
    return {"$schema": _DIALECT, **schema, "title": reference.title, "description": reference.about}


def page_of(reference: Reference) -> str:
    """The reference of a kind of file as a page of Markdown."""
    schema = reference.model.model_json_schema()
    parts = {reference.model.__name__: schema, **schema.get("$defs", {})}
    lines = [f"# {reference.title}: reference", "", *_wrapped(reference.about), ""]
    lines += [*_wrapped("This page is made of the program's own models; a test keeps it current."), ""]
    for model in models_in(reference.model):
        part = parts[model.__name__]
        fields = part if "properties" in part else part["anyOf"][-1]
        top = model is reference.model
        lines += [] if top else [f"## {model.__name__}", "", *_wrapped(_summary(model)), ""]
        if "properties" not in part:
            lines += [*_wrapped(f"Short forms: {', '.join(_kind(form) for form in part['anyOf'][:-1])}."), ""]
        meaning = meanings(model)
        for field in people_fields(model):
            kind = _kind(fields["properties"][field])
            lines += _entry(model, field, kind, meaning[field], "##" if top else "###")
    return "\n".join(lines).rstrip() + "\n"


def models_in(model: type[Strict]) -> list[type[Strict]]:
    """A model and all that stand in its fields, each once."""
    found: dict[type[Strict], None] = {model: None}

    def add(part: Any) -> None:
        if isinstance(part, type) and issubclass(part, BaseModel):
            if issubclass(part, Strict) and part not in found:
                found[part] = None
                for field in part.model_fields.values():
                    add(field.annotation)
            return
        for inner in typing.get_args(part):
            add(inner)

    for name in people_fields(model):
        add(model.model_fields[name].annotation)
    return list(found)


def meanings(model: type[Strict]) -> dict[str, str]:
    """What each field means, from the docstrings of a model and of those that it extends.

    Raises:
        InconsistentStateError: a docstring says nothing of a field.
    """
    found: dict[str, str] = {}
    for each in reversed([base for base in model.__mro__ if issubclass(base, Strict)]):
        found.update(_attributes(inspect.getdoc(each) or ""))
    missing = [field for field in model.model_fields if field not in found]
    if missing:
        raise InconsistentStateError(
            f"{model.__name__} says nothing of {', '.join(missing)}", "add it to its docstring"
        )
    return {field: found[field] for field in model.model_fields}


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    meaning = ""
    for line in text.partition("Attributes:\n")[2].splitlines():
        match = _ATTRIBUTE.fullmatch(line)
        if match is not None and not line.startswith("     "):
            yield from ((name, meaning) for name in names)
            names, meaning = match[1].split(", "), match[2]
        elif line.startswith("        "):
            meaning += f" {line.strip()}"
        else:
            break
    yield from ((name, meaning) for name in names)


def _summary(model: type[Strict]) -> str:
    return " ".join((inspect.getdoc(model) or "").partition("Attributes:")[0].split()).replace("``", "`")


def _entry(model: type[Strict], field: str, kind: str, meaning: str, level: str) -> list[str]:
    info = model.model_fields[field]
    explained = "left out:" in meaning
    default = "required" if info.is_required() else "" if explained else _default(model, field)
    facts = [kind, *_bounds(info), *([default if info.is_required() else f"default `{default}`"] if default else [])]
    text = meaning.replace("``", "`")
    example = EXAMPLES[model.__name__][field]
    return [
        *(f"{level} {field}", "", *_wrapped(f"{text[0].upper()}{text[1:]}"), ""),
        *(*_wrapped(f"*{'; '.join(facts)}*"), "", "```yaml", *example.splitlines(), "```", ""),
    ]


def _default(model: type[Strict], field: str) -> str:
    """How the default would be written; empty where that is nothing."""
    info = model.model_fields[field]
    value = info.default
    unit = unit_in(info)
    if value is None or value in ([], {}, (), "") or isinstance(value, BaseModel):
        return ""
    if unit is not None:
        return unit.text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bounds(info: FieldInfo) -> list[str]:
    """The bounds of a number."""
    unit = unit_in(info)
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return [
        f"{word} {unit.text(bound) if unit else bound}"
        for each in info.metadata
        for name, word in words.items()
        if (bound := getattr(each, name, None)) is not None
    ]


def _kind(schema: dict[str, Any]) -> str:
    """What may be written, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [_kind(each) for each in schema[several] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"fields of any name with {_kind(inner)}" if isinstance(inner, dict) else "fields"
    return _PLAIN.get(str(schema.get("type")), "anything")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, width=120, break_long_words=False, break_on_hyphens=False)
