"""The languages of the portal: catalogues as translators write them, read once."""

from __future__ import annotations

import gettext
import io
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final = {ENGLISH: "English", "zh-CN": "简体中文"}
"""By their tags (BCP 47), each by its own name. English is what the templates say."""


@cache
def translation_of(language: str) -> gettext.NullTranslations:
    """The words of a language; those of the templates where it has none of its own."""
    if language == ENGLISH:
        return gettext.NullTranslations()
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    compiled = io.BytesIO()
    with catalogue_file(language).open("rb") as file:
        write_mo(compiled, read_po(file))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def catalogue_file(language: str) -> Traversable:
    """Where a language's words are."""
    return files("millpond.server.web") / "locale" / language.replace("-", "_") / "LC_MESSAGES" / "portal.po"


def language_for(chosen: str, accepted: str) -> str:
    """The language for a reader.

    Args:
        chosen: what they chose here; empty or unknown: nothing.
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
