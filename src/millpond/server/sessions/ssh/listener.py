"""What the gateway needs before there is a server to speak for: its socket and its host key."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.server.http.server import listen
from millpond.server.sessions.ssh.host_key import HostKey, host_key_in
from millpond.specs.api.ssh import HOST_KEY_ALIAS, PublicKey, SshInfo
from millpond.specs.config.ssh_gateway import SshRules


@dataclass(frozen=True, slots=True)
class SshListener:
    """A socket on which no gateway answers yet."""

    listener: socket.socket
    host_key: HostKey
    info: SshInfo


def open_listener(rules: SshRules, state_dir: Path) -> SshListener:
    """Listen, with the key by which clients know this server.

    Raises:
        UnavailableError: the port or the key cannot be used, or the extra ``ssh`` is not installed.
    """
    if importlib.util.find_spec("asyncssh") is None:
        remedy = "pip install 'millpond[ssh]', or take the section ssh out of the configuration"
        raise UnavailableError("the configuration has a section ssh, and asyncssh is not installed", remedy)
    host_key = host_key_in(state_dir)
    listener = listen(rules.host, rules.port, "ssh in the configuration")
    name = f"{HOST_KEY_ALIAS}-{PublicKey.parse(host_key.public).id[:8]}"
    port = listener.getsockname()[1]
    return SshListener(listener, host_key, SshInfo(host=rules.host, port=port, host_key=host_key.public, name=name))
