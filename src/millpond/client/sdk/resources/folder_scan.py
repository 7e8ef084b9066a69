"""A folder as a snapshot: which files of it are sent, and the hash of each.

What ``.gitignore`` and ``.pondignore`` name stays behind; both are read in every folder, with Git's rules, and
``.pondignore`` has the last word. Always left behind: ``.git``, ``__pycache__``, virtual environments (they hold the
paths of this machine and would not run elsewhere), sockets and pipes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.folders import is_inside, link_stays_inside, why_too_deep
from millpond.specs.job.snapshots import MOST_FILES, FileEntry, FolderSnapshot, LinkEntry
from millpond.specs.paths import followed

LARGEST_SHIPPED: Final = 2 * 2**30
"""Bytes that a working directory may have; larger things are data."""

_IGNORE_FILES: Final = (".gitignore", ".pondignore")
_NEVER: Final = frozenset({".git", "__pycache__"})
_ENVIRONMENT_MARK: Final = "pyvenv.cfg"
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Scan:
    """A scanned folder; ``sources`` says where the content of each digest lies."""

    snapshot: FolderSnapshot
    sources: dict[str, Path]


@dataclass(slots=True)
class _Found:
    files: list[tuple[str, Path, int, bool]] = field(default_factory=list)
    links: list[LinkEntry] = field(default_factory=list)


def scan(folder: Path, largest: int = LARGEST_SHIPPED, ignore: bool = True) -> Scan:
    """The snapshot of a folder.

    Args:
        largest: bytes in all.
        ignore: heed the ignore files and the list above; otherwise everything is taken.

    Raises:
        InvalidInputError: it is too large, or a link leads out of it.
        UnavailableError: something in it cannot be read.
    """
    root = followed(folder, "folder")
    if not root.is_dir():
        raise InvalidInputError(f"{folder} is not a folder", "name a folder")
    found = _Found()
    try:
        for entry, path in _walk(root, "", [], ignore):
            if entry.is_symlink():
                found.links.append(_link(root, path))
            elif entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found.files.append((path, Path(entry.path), status.st_size, bool(status.st_mode & 0o100)))
        _check_size(folder, found, largest)
        files, sources = [], {}
        for path, source, size, executable in found.files:
            digest, read = _hashed(source)
            if read != size:
                raise _changed(source)
            files.append(FileEntry(path=path, digest=digest, size=size, executable=executable))
            sources[digest] = source
    except OSError as error:
        raise UnavailableError(
            f"{error.filename or folder} cannot be read ({error.strerror})",
            "check its rights, or name it in .pondignore",
        ) from error
    return Scan(FolderSnapshot(files=tuple(files), links=tuple(found.links)), sources)


def _changed(source: Path) -> InvalidInputError:
    return InvalidInputError(f"{source} changed while it was read", "try again, or name it in .pondignore")


def _walk(
    folder: Path, below: str, rules: list[tuple[str, GitIgnoreSpec]], ignore: bool
) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Everything that is sent but folders, with its path below the root."""
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    if ignore:
        names = {entry.name for entry in listed}
        if below and _ENVIRONMENT_MARK in names:
            return
        here = [_rules(folder / name) for name in _IGNORE_FILES if name in names]
        rules = [*rules, *((below, spec) for spec in here)]
    for entry in listed:
        path = below + entry.name
        if not is_inside(path) or not path.isprintable():
            raise InvalidInputError(f"the file name {path!r} cannot be sent", "rename it, or name it in .pondignore")
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignore and (entry.name in _NEVER or _ignored(path, is_folder, rules)):
            continue
        if why := why_too_deep(path):
            raise InvalidInputError(why, "move it up, or name it in .pondignore")
        if is_folder:
            yield from _walk(Path(entry.path), f"{path}/", rules, ignore)
        else:
            yield entry, path


def _rules(file: Path) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(file.read_text(encoding="utf-8", errors="replace").splitlines())
    except ValueError as error:
        raise InvalidInputError(f"{file} has a pattern that cannot be read ({error})", "correct it") from error


def _ignored(path: str, is_folder: bool, rules: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """The last rule that says anything counts: the deepest folder's, there ``.pondignore`` before ``.gitignore``."""
    for below, spec in reversed(rules):
        decided = spec.check_file(path[len(below) :] + ("/" if is_folder else "")).include
        if decided is not None:
            return decided
    return False


def _link(root: Path, path: str) -> LinkEntry:
    """A link within the folder, by the shortest way; one that leads out would mean something else elsewhere."""
    link = root / path
    place = link.parent
    target = os.path.normpath(place / link.readlink())
    inside = Path(target).is_relative_to(root) and Path(os.path.realpath(link)).is_relative_to(root)
    way = os.path.relpath(target, place)
    if not inside or not link_stays_inside(path, way):
        raise InvalidInputError(
            f"the link {path} leads out of the folder, to {link.readlink()}",
            "replace it by what it means, or name it in .pondignore",
        )
    return LinkEntry(path=path, target=way)


def _check_size(folder: Path, found: _Found, largest: int) -> None:
    total = sum(size for _, _, size, _ in found.files)
    if total > largest:
        top = sorted(found.files, key=lambda file: -file[2])[:_NAMED]
        named = ", ".join(f"{path} ({_mib(size)})" for path, _, size, _ in top)
        raise InvalidInputError(
            f"{folder} has {_mib(total)}, more than the {_mib(largest)} that can be sent; the largest files: {named}",
            "name them in .pondignore, or put them in a dataset with `pond data put`",
        )
    if len(found.files) + len(found.links) > MOST_FILES:
        raise InvalidInputError(
            f"{folder} has more than {MOST_FILES} files", "name folders that are not needed in .pondignore"
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _hashed(path: Path) -> tuple[str, int]:
    """Digest and size of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
