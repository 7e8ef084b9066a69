"""The first login from elsewhere: an invitation for the owner of the server, printed when it starts.

There is one as long as the server listens beyond its own machine and nobody has a password. The file it lies in is
readable by the owner alone; logs name the file, only a terminal sees what is in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.server.auth.components import Security
from millpond.server.auth.records import TokenKind
from millpond.specs.api.server import FIRST_LOGIN_FILE

_NAME: Final = "the first login"


def prepare_first_login(security: Security, owner: str, state_dir: Path, is_reached: bool) -> Path | None:
    """The file with a fresh invitation for the owner; None, and no such file, where none is needed.

    Args:
        is_reached: whether people reach the server from other machines.

    Raises:
        UnavailableError: the file cannot be written.
    """
    accounts, path = security.accounts, state_dir / FIRST_LOGIN_FILE
    earlier = [token for token in accounts.tokens.all() if token.kind is TokenKind.INVITATION and token.user == owner]
    accounts.tokens.revoke(*(token for token in earlier if token.name == _NAME))
    try:
        path.unlink(missing_ok=True)
        if not is_reached or any(user.password for user in accounts.users()):
            return None
        _, secret = security.logins.invite(owner, _NAME)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise UnavailableError(f"cannot write {path} ({error.strerror})", "choose another state directory") from error
    return path
