"""The form for a job, made of the schema of job files: a control for each field, and how what stands in it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

from millpond.specs.errors import BadValueError
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.job_file import JobFile
from millpond.specs.reference import REFERENCES, schema_of
from millpond.specs.source_positions import Path, read_documents
from millpond.specs.validation import Shortened, model_at
from millpond.specs.yaml_edit import REMOVED, block_text, inline_text


class Control(StrEnum):
    """What a field is written into; also a word for the page."""

    TEXT = "text"
    """A line of text."""
    LINES = "lines"
    """Text of several lines, or a list where it begins with a bracket."""
    CHOICE = "choice"
    """One of some values."""
    LIST = "list"
    """Values with commas between them."""
    BLOCK = "block"
    """YAML of several lines."""
    VALUE = "value"
    """What YAML reads behind a colon."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form.

    Attributes:
        name: its path in a job file, with dots.
        choices: of a ``CHOICE``: what it may be.
        example: what may be written there, or what counts where nothing is.
        parts: the fields of its long form.
    """

    name: str
    control: Control
    meaning: str
    choices: tuple[str, ...] = ()
    example: str = ""
    parts: tuple[FormField, ...] = ()

    @property
    def path(self) -> Path:
        """Its path as steps."""
        return tuple(self.name.split("."))


FIRST: Final = (
    *("name", "kind", "gpus", "gpu_models", "command", "workdir", "env"),
    *("cpus", "memory", "tasks", "queue", "priority", "time_limit"),
)
"""The fields that most jobs name."""
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("data", "output", "secrets", "image", "ship", "stdin"),
    "failures": ("checkpoint", "retries", "retry_delay", "retry_on", "fail_on", "on_task_lost", "keep"),
    "time": (
        "after",
        "deadline",
        "flexible",
        "max_slowdown",
        "window",
        "min_run_time",
        "preemptible",
        "suspend",
        "share_class",
    ),
    "place": ("pool", "cluster", "topology", "reservation", "network", "extras", "roles"),
    "many": ("array", "sweep"),
    "serving": ("serve",),
}


@dataclass(frozen=True, slots=True)
class JobForm:
    """The whole form.

    Attributes:
        groups: all other fields than the first, by what they are about; ``other`` has those that are in no group.
    """

    first: tuple[FormField, ...]
    groups: Mapping[str, tuple[FormField, ...]]

    def all(self) -> Iterator[FormField]:
        """All fields, each before its parts."""
        waiting = [*self.first, *(each for group in self.groups.values() for each in group)]
        while waiting:
            each = waiting.pop(0)
            yield each
            waiting[:0] = each.parts


@cache
def job_form() -> JobForm:
    """The form, made once."""
    schema = schema_of(REFERENCES["job"])
    fields = {each.name: each for each in _fields(schema, schema["$defs"], "")}
    first = tuple(fields.pop(name) for name in FIRST)
    groups = {title: tuple(fields.pop(name) for name in names) for title, names in _GROUPS.items()}
    return JobForm(first, {**groups, "other": tuple(fields.values())})


@cache
def fields_by_name() -> dict[str, FormField]:
    """All fields of the form."""
    return {each.name: each for each in job_form().all()}


def read(field: FormField | None, name: str, text: str) -> Any:
    """What was written into a control, as plain data; ``REMOVED`` for nothing.

    Args:
        field: None: a field that has no control of its own.

    Raises:
        SpecError: the lines of a block are not YAML.
    """
    if not text.strip():
        return REMOVED
    match Control.VALUE if field is None else field.control:
        case Control.TEXT:
            return text.strip()
        case Control.LINES if text.lstrip().startswith("[") and isinstance(listed := _value(name, text), list):
            return listed
        case Control.LINES:
            return text.rstrip()
        case Control.LIST if not text.lstrip().startswith("["):
            return [_value(name, part.strip()) for part in text.split(",") if part.strip()]
        case Control.BLOCK:
            return read_documents(text, name)[0].value
        case _:
            return _value(name, text.strip())


def shown(field: FormField, value: Any) -> str:
    """A value as it stands in the control."""
    if value is None:
        return ""
    match field.control:
        case Control.TEXT | Control.LINES if isinstance(value, str):
            return value
        case Control.LIST if isinstance(value, list) and value:
            text = ", ".join(map(_line, value))
            return text if read(field, field.name, text) == value else inline_text(value)
        case Control.BLOCK if isinstance(value, dict | list) and value:
            return block_text(value)
        case _:
            return _line(value)


def written_out(document: dict[str, Any], path: Path) -> Any:
    """What a document has at a path, where short forms of sections count as their long ones; None for nothing."""
    value: Any = document
    for depth, step in enumerate(path):
        value = long_form(path[:depth], value)
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def long_form(path: Path, value: Any) -> Any:
    """A section in its long form, with the parts that its short form says; the value itself where it is none."""
    model = model_at(JobFile, path)
    if value is None or isinstance(value, dict) or not issubclass(model, Shortened):
        return value
    try:
        return model.from_short(value)
    except BadValueError:
        return value


def _line(value: Any) -> str:
    """A value on a line of its own: text as it is, where it is read as that."""
    return value if isinstance(value, str) and _value("", value) == value else inline_text(value)


def _value(name: str, text: str) -> Any:
    return FieldEdit.read(name, text, name).value.value


def _fields(section: dict[str, Any], known: dict[str, Any], within: str) -> Iterator[FormField]:
    for name, described in section["properties"].items():
        path = f"{within}{name}"
        kinds = list(_kinds(described))
        part = next((known[kind["$ref"].rpartition("/")[2]] for kind in kinds if "$ref" in kind), None)
        fields = None if part is None else part if "properties" in part else part["anyOf"][-1]
        control, choices = _control(kinds)
        yield FormField(
            path,
            control,
            described["description"],
            choices,
            _example(described, kinds),
            () if fields is None else tuple(_fields(fields, known, f"{path}.")),
        )


def _control(kinds: list[dict[str, Any]]) -> tuple[Control, tuple[str, ...]]:
    """Into what the kinds of values that a field may have are written; of a choice, with its values."""
    types = {kind.get("type", "") for kind in kinds}
    if any("$ref" in kind for kind in kinds):
        return Control.VALUE, ()
    if all("enum" in kind or "const" in kind or kind.get("type") == "boolean" for kind in kinds):
        choices = [choice for kind in kinds for choice in kind.get("enum", [kind["const"]] if "const" in kind else [])]
        return Control.CHOICE, (*(("true", "false") if "boolean" in types else ()), *choices)
    if types == {"string"}:
        return Control.TEXT, ()
    if types == {"string", "array"}:
        return Control.LINES, ()
    if types == {"array"}:
        return (Control.BLOCK if any("$ref" in kind["items"] for kind in kinds) else Control.LIST), ()
    return (Control.BLOCK if types == {"object"} else Control.VALUE), ()


def _kinds(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What may be written for a field, each kind apart, without the nothing that it may be left out for."""
    for several in ("anyOf", "oneOf"):
        if several in described:
            for kind in described[several]:
                yield from _kinds(kind)
            return
    if described.get("type") != "null":
        yield described


def _example(described: dict[str, Any], kinds: list[dict[str, Any]]) -> str:
    """An example, or what counts where nothing is written."""
    default = described.get("default")
    if default not in (None, "", [], {}) and not isinstance(default, dict):
        return inline_text(default).strip("'")
    examples = next((each["examples"] for each in (described, *kinds) if "examples" in each), [""])
    return str(examples[0])
