"""The texts of the portal, in the languages of its readers."""

from __future__ import annotations

from typing import Final

from millpond.server.catalogues import TextCatalogue

PORTAL_TEXTS: Final = TextCatalogue("millpond.server.web", "portal")
"""What the templates say."""
FIXED_TEXTS: Final = TextCatalogue("millpond.server.web", "fixed")
"""Whole texts of the program's own tables: what fields of a job file mean, templates, verbs and objects of rights."""
