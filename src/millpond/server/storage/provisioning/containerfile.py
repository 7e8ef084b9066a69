"""The base images of a Containerfile. Source: containerfile(5), FROM, COPY --from, RUN --mount=from."""

from __future__ import annotations

import re
from typing import Final

from millpond.model.errors import InvalidInputError
from millpond.specs.job.images import is_reference

_FROM: Final = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)
_COPIED: Final = re.compile(r"--from=(\S+)", re.IGNORECASE)
_MOUNTED: Final = re.compile(r"--mount=\S*\bfrom=([^,\s]+)", re.IGNORECASE)
_CONTINUED: Final = re.compile(r"\\\s*\n")
_OTHER_ESCAPE: Final = re.compile(r"^\s*#\s*escape\s*=\s*[^\\\s]", re.IGNORECASE | re.MULTILINE)
_NOTHING: Final = "scratch"


def bases_of(text: str) -> list[str]:
    """The images that a Containerfile builds upon or copies from.

    Raises:
        InvalidInputError: what it builds upon is not written out, so that it cannot be checked.
    """
    if _OTHER_ESCAPE.search(text):
        raise InvalidInputError("the build has an escape character of its own", "continue lines with \\")
    joined = _CONTINUED.sub("", text)  # nothing stands between the parts: even a word may be in two
    found = sorted((used for kind in (_FROM, _COPIED, _MOUNTED) for used in kind.finditer(joined)), key=re.Match.start)
    stages: list[str] = []
    bases: dict[str, None] = {}
    for used in found:
        base = used[1]
        known = base in stages or base == _NOTHING or (base.isdecimal() and int(base) < len(stages))
        if not known:  # a stage that comes later is none yet: a runtime looks for an image then
            bases[base] = None
        if used.re is _FROM:
            stages.append(used[2] or "")
    for base in bases:
        if not is_reference(base):
            raise InvalidInputError(f"the build uses {base!r}, which is no plain reference", "write the image out")
    return list(bases)
