"""The languages in which the server speaks to people, and the catalogues that translators write."""

from __future__ import annotations

import gettext
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from babel.messages.catalog import Catalog

ENGLISH: Final = "en"
LANGUAGES: Final = {ENGLISH: "English", "zh-CN": "简体中文"}
"""By their tags (BCP 47), each by its own name. English is what templates and code say."""

Translate = Callable[[str], str]
"""Gives the words of a language for those in English."""


def language_for(chosen: str, accepted: str) -> str:
    """The language for a reader.

    Args:
        chosen: what they chose in the portal; empty or unknown: nothing.
        accepted: the header ``Accept-Language`` of their browser, whose order counts.
    """
    if chosen in LANGUAGES:
        return chosen
    for part in accepted.lower().split(",")[:20]:
        tag = part.partition(";")[0].strip()
        if tag == "zh" or tag.startswith(("zh-cn", "zh-hans", "zh-sg")):
            return "zh-CN"
        if tag == "en" or tag.startswith("en-"):
            return ENGLISH
    return ENGLISH


@dataclass(frozen=True, slots=True)
class TextCatalogue:
    """The words of one part of the server: ``locale/zh_CN/LC_MESSAGES/NAME.po`` in its package."""

    package: str
    name: str

    def file(self, language: str) -> Traversable:
        """Where a language's words are."""
        return files(self.package) / "locale" / language.replace("-", "_") / "LC_MESSAGES" / f"{self.name}.po"

    def translation(self, language: str) -> gettext.NullTranslations:
        """The words of a language; those in English where it has none of its own."""
        return _translation(self, language)

    def words(self, language: str) -> Translate:
        """What gives the words of a language."""
        known = self.translation(language).gettext
        return lambda text: known(text) if text else ""  # the words of no text are the head of the catalogue

    def texts(self, language: str) -> dict[str, str]:
        """All texts with their words, in the order of the file."""
        return {str(message.id): str(message.string) for message in _read(self.file(language)) if message.id}


@cache
def _translation(catalogue: TextCatalogue, language: str) -> gettext.NullTranslations:
    from babel.messages.mofile import write_mo

    if language == ENGLISH:
        return gettext.NullTranslations()
    compiled = io.BytesIO()
    write_mo(compiled, _read(catalogue.file(language)))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def _read(file: Traversable) -> Catalog:
    from babel.messages.pofile import read_po

    with file.open("rb") as stream:
        return read_po(stream)
