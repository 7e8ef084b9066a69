"""What a node may hold that costs time to fetch: images, data sets, models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millpond.model.errors import InvalidInputError

MOST_CONTENTS: Final = 2_000
"""So many of what a node reports are counted, the first ones."""


@dataclass(frozen=True, slots=True)
class Content:
    """Something that a node holds, or that a job needs on its nodes.

    Attributes:
        name: what it is, the same wherever it is: ``image:REFERENCE@sha256:...``, ``data:NAME@3``.
        bytes: its size; 0 where it is not known: then as large as the largest that any node holds under the name.
    """

    name: str
    bytes: int = 0

    def __post_init__(self) -> None:
        if not self.name or self.bytes < 0:
            raise InvalidInputError(
                f"content {self.name!r} of {self.bytes} bytes", "give it a name, and a size of 0 (unknown) or more"
            )
