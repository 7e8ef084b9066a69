"""The pages of the documentation, as they came with this server, for programs and people who have no other copy."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from fastapi import APIRouter, Response

from millpond.model.errors import NotFoundError
from millpond.server.api.permits import open_to_all
from millpond.specs.documentation import documentation_folder

LIST: Final = "/llms.txt"
PAGES: Final = "/docs/"
_LINK: Final = re.compile(r"\]\(([\w./-]+\.md)\)")

router = APIRouter(include_in_schema=False, dependencies=[open_to_all])


@cache
def _pages() -> dict[str, str]:
    """The text of each page by its path below ``docs``, with that of the list; empty where they are not installed."""
    folder = documentation_folder()
    if folder is None:
        return {}
    found = [folder / "llms.txt", *folder.rglob("*.md")]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in found}


@router.get(LIST)
def list_of_pages() -> Response:
    """What there is to read, with a line about each page, as https://llmstxt.org has it."""
    return Response(_LINK.sub(rf"]({PAGES}\1)", _page("llms.txt")), media_type="text/plain")


@router.get(PAGES + "{page:path}")
def one_page(page: str) -> Response:
    """One page, as Markdown."""
    return Response(_page(page), media_type="text/markdown")


def _page(name: str) -> str:
    text = _pages().get(name)
    if text is None:
        raise NotFoundError(f"no page {name[:200]!r}", f"{LIST} lists the pages")
    return text
