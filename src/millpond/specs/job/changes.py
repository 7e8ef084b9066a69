"""Changes to a job file made beside it, ``--set gpus=2``: a field, its value, and where each of them stood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.specs.errors import Problem, SpecError
from millpond.specs.source_positions import Located, Path, read_documents

_KEY = "value: "


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """One field and its new value.

    Attributes:
        field: its path as written, ``env.A`` or ``roles.0.gpus``.
        value: as YAML reads what stands behind the equals sign, with the place of each part of it.
        source: the argument it came with, for messages.
    """

    field: str
    value: Located
    source: str

    @staticmethod
    def of(field: str, value: str, source: str) -> FieldEdit:
        """A change to this very text."""
        return FieldEdit(field, Located(value, source, {(): (1, 1)}), source)

    @staticmethod
    def read(field: str, text: str, source: str) -> FieldEdit:
        """A change to what YAML reads in a text."""
        return FieldEdit(field, _value(text, source, 1), source)

    @staticmethod
    def parse(text: str) -> FieldEdit:
        """``env.A=b``.

        Raises:
            SpecError: it is not ``FIELD=VALUE``.
        """
        source = f"--set {text!r}"
        field, given, value = text.partition("=")
        if not given or not all(field.split(".")):
            hint = "write for example --set gpus=2 or --set env.A=b"
            raise SpecError([Problem("it is not FIELD=VALUE", hint, "", 1, 1, source)])
        return FieldEdit(field, _value(value, source, len(field) + 2), source)

    def apply(self, located: Located) -> None:
        """Set the field; what is on the way there is made.

        Raises:
            SpecError: the way leads through a single value, or to an entry that a list does not have.
        """
        place = located.value
        path: Path = ()
        *way, last = self.field.split(".")
        for step in way:
            key = self._key(place, step, path)
            path = (*path, key)
            place = place.setdefault(key, {}) if isinstance(place, dict) else place[int(key)]
        key = self._key(place, last, path)
        place[key] = self.value.value
        located.graft((*path, key), self.value, (1, len(self.field) - len(last) + 1))

    def _key(self, place: Any, step: str, path: Path) -> str | int:
        """``step`` as a key of ``place``."""
        if isinstance(place, dict):
            return step
        if isinstance(place, list):
            if step.isdecimal() and int(step) < len(place):
                return int(step)
            raise self._fault(path, f"there is no entry {step!r}", f"the list has {len(place)} entries, counted from 0")
        raise self._fault(path, "it has no fields of its own", "set the field itself")

    def _fault(self, path: Path, message: str, hint: str) -> SpecError:
        column = len(".".join(map(str, path))) + 2 if path else 1
        return SpecError([Problem(message, hint, ".".join(map(str, path)), 1, column, self.source)])


def _value(text: str, source: str, column: int) -> Located:
    """What YAML would read behind a colon; what is no value there, such as ``echo a: b``, is text."""
    as_text = Located(text, source, {(): (1, column)})
    if not text.strip():
        return as_text
    try:
        read = read_documents(_KEY + text, source)[0]
    except SpecError:
        return as_text
    if set(read.value) != {"value"}:
        return as_text
    shift = column - len(_KEY) - 1
    return Located(read.value["value"], source, _below(read.values, shift), _below(read.keys, shift))


def _below(places: dict[Path, tuple[int, int]], shift: int) -> dict[Path, tuple[int, int]]:
    """The places below ``value``, as if its text stood where it was written."""
    return {path[1:]: (line, column + shift) for path, (line, column) in places.items() if path}
