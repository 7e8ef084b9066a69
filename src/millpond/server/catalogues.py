"""The languages in which the server speaks to people, and the catalogues that translators write."""

from __future__ import annotations

import gettext
import io
from importlib.resources.abc import Traversable
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final = {ENGLISH: "English", "zh-CN": "简体中文"}
"""By their tags (BCP 47), each by its own name. English is what templates and code say."""


def catalogue_in(folder: Traversable, language: str, name: str) -> Traversable:
    """The catalogue of a language: ``locale/zh_CN/LC_MESSAGES/NAME.po`` in a folder."""
    return folder / "locale" / language.replace("-", "_") / "LC_MESSAGES" / f"{name}.po"


def read_catalogue(file: Traversable) -> gettext.NullTranslations:
    """The words of a catalogue."""
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    compiled = io.BytesIO()
    with file.open("rb") as stream:
        write_mo(compiled, read_po(stream))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)
