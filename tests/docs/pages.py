"""The documentation as tests read it: sections, tables and the names in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millpond"
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("architecture/*.md")),
    *sorted(DOCS.glob("kubernetes/*.md")),
]

_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def text_of(page: Path) -> str:
    """The whole page."""
    return page.read_text()


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", text_of(page), re.MULTILINE)
    assert found, f"{page.name} has no section {heading!r}"
    rest = text_of(page)[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def table(page: Path, heading: str) -> list[tuple[str, ...]]:
    """The rows of the first table of a section, without its heading row."""
    rows: list[tuple[str, ...]] = []
    for line in section(page, heading).splitlines():
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
        elif rows:
            break
    assert len(rows) > 2, f"no table below {heading!r} in {page.name}"
    return rows[2:]


def block(page: Path, heading: str) -> list[str]:
    """The lines of the first fenced block of a section."""
    found = _FENCE.search(section(page, heading))
    assert found, f"no block below {heading!r} in {page.name}"
    return found[1].splitlines()


def quoted(page: Path) -> Iterator[str]:
    """Everything in single backticks."""
    yield from re.findall(r"`([^`\n]+)`", prose(page))
