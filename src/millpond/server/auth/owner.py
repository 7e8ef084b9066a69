"""A user who can read the state directory owns the server: the token there makes its bearer an admin.

That is how one person on one machine needs no login: `pond` finds the token by itself. For a login from elsewhere the
server prints an invitation for the owner when it starts, as long as it listens beyond its own machine and no account
has a password. The file it lies in is readable by the owner alone; logs name the file, only a terminal shows its
content.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.server.auth.components import Security
from millpond.server.auth.records import TokenKind
from millpond.specs.api.server import FIRST_LOGIN_FILE

TOKEN_FILE: Final = "token"
_SHORTEST_TOKEN: Final = 16
_FIRST_LOGIN: Final = "the first login"


def token_in(state_dir: Path) -> str:
    """The state directory's token; made by chance when there is none. Readable by its owner alone.

    Raises:
        UnavailableError: it cannot be read or written.
    """
    path = state_dir / TOKEN_FILE
    try:
        if path.exists():
            token = path.read_text(encoding="ascii").strip()
            if len(token) >= _SHORTEST_TOKEN and token.isprintable():  # a power cut leaves fewer letters, or zeroes
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


def prepare_first_login(security: Security, owner: str, state_dir: Path, is_reached: bool) -> Path | None:
    """The file with a fresh invitation for the owner; None, and no such file, where none is needed.

    Args:
        is_reached: whether people reach the server from other machines.

    Raises:
        UnavailableError: the file cannot be written.
    """
    accounts, path = security.accounts, state_dir / FIRST_LOGIN_FILE
    earlier = [token for token in accounts.tokens.all() if token.kind is TokenKind.INVITATION and token.user == owner]
    accounts.tokens.revoke(*(token for token in earlier if token.name == _FIRST_LOGIN))
    try:
        path.unlink(missing_ok=True)
        if not is_reached or any(user.password for user in accounts.users()):
            return None
        _, secret = security.logins.invite(owner, _FIRST_LOGIN)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise UnavailableError(f"cannot write {path} ({error.strerror})", "choose another state directory") from error
    return path
