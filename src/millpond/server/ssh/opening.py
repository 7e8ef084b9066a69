"""What the gateway needs before there is a server to speak for: its socket and its host key."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.server.http import listen
from millpond.server.ssh.gatekeeper import Gatekeeper
from millpond.server.ssh.host_key import HostKey, host_key_in
from millpond.server.ssh.keeper import Gateway
from millpond.specs.gateway import SshRules
from millpond.specs.ssh import HOST_KEY_ALIAS, PublicKey, SshInfo


@dataclass(frozen=True, slots=True)
class Doorway:
    """A place where people can knock; nobody answers yet."""

    listener: socket.socket
    host_key: HostKey
    info: SshInfo

    def gateway(self, gatekeeper: Gatekeeper, uid: int | None = None) -> Gateway:
        """Who will answer; ``uid`` as in ``Gateway``."""
        return Gateway(self.listener, self.host_key, gatekeeper, uid)


def open_doorway(rules: SshRules, state_dir: Path) -> Doorway:
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
    return Doorway(listener, host_key, SshInfo(host=rules.host, port=port, host_key=host_key.public, name=name))
