"""Each text of the portal in each language."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po

from millpond.server.web.translations import ENGLISH, LANGUAGES, catalogue_file, language_for, translation_of

OTHERS = [language for language in LANGUAGES if language != ENGLISH]


def texts() -> set[str]:
    """What the templates say."""
    found = extract_from_dir(str(files("millpond.server.web") / "templates"), method_map=[("**.html", "jinja2")])
    return {str(message) for _, _, message, _, _ in found}


def catalogue(language: str) -> Catalog:
    with catalogue_file(language).open("rb") as file:
        return read_po(file)


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_has_its_words_and_no_word_is_left_over(language: str) -> None:
    known = {str(message.id): str(message.string) for message in catalogue(language) if message.id}
    assert texts() == known.keys()
    assert [text for text, words in known.items() if not words] == []
    assert not any(message.fuzzy for message in catalogue(language) if message.id)


@pytest.mark.parametrize("language", OTHERS)
def test_words_name_the_same_values_as_the_text(language: str) -> None:
    for text in texts():
        words = translation_of(language).gettext(text)
        assert set(re.findall(r"%\((\w+)\)s", words)) == set(re.findall(r"%\((\w+)\)s", text)), text
        assert set(re.findall(r"`[^`]+`", words)) == set(re.findall(r"`[^`]+`", text)), text


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        ("", "", "en"),
        ("", "de, zh-Hans-CN;q=0.9, en;q=0.5", "zh-CN"),
        ("", "fr, en-GB, zh", "en"),
        ("zh-CN", "en", "zh-CN"),
        ("../../etc", "zh", "zh-CN"),
    ],
)
def test_a_choice_counts_before_the_wishes_of_the_browser(chosen: str, accepted: str, language: str) -> None:
    assert language_for(chosen, accepted) == language
