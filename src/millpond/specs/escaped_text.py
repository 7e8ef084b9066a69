"""JSON and YAML of what others wrote, for a terminal or a page: what one cannot see stands there as its number.

A job file can hold characters that move the cursor or turn the direction of writing, so that a line reads otherwise
than it is (Unicode Technical Report 36, section 2.10.3). Both forms have an escape for them; who reads the answer with
a program gets what was written.
"""

from __future__ import annotations

import json
import re
from typing import Any

from millpond.specs.api.codec import to_plain

_SUSPICIOUS = re.compile(r"[^\x20-\x7e\n\t\w]")
"""Few characters have to be looked at closer: letters of all languages are none of them."""


def visible(text: str) -> str:
    """Words of others within a table or a message, with a question mark for each character that nobody sees.

    Names of metrics, for one, are what a job makes them.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def json_text(body: Any) -> str:
    """A body as indented JSON."""
    return escaped_json(to_plain(body))


def escaped_json(plain: Any) -> str:
    """Plain data as indented JSON."""
    return _SUSPICIOUS.sub(lambda found: _escaped(found[0]), json.dumps(plain, indent=2, ensure_ascii=False))


def yaml_text(body: Any) -> str:
    """A body as YAML."""
    from millpond.specs.yaml_edit import block_text

    return f"{block_text(to_plain(body))}\n"


def _escaped(letter: str) -> str:
    """A character as JSON writes it in a string, where nothing that cannot be seen stands outside of one."""
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
