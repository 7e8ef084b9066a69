"""What people can write, for editors: JSON Schema made of the models.

What a field means stands once, in the docstring of its model; its example in the pages of ``docs/reference``.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from millpond.model.errors import InconsistentStateError
from millpond.specs.config.cluster import ClusterFile
from millpond.specs.job.job_file import JobFile
from millpond.specs.validation import Strict, people_fields, unit_in

_ATTRIBUTE: Final = re.compile(r"    (\w+(?:, \w+)*): (.*)")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Reference:
    """A kind of file that people write; ``page`` of the documentation's folder ``reference`` is about it."""

    model: type[Strict]
    title: str
    page: str
    about: str


REFERENCES: Final = {
    "job": Reference(
        JobFile,
        "Job file",
        "job-file.md",
        "Every field of a job file, as `pond submit`, `pond run --set` and the API take it. Amounts are per task.",
    ),
    "config": Reference(
        ClusterFile,
        "Configuration file",
        "configuration.md",
        "Every field of the file that `pond up --config FILE` reads; `pond config check FILE` checks it.",
    ),
}


def schema_of(reference: Reference) -> dict[str, Any]:
    """The JSON Schema of a kind of file, with what each field means."""
    schema = reference.model.model_json_schema()
    parts = {reference.model.__name__: schema, **schema.get("$defs", {})}
    models = {model.__name__: model for model in models_in(reference.model)}
    for name, part in parts.items():
        if (model := models.get(name)) is None:
            del schema["$defs"][name]  # of a field that programs fill in
            continue
        meaning = meanings(model)
        fields = part if "properties" in part else part["anyOf"][-1]
        fields["description"] = summary_of(model)
        for field in list(fields["properties"]):
            if field not in people_fields(model):
                del fields["properties"][field]
                continue
            described = fields["properties"][field]
            described["description"] = meaning[field].replace("``", "`")
            if described.get("default") is not None and unit_in(model.model_fields[field]) is not None:
                described["default"] = default_text(model, field)
    return {"$schema": _DIALECT, **schema, "title": reference.title, "description": reference.about}


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


def summary_of(model: type[Strict]) -> str:
    """What a model is, from its docstring, on one line."""
    return " ".join((inspect.getdoc(model) or "").partition("Attributes:")[0].split()).replace("``", "`")


def default_text(model: type[Strict], field: str) -> str:
    """How the default of a field would be written; empty where that is nothing."""
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
