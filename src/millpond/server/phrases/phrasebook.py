"""What the server wrote in English, in the language of its reader: reasons, events, how tasks ended, and refusals.

They are written once, kept in the log and sent to programs, so they are in English. For people they are read back,
clause by clause, by the templates of two catalogues (``locale/*/LC_MESSAGES/``). What no template fits, such as the
words of a user, stays as it is.

A template is a clause with ``%(name)s`` for words, which may be phrases themselves, ``%(name)d`` for a number, and
``(s)`` where a plural may be.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from millpond.server.catalogues import ENGLISH, LANGUAGES, TextCatalogue

PHRASES: Final = TextCatalogue("millpond.server.phrases", "phrases")
REFUSALS: Final = TextCatalogue("millpond.server.phrases", "refusals")
"""What is said of requests that are refused."""
_LONGEST_TEXT: Final = 2_000
_LONGEST: Final = 400
"""Characters of a clause that is looked at: reasons are shorter, and each word of a template may be any part of it."""
_DEEPEST: Final = 4
BETWEEN: Final = "; "
_CLAUSE_END: Final = re.compile(r"; (?![^()]*\))")
"""Between clauses, but not between those in brackets, which belong to one."""
_HOLES: Final = re.compile(r"%\((\w+)\)([sd])|\(s\)")
_NUMBER: Final = r"\d[\d.,]*"
_WORDS: Final = ".+?"

_LISTS: Final = frozenset({"cells", "hours", "names", "nodes", "others"})
"""Words of templates that are lists: what stands between the last two is translated as in ``the list a, b and c``, of
which there are templates too."""

_Template = tuple[re.Pattern[str], str]


def phrase_in(language: str, text: str) -> str:
    """A text of the server in a language, as far as it has words for it.

    Args:
        language: one of ``LANGUAGES``.
    """
    if language == ENGLISH or language not in LANGUAGES or len(text) > _LONGEST_TEXT:
        return text
    return _translated(language, text, _DEEPEST)


@lru_cache(maxsize=4_096)
def _translated(language: str, text: str, depth: int) -> str:
    clauses = _CLAUSE_END.split(text)
    found = [_clause(language, clause, depth) for clause in clauses]
    if found.count(None) == len(found):
        return text
    between = "\N{FULLWIDTH SEMICOLON}" if None not in found else BETWEEN
    return between.join(clause if words is None else words for clause, words in zip(clauses, found, strict=True))


def _clause(language: str, clause: str, depth: int) -> str | None:
    """A clause in another language; None: there is no template for it."""
    if len(clause) > _LONGEST or not depth:
        return None
    for pattern, words in _templates(language):
        if match := pattern.fullmatch(clause):
            holes = match.groupdict()
            return words % {name: _hole(language, name, value, depth - 1) for name, value in holes.items()}
    return None


def _hole(language: str, name: str, value: str, depth: int) -> str:
    listed = _clause(language, f"the list {value}", depth) if name in _LISTS else None
    return _translated(language, value, depth) if listed is None else listed


@cache
def _templates(language: str) -> list[_Template]:
    """The first that fits is taken: of refusals one with more words of its own, then in the order of the catalogue."""
    refusals = sorted(REFUSALS.texts(language).items(), key=lambda each: -len(_HOLES.sub("", each[0])))
    texts = [*refusals, *PHRASES.texts(language).items()]
    return [(pattern_of(text), re.sub(r"\)d", ")s", words)) for text, words in texts]


def pattern_of(template: str) -> re.Pattern[str]:
    """What a clause looks like that was written by a template."""
    parts, at = [], 0
    for hole in _HOLES.finditer(template):
        parts.append(_literal(template[at : hole.start()]))
        if hole[1] is None:
            parts.append("s?")
        else:
            parts.append(f"(?P<{hole[1]}>{_NUMBER if hole[2] == 'd' else _WORDS})")
        at = hole.end()
    return re.compile("".join([*parts, _literal(template[at:])]))


def _literal(text: str) -> str:
    return re.escape(text.replace("%%", "%"))
