"""Each text of the portal, and of what users are sent, in each language."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir, extract_from_file
from babel.messages.pofile import read_po

from millpond.server.catalogues import ENGLISH, LANGUAGES
from millpond.server.notifications.messages import notice_catalogue, words_of
from millpond.server.notifications.notices import Translate
from millpond.server.web.translations import catalogue_file, language_for, translation_of

Texts = Callable[[], set[str]]
OTHERS = [language for language in LANGUAGES if language != ENGLISH]


def portal_texts() -> set[str]:
    """What the templates say."""
    found = extract_from_dir(str(files("millpond.server.web") / "templates"), method_map=[("**.html", "jinja2")])
    return {str(message) for _, _, message, _, _ in found}


def notice_texts() -> set[str]:
    """What messages to users say."""
    folder = files("millpond.server.notifications")
    modules = [str(file) for file in folder.iterdir() if file.name.endswith(".py")]
    return {str(found[1]) for module in modules for found in extract_from_file("python", module)}


def catalogue(file: Traversable) -> Catalog:
    with file.open("rb") as stream:
        return read_po(stream)


SOURCES = [
    pytest.param(texts, file, translate, id=f"{name}-{language}")
    for language in OTHERS
    for name, texts, file, translate in (
        ("portal", portal_texts, catalogue_file(language), translation_of(language).gettext),
        ("notices", notice_texts, notice_catalogue(language), words_of(language)),
    )
]


@pytest.mark.parametrize(("texts", "file", "translate"), SOURCES)
def test_every_text_has_its_words_and_no_word_is_left_over(
    texts: Texts, file: Traversable, translate: Translate
) -> None:
    known = {str(message.id): str(message.string) for message in catalogue(file) if message.id}
    assert texts() == known.keys()
    assert [text for text, words in known.items() if not words] == []
    assert not any(message.fuzzy for message in catalogue(file) if message.id)


@pytest.mark.parametrize(("texts", "file", "translate"), SOURCES)
def test_words_name_the_same_values_as_the_text(texts: Texts, file: Traversable, translate: Translate) -> None:
    for text in texts():
        words = translate(text)
        assert set(re.findall(r"%\((\w+)\)[sd]", words)) == set(re.findall(r"%\((\w+)\)[sd]", text)), text
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
