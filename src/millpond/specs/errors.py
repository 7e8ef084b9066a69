"""What is wrong in something people wrote, all of it at once, with the place of each fault."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millpond.model.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault.

    Attributes:
        loc: path of the field (``roles.0.gpus``); empty for the whole document.
        line, column: from 1; 0 when unknown.
        hint: the nearest valid name, the allowed values, or what to write instead.
        source: name of the file; empty when there is none.
    """

    message: str
    hint: str = ""
    loc: str = ""
    line: int = 0
    column: int = 0
    source: str = ""

    def __str__(self) -> str:
        place = ":".join(part for part in (self.source, str(self.line or ""), str(self.column or "")) if part)
        text = ": ".join(part for part in (place, self.loc, self.message) if part)
        return f"{text}; {self.hint}" if self.hint else text


class SpecError(InvalidInputError):
    """A file or document that cannot be accepted, with every fault found in it.

    Args:
        problems: at least one.
        summary: what is wrong as a whole.
    """

    def __init__(self, problems: Sequence[Problem], summary: str = "the job is not valid") -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.summary = summary


class BadValueError(ValueError):
    """A single value that cannot be accepted; the caller adds its place.

    Args:
        cause: what is wrong, with the value in it.
        hint: what to write instead.
    """

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint


def as_written(value: object) -> str:
    """A value as files write it: ``true`` and ``null``, text in quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def suggest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known words, or all of them when none is near."""
    choices = list(known)
    near = difflib.get_close_matches(word.lower(), [choice.lower() for choice in choices], n=1, cutoff=0.6)
    if near:
        return f"did you mean {next(choice for choice in choices if choice.lower() == near[0])!r}?"
    return f"use one of {', '.join(choices)}" if choices else "leave it out"
