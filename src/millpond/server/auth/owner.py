"""Whoever can read the state directory owns the server: a token lies there, and it makes its bearer an admin.

That is how one person on one machine needs no login: `pond` finds the token by itself.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError

TOKEN_FILE: Final = "token"


def token_in(state_dir: Path) -> str:
    """The state directory's token; made by chance when there is none. Readable by its owner alone.

    Raises:
        UnavailableError: it cannot be read or written.
    """
    path = state_dir / TOKEN_FILE
    try:
        if path.exists():
            token = path.read_text(encoding="ascii").strip()
            if token:
                return token
        token = secrets.token_urlsafe(32)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{token}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"cannot use {path} ({error})", "remove it, or choose another state directory"
        ) from error
    return token


def owner_name() -> str:
    """The name of this process's user, in the letters that account names have."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        name = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64] or "owner"
