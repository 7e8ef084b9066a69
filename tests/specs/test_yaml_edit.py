"""Fields of YAML text are changed where they stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.specs.errors import SpecError
from millpond.specs.source_positions import read_documents
from millpond.specs.yaml_edit import REMOVED, block_text, edited, inline_text, yaml_text

FILE = """\
# What it is for
kind: train   # not a notebook
gpus: {cards: 2}  # both

env:
  # seed of all runs
  SEED: "7"
  MODE: fast # or slow
command: |
  python a.py
  python b.py
# the end
"""


def test_a_value_is_replaced_and_all_other_lines_stay() -> None:
    assert edited(FILE, ("gpus",), 0.25) == FILE.replace("{cards: 2}", "0.25")
    assert edited(FILE, ("env", "SEED"), "8") == FILE.replace('"7"', "'8'")
    assert edited(FILE, ("command",), "python c.py") == FILE.replace("|\n  python a.py\n  python b.py", "python c.py")


def test_a_field_is_added_behind_the_last_of_its_kind() -> None:
    assert edited(FILE, ("memory",), "8GiB") == FILE.replace("b.py\n", "b.py\nmemory: 8GiB\n")
    assert edited(FILE, ("env", "NEW"), "a\nb") == FILE.replace("slow\n", "slow\n  NEW: |-\n    a\n    b\n")
    assert edited("", ("command",), "true") == "command: 'true'\n"
    assert edited("# nothing yet", ("gpus",), 1) == "# nothing yet\ngpus: 1\n"


def test_a_field_goes_with_its_line() -> None:
    assert edited(FILE, ("kind",), REMOVED) == FILE.replace("kind: train   # not a notebook\n", "")
    assert edited(FILE, ("env", "MODE"), REMOVED) == FILE.replace("  MODE: fast # or slow\n", "")
    assert edited(FILE, ("nothing",), REMOVED) == FILE
    assert edited("gpus: 1", ("gpus",), REMOVED) == ""


def test_what_is_on_the_way_is_made() -> None:
    assert edited("gpus: 1\n", ("checkpoint", "grace"), "60s") == "gpus: 1\ncheckpoint: {grace: 60s}\n"
    assert edited("serve:\n", ("serve", "path"), "whole") == "serve: {path: whole}\n"
    roles = "roles:\n- name: a\n  gpus: 2 # many\n- {name: b, gpus: 2}\n"
    assert edited(roles, ("roles", 0, "gpus"), 1) == roles.replace("gpus: 2 #", "gpus: 1 #")
    assert read_documents(edited(roles, ("roles", 1, "gpus"), 1))[0].value["roles"][1] == {"name": "b", "gpus": 1}


def test_a_text_without_a_place_for_a_field_is_written_anew() -> None:
    assert edited('{"gpus": 1,\n "cpus": 2}', ("gpus",), 4) == "gpus: 4\ncpus: 2\n"
    shared = "env: &all {A: b}\nretry_on: [1]\ndata: *all\n"
    assert read_documents(edited(shared, ("env", "A"), "c"))[0].value["data"] == {"A": "b"}


@pytest.mark.parametrize("text", ["a: [", "- a\n", "a: 1\n---\nb: 2\n", "just words"])
def test_what_is_no_single_job_is_left_alone(text: str) -> None:
    with pytest.raises(SpecError):
        edited(text, ("gpus",), 1)


def test_a_way_through_a_single_value_is_refused() -> None:
    with pytest.raises(SpecError):
        edited("gpus: 1\n", ("gpus", "memory"), "1GiB")


def test_lines_of_a_program_stay_lines() -> None:
    assert yaml_text({"command": "a: 1\nb\n"}) == "command: |\n  a: 1\n  b\n"
    assert block_text({"A": "1e5", "B": "on"}) == "A: '1e5'\nB: 'on'"
    assert inline_text({"cards": 1, "memory": "4GiB"}) == "{cards: 1, memory: 4GiB}"


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    [
        "1e5",
        "0o17",
        "yes",
        "on",
        "12:30",
        "~",
        "null",
        ".inf",
        "a: b",
        "# c",
        "a #b",
        "- x",
        "a\nb\n",
        " a",
        "{",
        "é中",
        "<<",
    ]
)
SCALARS = TEXTS | st.integers(-(2**70), 2**70) | st.booleans() | st.none() | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
DOCUMENTS = st.dictionaries(st.sampled_from(["kind", "gpus", "env", "serve", "command"]), VALUES, min_size=1)


@given(DOCUMENTS)
def test_what_is_written_reads_the_same(document: dict[str, Any]) -> None:
    assert read_documents(yaml_text(document))[0].value == document


@given(VALUES)
def test_a_value_on_one_line_reads_the_same(value: Any) -> None:
    line = inline_text(value)
    assert "\n" not in line
    assert read_documents(f"x: [{line}]")[0].value == {"x": [value]}


@given(DOCUMENTS, st.sampled_from(["kind", "gpus", "other"]), VALUES | st.just(REMOVED))
def test_an_edit_changes_its_field_and_no_other(document: dict[str, Any], field: str, value: Any) -> None:
    text = "".join(f"# about {name}\n{yaml_text({name: each})}" for name, each in document.items())
    after = edited(text, (field,), value)
    wanted = {**document, field: value}
    if value is REMOVED:
        del wanted[field]
    assert (read_documents(after)[0].value if wanted else {}) == wanted
    assert all(f"# about {name}\n" in after for name in document if name != field)
