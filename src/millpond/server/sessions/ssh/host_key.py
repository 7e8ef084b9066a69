"""The key by which clients know the gateway again: made once, kept in the state directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError

HOST_KEY_FILE: Final = "ssh_host_ed25519_key"


@dataclass(frozen=True, slots=True)
class HostKey:
    """Both halves: ``private`` in OpenSSH's format, ``public`` as a line."""

    public: str
    private: str = field(repr=False)


def host_key_in(state_dir: Path) -> HostKey:
    """The host key; made by chance when there is none. Readable by its owner alone.

    Raises:
        UnavailableError: it cannot be read or written, or others may read it.
    """
    # Most servers have no gateway, and need not load it.
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = state_dir / HOST_KEY_FILE
    try:
        if not path.exists():
            private = Ed25519PrivateKey.generate().private_bytes(
                forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
            )
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(private)
        if path.stat().st_mode & 0o077:
            raise UnavailableError(f"others may read the host key {path}", f"chmod 600 {path}")
        text = path.read_bytes()
        key = forms.load_ssh_private_key(text, None)
        public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"cannot use the host key {path} ({error})", "remove it; clients will notice") from error
    return HostKey(public.decode(), text.decode())
