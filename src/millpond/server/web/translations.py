"""The languages of the portal, and which of them a reader gets."""

from __future__ import annotations

from typing import Final

from millpond.server.catalogues import ENGLISH, LANGUAGES, TextCatalogue

PORTAL_TEXTS: Final = TextCatalogue("millpond.server.web", "portal")
"""What the templates say."""
FIXED_TEXTS: Final = TextCatalogue("millpond.server.web", "fixed")
"""Whole texts of the program's own tables: what fields of a job file mean, templates, verbs and objects of rights."""


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
