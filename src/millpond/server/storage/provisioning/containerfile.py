"""The base images of a Containerfile. Source: containerfile(5), FROM, COPY --from, RUN --mount=from."""

from __future__ import annotations

import re
from typing import Final

from millpond.model.errors import InvalidInputError
from millpond.specs.job.images import is_reference

_FROM: Final = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)
_COPIED: Final = re.compile(r"--from=(\S+)", re.IGNORECASE)
_MOUNTED: Final = re.compile(r"--mount=\S*\bfrom=([^,\s]+)", re.IGNORECASE)
_MOUNTED_FIRST: Final = re.compile(r"--mount=\S*?\bfrom=([^,\s]+)", re.IGNORECASE)
_OPTIONS: Final = re.compile(
    r"^\s*(?:ONBUILD\s+)*(?:ADD|COPY|FROM|RUN)\s+((?:--\S+\s+)+)", re.IGNORECASE | re.MULTILINE
)
_COMMENT: Final = re.compile(r"^[^\S\n]*#.*\n?", re.MULTILINE)
_CONTINUED: Final = re.compile(r"\\\s*\n")
_NOT_IN_NAMES: Final = str.maketrans("", "", "\\\"'")
_STAGE: Final = re.compile(r"[a-z][a-z0-9_.-]*", re.IGNORECASE)
_OTHER_ESCAPE: Final = re.compile(r"^\s*#\s*escape\s*=\s*[^\\\s]", re.IGNORECASE | re.MULTILINE)
_OTHER_SYNTAX: Final = re.compile(
    r"^[^\w\n]*syntax[^\w\n]*[=:](?!\s*docker/dockerfile(?::[\w.-]+)?\s*$)", re.IGNORECASE | re.MULTILINE
)
_NOTHING: Final = "scratch"


def bases_of(text: str) -> list[str]:
    """The images that a Containerfile builds upon or copies from.

    Raises:
        InvalidInputError: what it builds upon is not written out, so that it cannot be checked.
    """
    text = text.removeprefix("\ufeff")
    if _OTHER_ESCAPE.search(text):
        raise InvalidInputError("the build has an escape character of its own", "continue lines with \\")
    if _OTHER_SYNTAX.search(text):  # a program of somebody's that reads the file
        raise InvalidInputError("the build has a syntax of its own", "leave `# syntax=` out")
    plain = _plain(text)
    _check_options(plain)
    kinds = (_FROM, _COPIED, _MOUNTED_FIRST, _MOUNTED)
    found = sorted((used for kind in kinds for used in kind.finditer(plain)), key=re.Match.start)
    stages: list[str] = []
    bases: dict[str, None] = {}
    for used in found:
        base = used[1]
        known = base in stages or base == _NOTHING or (base.isdecimal() and int(base) < len(stages))
        if not known:  # a stage that comes later is none yet: a runtime looks for an image then
            bases[base] = None
        if used.re is _FROM:
            stages.append(used[2] if used[2] and _STAGE.fullmatch(used[2]) else "")
    for base in bases:
        if not is_reference(base):
            raise InvalidInputError(f"the build uses {base!r}, which is no plain reference", "write the image out")
    return list(bases)


def _plain(text: str) -> str:
    """The text as a runtime reads it.

    Comments are no lines, so that they neither continue nor end one. Nothing stands between the parts of a continued
    line: even a word may be in two. Quotation marks and escapes may stand within a word and are not of it.
    """
    return _CONTINUED.sub("", _COMMENT.sub("", text)).translate(_NOT_IN_NAMES)


def _check_options(plain: str) -> None:
    """Refuse options that name what they are by variables, which runtimes put in.

    Raises:
        InvalidInputError: there is one.
    """
    for options in _OPTIONS.finditer(plain):
        for option in options[1].split():
            name, _, value = option.partition("=")
            if "$" in name or ("$" in value and name.lower() == "--mount"):
                raise InvalidInputError(f"the build has the option {option!r}", "write it out, without variables")
