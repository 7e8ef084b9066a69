"""What a sent folder is: its snapshot, a list of paths and content hashes, itself named by the hash of its text.

Two folders with the same content have the same snapshot. Contents (blobs) are named by their
SHA-256, in hexadecimal. Client and server share the rules for paths, so that what one sends the other takes.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Final

from pydantic import ConfigDict, Field, ValidationError

from millpond.model.errors import InvalidInputError
from millpond.model.folders import LONGEST_PATH, is_inside, link_stays_inside
from millpond.specs.api.models import Body

DIGEST_PATTERN: Final = r"^[0-9a-f]{64}$"
MOST_FILES: Final = 100_000
LARGEST_SNAPSHOT_TEXT: Final = 64 * 2**20

Digest = Annotated[str, Field(pattern=DIGEST_PATTERN)]

_DIGEST: Final = re.compile(DIGEST_PATTERN)


class _Entry(Body):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FileEntry(_Entry):
    """A file; ``path`` is relative to the folder, with slashes, ``size`` in bytes."""

    path: Annotated[str, Field(max_length=LONGEST_PATH)]
    digest: Digest
    size: Annotated[int, Field(ge=0)]
    executable: bool = False


class LinkEntry(_Entry):
    """A symbolic link to something else in the folder; ``target`` is relative to where the link lies."""

    path: Annotated[str, Field(max_length=LONGEST_PATH)]
    target: Annotated[str, Field(max_length=LONGEST_PATH)]


class FolderSnapshot(_Entry):
    """A folder at one moment. Folders without a file in them are not kept."""

    files: tuple[FileEntry, ...] = Field(default=(), max_length=MOST_FILES)
    links: tuple[LinkEntry, ...] = Field(default=(), max_length=MOST_FILES)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def encoded(self) -> bytes:
        """The text by whose hash it is named: the same for the same content, in whatever order it was found."""
        plain = {
            "files": sorted((entry.model_dump() for entry in self.files), key=lambda entry: entry["path"]),
            "links": sorted((entry.model_dump() for entry in self.links), key=lambda entry: entry["path"]),
        }
        return json.dumps(plain, separators=(",", ":"), sort_keys=True).encode()


def is_digest(text: str) -> bool:
    """Whether a text is the name of a content."""
    return _DIGEST.fullmatch(text) is not None


def read_snapshot(data: bytes) -> FolderSnapshot:
    """A snapshot from its text, every path checked.

    Raises:
        InvalidInputError: it is no snapshot, or a path or link in it leads out of the folder.
    """
    try:
        snapshot = FolderSnapshot.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"that is not a snapshot ({where}: {first['msg']})", "send the folder again") from error
    _check_paths(snapshot)
    return snapshot


def _check_paths(snapshot: FolderSnapshot) -> None:
    links = {entry.path for entry in snapshot.links}
    files = {entry.path for entry in snapshot.files}
    if len(links) + len(files) < len(snapshot.links) + len(snapshot.files) or links & files:
        raise InvalidInputError("a path comes twice in the snapshot", "send the folder again")
    leaves = links | files
    for path in leaves:
        if not is_inside(path):
            raise InvalidInputError(f"the path {path!r} leads out of the folder", "send a folder's own files only")
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in leaves:
                raise InvalidInputError(f"{path!r} lies below {above!r}, which is no folder", "send the folder again")
    for entry in snapshot.links:
        if not link_stays_inside(entry.path, entry.target):
            raise InvalidInputError(
                f"the link {entry.path!r} leads out of the folder, to {entry.target!r}", "replace it by what it means"
            )
