"""What does not exist: one wording, so that what a user may not see reads exactly like what does not exist."""

from __future__ import annotations

from typing import Final

from millpond.model.errors import NotFoundError

_LONGEST_SHOWN: Final = 120
_LISTED_BY: Final = {
    "job": "list the jobs with `pond ps --all`",
    "user": "list them with `pond user ls`",
    "group": "list them with `pond group ls`",
    "token": "list them with `pond token ls`",
    "key": "list them with `pond ssh-key ls`",
    "secret": "list them with `pond secret ls`",
    "image": "list them with `pond image ls`",
}


def absent(kind: str, name: str) -> NotFoundError:
    """The error for an object that does not exist, or that the caller may not see."""
    shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
    return NotFoundError(f"no {kind} {shown!r}", _LISTED_BY[kind])
