"""Logins that were kept: a token for each server, and which of the servers is meant when none is named.

The file lies in the user's configuration directory and is readable by its owner alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.model.errors import UnavailableError
from millpond.specs.base_directories import config_home

FILE_NAME = "logins.json"


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """A kept login.

    Attributes:
        authority: file with the certificates that may vouch for the server; empty: those that the system trusts.
    """

    url: str
    user: str
    token: str
    authority: str = ""


def config_dir() -> Path:
    """Where this user's settings of Millpond lie."""
    return config_home() / "millpond"


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, for its owner alone, or leave what was there; its folder is made if need be.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text.encode(errors="surrogateescape"))  # what others wrote there need not be UTF-8
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def kept_login(url: str | None = None) -> StoredLogin | None:
    """The login at a server, or with none named the one made last; None when there is none.

    Raises:
        UnavailableError: the file is there and cannot be read.
    """
    plain = _read()
    address = plain["current"] if url is None else url.rstrip("/")
    found = plain["servers"].get(address)
    return None if found is None else StoredLogin(address, **found)


def keep_login(login: StoredLogin) -> Path:
    """Keep a login; from now on its server is meant when none is named. Returns the file it is in.

    Raises:
        UnavailableError: the file cannot be written.
    """
    with _changing() as plain:
        plain["servers"][login.url] = {"user": login.user, "token": login.token, "authority": login.authority}
        plain["current"] = login.url
    return config_dir() / FILE_NAME


def forget_login(url: str) -> None:
    """Forget the login at a server.

    Raises:
        UnavailableError: the file cannot be written.
    """
    with _changing() as plain:
        plain["servers"].pop(url, None)
        if plain["current"] == url:
            plain["current"] = ""


def _read() -> dict[str, Any]:
    path = config_dir() / FILE_NAME
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        servers = {
            url: {
                "user": str(login["user"]),
                "token": str(login["token"]),
                "authority": str(login.get("authority", "")),
            }
            for url, login in plain["servers"].items()
        }
        return {"current": str(plain["current"]), "servers": servers}
    except (FileNotFoundError, NotADirectoryError):
        return {"current": "", "servers": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(f"{path} cannot be read ({error})", "remove it, and log in again") from error


@contextlib.contextmanager
def _changing() -> Iterator[dict[str, Any]]:
    """What is kept, to be changed by one process at a time, and written at the end.

    Raises:
        UnavailableError: it cannot be read or written.
    """
    path = config_dir() / FILE_NAME
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            with contextlib.suppress(OSError):  # of folders that others serve not all can be locked
                fcntl.flock(folder, fcntl.LOCK_EX)
            plain = _read()
            yield plain
            write_private(path, json.dumps(plain, indent=2))
        except OSError as error:
            raise UnavailableError(f"{path} cannot be written ({error.strerror})", "set XDG_CONFIG_HOME") from error
