"""Secrets that a configuration names by the file they lie in, so that it can itself be shown around."""

from __future__ import annotations

from pathlib import Path as FilePath

from millpond.specs.errors import Problem
from millpond.specs.source_positions import Located, Path


def secret_in(file: str | None, located: Located, at: Path, problems: list[Problem]) -> str:
    """The secret in a file; empty where none is named.

    Args:
        at: where the configuration names it.
        problems: gets what is wrong with it; the secret is then empty.
    """
    if file is None:
        return ""
    try:
        secret = FilePath(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"the secret in {file} cannot be read ({getattr(error, 'strerror', 'no text')})"
        problems.append(located.problem(at, message, "name a file that the server's account may read"))
        return ""
    if not secret:
        problems.append(located.problem(at, f"{file} is empty", "write the secret into it, or leave this out"))
    return secret
