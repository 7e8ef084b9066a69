"""What the documentation points at exists: links, files, modules, constants."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest
from pages import DOCS, PACKAGE, PAGES, ROOT, prose, quoted

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
FILE = re.compile(r"[\w./-]+\.(?:py|md|toml|yaml)")
FOLDER = re.compile(r"(?!/)[\w./-]+/")
CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
MODULE = re.compile(r"(?:model|specs|scheduling|forecasting|simulation|engines|node|server|client)(?:\.\w+)+")
SUFFIXES = (".py", ".md", ".toml", ".yaml", ".json", ".log")
FROM_ENVIRONMENT = ("MASTER_", "MILLPOND_", "XDG_", "LD_", "WORLD_", "LOCAL_", "NODE_", "VIRTUAL_", "CONDA_", "SLURM_")
MADE_BY_PROGRAMS = {".venv/", ".millpond/", ".venv/bin/"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def exists(name: str, page: Path) -> bool:
    """Whether a file or folder is found from the page, the repository, the package, or by its bare name."""
    if any((base / name).exists() for base in (page.parent, DOCS, ROOT, PACKAGE)):
        return True
    return name in names_in_package()


@cache
def names_in_package() -> frozenset[str]:
    """Of all files and folders, without where they lie."""
    return frozenset(path.name for path in PACKAGE.rglob("*"))


@cache
def python_names() -> set[str]:
    """Every constant that the package assigns at the top of a module, and every member of an enumeration."""
    assigned = re.compile(r"^\s*([A-Z][A-Z0-9_]*)(?:, [A-Z][A-Z0-9_, ]*)?(?:: [^=]+)? = ", re.MULTILINE)
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for line in assigned.finditer(path.read_text()):
            names.update(re.findall(r"[A-Z][A-Z0-9_]*", line[0].split("=")[0].split(":")[0]))
    return names


@each_page
def test_every_relative_link_leads_somewhere(page):
    links = [link.partition("#")[0] for link in LINK.findall(prose(page)) if "://" not in link]

    assert [link for link in links if link and not (page.parent / link).exists()] == []


@each_page
def test_every_anchor_of_a_link_is_a_heading(page):
    missing = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if anchor and "://" not in link:
            target = page.parent / path if path else page
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            missing += [] if anchor in slugs else [link]

    assert missing == []


@each_page
def test_every_file_and_folder_named_exists(page):
    named = {word for word in quoted(page) if FILE.fullmatch(word) or FOLDER.fullmatch(word)}

    assert sorted(name for name in named - MADE_BY_PROGRAMS if not exists(name, page)) == []


@each_page
def test_every_constant_named_is_in_the_code(page):
    named = {word for word in quoted(page) if CONSTANT.fullmatch(word) and not word.startswith(FROM_ENVIRONMENT)}

    assert sorted(named - python_names()) == []


@each_page
def test_every_module_or_class_named_can_be_imported(page):
    missing = []
    for word in {word for word in quoted(page) if MODULE.fullmatch(word) and not word.endswith(SUFFIXES)}:
        try:
            importlib.import_module(f"millpond.{word}")
        except ModuleNotFoundError:
            module, _, name = f"millpond.{word}".rpartition(".")
            if not hasattr(importlib.import_module(module), name):
                missing.append(word)

    assert missing == []


def test_every_page_is_listed_in_the_table_of_contents():
    listed = set(LINK.findall((DOCS / "README.md").read_text()))

    assert {page.name for page in DOCS.glob("*.md")} - listed == {"README.md"}


def test_the_changes_of_a_release_are_read_in_two_minutes():
    (unreleased,) = re.findall(r"^## Unreleased\n(.*?)(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S)

    assert len(unreleased.split()) < 600
