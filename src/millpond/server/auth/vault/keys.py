"""Sources of keys: a file that only its owner can read, or a passphrase.

A passphrase is stretched by scrypt (RFC 7914) with 128 MiB of memory; the parameters are written down beside what it
locks, so that they can be raised later.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.server.state_dir import make_once

KEY_BYTES: Final = 32
SHORTEST_PASSPHRASE: Final = 12
_SALT_BYTES: Final = 16
_SCRYPT: Final = {"n": 2**17, "r": 8, "p": 1}
_MOST_MEMORY: Final = 2**30
_LONGEST_FILE: Final = 4_096


@dataclass(frozen=True, slots=True)
class KeySource:
    """What a key is made from; one of the two.

    Attributes:
        file: content of a key file.
    """

    file: bytes = b""
    passphrase: str = ""

    @property
    def kind(self) -> str:
        """``file`` or ``passphrase``."""
        return "file" if self.file else "passphrase"

    def fresh(self, scrypt: Mapping[str, int] = _SCRYPT) -> dict[str, Any]:
        """How a new key is to be derived; to be written down."""
        how: dict[str, Any] = {"from": self.kind, "salt": secrets.token_hex(_SALT_BYTES)}
        return how if self.file else {**how, **scrypt}

    def derive(self, how: Mapping[str, Any]) -> bytes:
        """The key, as it was written down how.

        Raises:
            InvalidInputError: it is made from the other kind, or what was written down makes no sense.
        """
        if how.get("from") != self.kind:
            needed = "a key file (--key-file)" if how.get("from") == "file" else "a passphrase"
            raise InvalidInputError("it was encrypted with another kind of key", f"use {needed}")
        try:
            salt = bytes.fromhex(how["salt"])
            if self.file:
                return hmac.new(salt, self.file, hashlib.sha256).digest()
            n, r, p = (int(how[name]) for name in ("n", "r", "p"))
            if 128 * n * r > _MOST_MEMORY or p > 16:
                raise ValueError("too costly")
            most = 128 * r * (n + p + 2)
            return hashlib.scrypt(self.passphrase.encode(), salt=salt, n=n, r=r, p=p, maxmem=most, dklen=KEY_BYTES)
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidInputError(f"how its key is made cannot be read ({error})", "use another backup") from error


def key_in(path: Path, otherwise: str = "") -> bytes:
    """The content of a key file.

    Args:
        otherwise: what to do where it is no key; empty: make one.

    Raises:
        UnavailableError: it cannot be read.
        InvalidInputError: others may read it, or it is no key.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise UnavailableError(f"the key file {path} cannot be read ({error.strerror})", "name another") from error
    if mode & 0o077:
        raise InvalidInputError(f"others may read the key file {path}", f"chmod 600 {path}")
    if not KEY_BYTES <= len(content) <= _LONGEST_FILE or not content.strip(b"\0"):
        raise InvalidInputError(
            f"{path} holds {len(content)} bytes, which is no key",
            otherwise or f"head -c {KEY_BYTES} /dev/urandom > {path}",
        )
    return content


def own_key(path: Path) -> bytes:
    """The key in a file of the server's own, which is made by chance where there is none.

    Raises:
        UnavailableError: it cannot be read or written.
        InvalidInputError: it is no key, or others may read it.
    """
    try:
        if not path.exists():
            make_once(path, secrets.token_bytes(KEY_BYTES))
    except OSError as error:
        raise UnavailableError(f"the key {path} cannot be made ({error.strerror})", "see to that directory") from error
    return key_in(path, f"put the {path.name} of a backup there; if there is none, remove it and set all secrets again")


def check_passphrase(text: str) -> str:
    """A passphrase for something new.

    Raises:
        InvalidInputError: it is too short.
    """
    if len(text) < SHORTEST_PASSPHRASE:
        raise InvalidInputError(f"a passphrase of {len(text)} characters", f"use at least {SHORTEST_PASSPHRASE}")
    return text
