"""Texts of pages: in the reader's language, code between backticks, and whatever users wrote as text."""

from __future__ import annotations

import pytest

from millpond.server.web.rendering import _environment
from millpond.server.web.translations import PORTAL_TEXTS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see `pond why JOB`, or `pond ps`", "see <code>pond why JOB</code>, or <code>pond ps</code>"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("</code><script>`", "&lt;/code&gt;&lt;script&gt;`"),
        ("one ` alone", "one ` alone"),
    ],
)
def test_commands_in_a_text_are_shown_as_code(text: str, shown: str) -> None:
    assert _environment("en").from_string("{{ text|marked }}").render(text=text) == shown


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_texts_are_in_the_readers_language_and_values_in_them_stay_text(language: str) -> None:
    words = PORTAL_TEXTS.words(language)
    template = "<b>{{ _('Jobs') }}</b> {{ _('Members of %(job)s', job=name) }} {{ {'a': _('Log in')}[key] ~ name }}"
    shown = _environment(language).from_string(template).render(name="<i>", key="a")
    assert (
        shown
        == f"<b>{words('Jobs')}</b> {words('Members of %(job)s') % {'job': '&lt;i&gt;'}} {words('Log in')}&lt;i&gt;"
    )
