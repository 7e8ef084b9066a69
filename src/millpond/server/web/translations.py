"""The texts of the portal, in the languages of its readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, cast

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from markupsafe import Markup

from millpond.server.catalogues import TextCatalogue

PORTAL_TEXTS: Final = TextCatalogue("millpond.server.web", "portal")
"""What the templates say."""
FIXED_TEXTS: Final = TextCatalogue("millpond.server.web", "fixed")
"""Whole texts of the program's own tables: what fields of a job file mean, templates, verbs and objects of rights."""

_LITERAL: Final = ("name", "lparen", "string", "rparen")


def words_in(language: str) -> Callable[..., Markup]:
    """What gives a template the words of a language for a text, with the values that it names."""
    known = PORTAL_TEXTS.translation(language).gettext
    return lambda text, **values: Markup(known(text)) % values


class LiteralTexts(Extension):
    """Has ``_('…')`` translated when a template is read: a long table says the same words in each of its rows."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The template's tokens, with the words in place of each such call; they are markup, as the call gives it."""
        words = cast(Callable[..., Markup], self.environment.globals["_"])
        tokens, place = list(stream), 0
        while place < len(tokens):
            token, found = tokens[place], tokens[place : place + len(_LITERAL)]
            if token.value == "_" and tuple(each.type for each in found) == _LITERAL:
                yield Token(token.lineno, "string", str(words(found[2].value)))
                yield Token(token.lineno, "pipe", "|")
                yield Token(token.lineno, "name", "safe")
                place += len(_LITERAL)
            else:
                yield token
                place += 1
