"""What the gateway needs before there is a server to speak for: its socket, and the key by which clients know it.

The key is made once and kept in the state directory.
"""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.server.http.listener import listen
from millpond.server.state_dir import make_once
from millpond.specs.api.accounts.ssh import HOST_KEY_ALIAS, PublicKey, SshInfo
from millpond.specs.config.listen import SshFile

HOST_KEY_FILE: Final = "ssh_host_ed25519_key"


@dataclass(frozen=True, slots=True)
class HostKey:
    """Both halves: ``private`` in OpenSSH's format, ``public`` as a line."""

    public: str
    private: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SshListener:
    """A socket on which no gateway answers yet."""

    listener: socket.socket
    host_key: HostKey
    info: SshInfo


def require_asyncssh() -> None:
    """Check that the library behind the gateway is there.

    Raises:
        UnavailableError: it is not installed.
    """
    if importlib.util.find_spec("asyncssh") is None:
        remedy = "pip install 'millpond[ssh]', or take the section ssh out of the configuration"
        raise UnavailableError("the configuration has a section ssh, and asyncssh is not installed", remedy)


def open_listener(rules: SshFile, state_dir: Path) -> SshListener:
    """Listen, with the key by which clients know this server.

    Raises:
        UnavailableError: the port or the key cannot be used, or the extra ``ssh`` is not installed.
    """
    require_asyncssh()
    host_key = host_key_in(state_dir)
    listener = listen(rules.host, rules.port, "ssh in the configuration")
    name = f"{HOST_KEY_ALIAS}-{PublicKey.parse(host_key.public).id[:8]}"
    port = listener.getsockname()[1]
    return SshListener(listener, host_key, SshInfo(host=rules.host, port=port, host_key=host_key.public, name=name))


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
            make_once(path, private)
        if path.stat().st_mode & 0o077:
            raise UnavailableError(f"others may read the host key {path}", f"chmod 600 {path}")
        text = path.read_bytes()
        key = forms.load_ssh_private_key(text, None)
        public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"cannot use the host key {path} ({error})", "remove it; clients will notice") from error
    return HostKey(public.decode(), text.decode())
