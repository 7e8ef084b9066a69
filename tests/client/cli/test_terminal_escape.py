"""What others wrote, as JSON and YAML on a terminal: what cannot be seen is written as its number, and read whole."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import RootModel

from millpond.specs.escaped_text import json_text, yaml_text

HOSTILE = "rm \u202e-rf\x1b[2J \x9b31m \u2066x\u2069 \u200b\ufeff \U000e0041"


class Plain(RootModel[dict[str, str]]):
    """Any text by any key."""


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def unseen(text: str) -> list[str]:
    return [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_letters_of_all_languages_stay_as_they_are():
    body = Plain({"befehl": "grüße 世界 naïve 🙂"})
    assert yaml_text(body) == "befehl: grüße 世界 naïve 🙂\n"
    assert "grüße 世界 naïve 🙂" in json_text(body)


def test_what_turns_or_hides_text_is_written_as_its_number():
    body = Plain({"command": HOSTILE})
    for text in (yaml_text(body), json_text(body)):
        assert unseen(text) == []
        assert "\\u202e" in text.lower()


@given(TEXTS, TEXTS)
def test_both_forms_are_read_back_as_what_was_written(key, value):
    body = Plain({key: value})
    assert json.loads(json_text(body)) == {key: value}
    assert yaml.safe_load(yaml_text(body)) == {key: value}
    assert unseen(json_text(body)) == []
    assert unseen(yaml_text(body)) == []
