"""Each text of the portal, and of what users are sent, in each language."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import pytest
from babel.messages.extract import extract_from_dir, extract_from_file
from babel.messages.pofile import read_po

from millpond.server.auth.roles import Verb
from millpond.server.catalogues import ENGLISH, LANGUAGES, TextCatalogue, language_for
from millpond.server.notifications.notices import NOTICE_TEXTS
from millpond.server.web.jobs.job_form import job_form
from millpond.server.web.jobs.ready_templates import ready_templates
from millpond.server.web.rendering import FIXED_TEXTS, PORTAL_TEXTS

Texts = Callable[[], set[str]]
OTHERS = [language for language in LANGUAGES if language != ENGLISH]


@cache
def portal_texts() -> set[str]:
    """What the templates say."""
    found = extract_from_dir(str(files("millpond.server.web") / "templates"), method_map=[("**.html", "jinja2")])
    return {str(message) for _, _, message, _, _ in found}


def notice_texts() -> set[str]:
    """What messages to users say."""
    folder = files("millpond.server.notifications")
    modules = [str(file) for file in folder.iterdir() if file.name.endswith(".py")]
    return {str(found[1]) for module in modules for found in extract_from_file("python", module)}


AUDITED = {
    *("log-in", "job", "user", "group", "image", "key", "node", "queue", "reservation", "secret", "token", "view"),
    *("dataset", "owner", "session", "closed", "drained", "opened", "deleted", "removed", "revoked", "cancelled"),
    *("webhook", "set", "invited", "fetched", "defaults", "admin", "no limits", "logged out", "another password"),
    "bound to nobody",
    *("a link for a browser", "by a link for a browser", "a link to what it serves"),
}
"""What entries of the audit log are about, and what they say in fixed words."""


def fixed_texts() -> set[str]:
    """What fields of a job file mean, what templates are about, what can be done, and the words of the audit log."""
    templates = {each.header.about for each in ready_templates() if not each.own}
    return {each.meaning for each in job_form().all()} | templates | {*map(str, Verb)} | AUDITED


SOURCES = [
    pytest.param(texts, catalogue, language, id=f"{catalogue.name}-{language}")
    for language in OTHERS
    for texts, catalogue in (
        (portal_texts, PORTAL_TEXTS),
        (fixed_texts, FIXED_TEXTS),
        (notice_texts, NOTICE_TEXTS),
    )
]


@pytest.mark.parametrize(("texts", "catalogue", "language"), SOURCES)
def test_every_text_has_its_words_and_none_is_left_over(texts: Texts, catalogue: TextCatalogue, language: str) -> None:
    known = catalogue.texts(language)
    assert texts() == known.keys()
    assert [text for text, words in known.items() if not words] == []
    with catalogue.file(language).open("rb") as stream:
        assert not any(message.fuzzy for message in read_po(stream) if message.id)


@pytest.mark.parametrize(("texts", "catalogue", "language"), SOURCES)
def test_words_name_the_same_values_as_the_text(texts: Texts, catalogue: TextCatalogue, language: str) -> None:
    for text in texts():
        words = catalogue.words(language)(text)
        assert set(re.findall(r"%\((\w+)\)[sd]", words)) == set(re.findall(r"%\((\w+)\)[sd]", text)), text
        assert set(re.findall(r"`[^`]+`", words)) == set(re.findall(r"`[^`]+`", text)), text


def test_no_text_has_no_words() -> None:
    assert FIXED_TEXTS.words("zh-CN")("") == ""


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
