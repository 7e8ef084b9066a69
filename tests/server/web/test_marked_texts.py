"""What stands between backticks in a text is code on a page, and whatever users wrote is text."""

from __future__ import annotations

import pytest

from millpond.server.web.rendering import _environment


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
