"""The languages of the portal: catalogues as translators write them, read once."""

from __future__ import annotations

import gettext
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from millpond.server.catalogues import ENGLISH, LANGUAGES, catalogue_in, read_catalogue


@cache
def translation_of(language: str) -> gettext.NullTranslations:
    """The words of a language; those of the templates where it has none of its own."""
    return gettext.NullTranslations() if language == ENGLISH else read_catalogue(catalogue_file(language))


def catalogue_file(language: str) -> Traversable:
    """Where a language's words are."""
    return catalogue_in(files("millpond.server.web"), language, "portal")


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
