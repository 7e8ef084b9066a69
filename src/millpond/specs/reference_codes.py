"""The words that programs meet in reasons and errors, as a page of Markdown and as data, made of their definitions."""

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
_ABOUT: Final = (
    "The words by which programs tell reasons and errors apart. They stay from version to version; new ones may come. "
    "`pond schema codes` prints them as JSON, and this page with `--markdown`."
)
_WAITING: Final = (
    "`cause` of `pond why JOB -o json` and of `GET /api/v1/jobs/{job}/why`. Some of the words above are met there too, "
    "where their text says so. `numbers` has the numbers of the summary, `remedy` a field of a job file and the value "
    "that would help."
)
_TITLES: Final = {
    "decisions": ("Why something was decided", "`cause` of decisions in `pond get JOB -o json` and of `pond why`."),
    "waiting": ("Why a job waits", _WAITING),
    "nodes": ("What a node fails on", "The keys of `nodes` in a reason: on how many nodes it is the first thing."),
    "deadlines": ("Deadlines", "`deadline.verdict` of a job that has not ended; `met` of one that has succeeded."),
    "errors": ("Errors", "`error.code` in an answer of the API that refuses, beside `cause` and `remedy`."),
}


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


def codes_page() -> str:
    """The same as a page of Markdown."""
    parts = ["# Codes", "", _ABOUT]
    for section, words in codes().items():
        title, where = _TITLES[section]
        parts += ["", f"## {title}", "", where, "", "| code | meaning |", "| --- | --- |"]
        parts += [f"| `{word}` | {meaning} |" for word, meaning in words.items()]
    return "\n".join(parts) + "\n"


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
