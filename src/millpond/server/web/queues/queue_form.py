"""The fields of a queue as a form: what it says as text, and what was typed as fields of the configuration again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millpond.specs.config.queue_documents import QueueDocument
from millpond.specs.config.queues import LimitFile
from millpond.specs.flow_text import flow_text

_NUMBER: Final = re.compile(r"-?\d{1,12}(\.\d{1,12})?")
AMOUNTS: Final = ("guarantee", "limit")
"""Fields of a queue that have parts."""


def _number(text: str) -> Any:
    """A number; another text as it is, for the checks of the configuration to name."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in re.split(r"[,\n]", text) if word.strip()]


def _counts(text: str) -> dict[str, Any]:
    """``A100: 8`` in each line, or between commas."""
    pairs = (word.rpartition(":") for word in _words(text))
    return {name.strip() or number.strip(): _number(number.strip()) if name else None for name, _, number in pairs}


@dataclass(frozen=True, slots=True)
class QueueField:
    """One input of the form.

    Attributes:
        name: of the field, or of a part of it: ``limit.models``.
        read: makes what the configuration takes of a text that is not empty.
        is_long: it takes several lines.
    """

    name: str
    read: Callable[[str], Any] = str
    is_long: bool = False


FIELDS: Final = (
    QueueField("parent"),
    *(
        QueueField(f"{amount}.{part}", read, read is _counts)
        for amount in AMOUNTS
        for part, read in (
            ("gpus", _number),
            ("models", _counts),
            ("card_memory", str),
            ("cpus", _number),
            ("memory", str),
        )
    ),
    QueueField("weight", _number),
    QueueField("borrows", lambda text: text == "yes"),
    QueueField("may_exceed_cluster", lambda text: text == "yes"),
    QueueField("max_running_jobs", _number),
    QueueField("max_dev_hours", _number),
    QueueField("min_run"),
    QueueField("priorities", _words),
    QueueField("ordering"),
    QueueField("placement"),
    QueueField("cells", _counts, is_long=True),
    QueueField("pinned", _words, is_long=True),
    QueueField("data", _words, is_long=True),
    QueueField("output", _words, is_long=True),
    QueueField("images", _words, is_long=True),
)


def shown(document: QueueDocument) -> dict[str, str]:
    """What a queue says, by the names of the inputs."""
    return {field.name: _text(_value(document, field.name)) for field in FIELDS}


def typed(written: Mapping[str, str]) -> dict[str, str]:
    """What was typed, by the names of the inputs; what is missing counts as empty."""
    return {field.name: written.get(field.name, "").replace("\r", "").strip() for field in FIELDS}


def changed_fields(document: QueueDocument, written: Mapping[str, str]) -> dict[str, Any]:
    """The fields that a form changes, as an edit takes them: None where a field is to be left out.

    Args:
        document: what the queue says; its texts were in the form.
        written: as ``typed`` gives it.
    """
    before = shown(document)
    changed = [field for field in FIELDS if written[field.name] != before[field.name]]
    found: dict[str, Any] = {}
    for field in changed:
        top = field.name.partition(".")[0]
        found[top] = _amount(top, written) if top in AMOUNTS else _read(field, written)
    return found


def said_alike(name: str, value: Any) -> str:
    """A field of a queue in words, those of amounts in one form: ``8`` is ``{gpus: 8}``."""
    is_amount = any(field.name.startswith(f"{name}.") for field in FIELDS)
    is_short = is_amount and value is not None and not isinstance(value, Mapping)
    return flow_text({"gpus": value} if is_short else value)


def _amount(top: str, written: Mapping[str, str]) -> Any:
    parts = {
        field.name.partition(".")[2]: _read(field, written) for field in FIELDS if field.name.startswith(f"{top}.")
    }
    given = {part: value for part, value in parts.items() if value is not None}
    return given["gpus"] if given.keys() == {"gpus"} else given or None


def _read(field: QueueField, written: Mapping[str, str]) -> Any:
    text = written[field.name]
    return field.read(text) if text else None


def _value(document: QueueDocument, name: str) -> Any:
    top, _, part = name.partition(".")
    value = document.get(top)
    if not part or value is None:
        return value
    whole = LimitFile.from_short(value)
    return whole.get(part) if isinstance(whole, Mapping) else None


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return "\n".join(f"{name}: {_text(each)}" for name, each in value.items())
        case list() | tuple():
            return "\n".join(map(_text, value))
        case _:
            return str(value)
