"""The frame of the few pages that the server makes itself."""

from __future__ import annotations

from html import escape
from typing import Final

from millpond.server.catalogues import ENGLISH

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto 0; padding: 0 1.5rem; }
h1 { font-size: 1.3rem; } code { font-family: ui-monospace, monospace; } pre { overflow-x: auto; }
p.more { color: color-mix(in srgb, currentColor 70%, transparent); }
"""


def page(head: str, title: str, body: str, language: str = ENGLISH) -> str:
    """A whole page.

    Args:
        head: further elements of its head, as HTML.
        title: what it says above all, as plain text.
        body: the rest, as HTML.
        language: that it is in.
    """
    shown = escape(title[:1].upper() + title[1:])
    return (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>Millpond</title>{head}'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{shown}</h1>{body}</html>"
    )
