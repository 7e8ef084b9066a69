"""The words of the code: a class name stands for one thing, and names that newcomers would not search for stay out."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "millpond"
_WORDS = """
    acting answering attendant attendants audience away becoming beginning board callers clings closure
    closures complaints courier desk doomed door doors doorway draining elsewhere endings entrance farewell fleet flat
    following foundation gatekeeper gathered ground halted harmless homes hungry inmate instants intake janitor lead
    looks mates means modest nearness nurse nursery obstacle obstacles outfit picture pretend pretended question
    resting shortage shut site skipping softening standing steward strangers suggesting surroundings tides told trying
    unfed visit visitor visits vocabulary walk walking way ways wish wishes yielding
"""
RETIRED = frozenset(_WORDS.split())
_CLASS = re.compile(r"^ *class (\w+)[:([]", re.MULTILINE)
EXCEPTIONS = {"SuggestingGroup": "a click group that suggests commands"}


@cache
def classes() -> list[str]:
    return [name for path in SOURCE.rglob("*.py") for name in _CLASS.findall(path.read_text())]


def test_no_class_name_is_defined_twice() -> None:
    assert [name for name, count in Counter(classes()).items() if count > 1] == []


def test_no_module_bears_a_retired_word() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if "migrations" not in path.parts]
    assert [str(path.relative_to(SOURCE)) for path in modules if RETIRED & {*path.stem.split("_")}] == []


def test_no_class_or_event_bears_a_retired_word() -> None:
    words = {name: {word.lower() for word in re.findall(r"[A-Z][a-z]+|[A-Z]+(?![a-z])", name)} for name in classes()}
    assert [name for name, parts in words.items() if RETIRED & parts and name not in EXCEPTIONS] == []
