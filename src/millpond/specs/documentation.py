"""The pages of the documentation, as they came with this installation, or in its sources."""

from __future__ import annotations

from pathlib import Path

from millpond.model.errors import UnavailableError


def documentation_folder() -> Path | None:
    """Where the pages lie; None where they are not installed."""
    package = Path(__file__).parents[1]
    folders = (package / "docs", package.parents[1] / "docs")  # as installed, and in the sources
    return next((each for each in folders if (each / "llms.txt").is_file()), None)


def reference_page(name: str) -> str:
    """A page of the reference, as Markdown.

    Raises:
        UnavailableError: the pages are not installed.
    """
    folder = documentation_folder()
    if folder is None:
        raise UnavailableError("the documentation is not installed here", "install Millpond from its wheel or sources")
    return (folder / "reference" / name).read_text(encoding="utf-8")
