"""The words that programs meet in reasons and errors, with what each means, made of their definitions."""

from __future__ import annotations

import ast
import re
from enum import StrEnum
from importlib.resources import files
from typing import Final

from millpond.model.errors import InconsistentStateError
from millpond.model.reasons import Cause, DeadlineVerdict, Filter
from millpond.specs.api.base import ERROR_CODES

_FIRST_OF_WAITING: Final = Cause.NOT_CONSIDERED


def codes() -> dict[str, dict[str, str]]:
    """What each word means, by where it is met."""
    causes = _told(Cause)
    names = list(causes)
    waiting = names.index(_FIRST_OF_WAITING.value)
    return {
        "decisions": {name: causes[name] for name in names[:waiting]},
        "waiting": {name: causes[name] for name in names[waiting:]},
        "nodes": _told(Filter),
        "deadlines": _told(DeadlineVerdict),
        "errors": dict(ERROR_CODES),
    }


def _told(words: type[StrEnum]) -> dict[str, str]:
    """By value, what the source says below each member.

    Raises:
        InconsistentStateError: it says nothing of one.
    """
    package, _, module = words.__module__.rpartition(".")
    tree = ast.parse((files(package) / f"{module}.py").read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == words.__name__)
    found: dict[str, str] = {}
    for member, told in zip(body, [*body[1:], None], strict=True):
        match member, told:
            case (
                ast.Assign(value=ast.Constant(value=str(word))),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[word] = re.sub(r"\s+", " ", text)
    missing = [word.value for word in words if word.value not in found]
    if missing:
        raise InconsistentStateError(f"nothing is said of {', '.join(missing)}", f"see {words.__module__}")
    return found
