"""What a Containerfile builds upon. Source: containerfile(5), FROM, COPY --from, RUN --mount=from."""

from __future__ import annotations

import re
from typing import Final

from millpond.model.errors import InvalidInputError
from millpond.specs.images import is_reference

_FROM: Final = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)
_COPIED: Final = re.compile(r"--from=(\S+)", re.IGNORECASE)
_MOUNTED: Final = re.compile(r"--mount=\S*\bfrom=([^,\s]+)", re.IGNORECASE)
_NOTHING: Final = "scratch"


def bases_of(text: str) -> list[str]:
    """The images that a Containerfile builds upon or copies from.

    Raises:
        InvalidInputError: what it builds upon is not written out, so that nobody could say whether that is allowed.
    """
    joined = re.sub(r"\\\s*\n", " ", text)
    stages = {_NOTHING}
    found: list[str] = []
    for base, stage in _FROM.findall(joined):
        found.append(base)
        if stage:
            stages.add(stage.lower())
    found += _COPIED.findall(joined) + _MOUNTED.findall(joined)
    bases = [base for base in dict.fromkeys(found) if base.lower() not in stages and not base.isdecimal()]
    for base in bases:
        if not is_reference(base):
            raise InvalidInputError(f"the build uses {base!r}, which is no plain reference", "write the image out")
    return bases
