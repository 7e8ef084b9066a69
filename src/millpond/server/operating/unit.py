"""The server as a service of systemd: what the unit says, and where it belongs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from millpond.model.errors import ConflictError, UnavailableError

UNIT: Final = "millpond.service"

_TEXT: Final = """\
[Unit]
Description=Millpond, a pool of GPU machines
After=network.target

[Service]
Type=exec
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
# Jobs outlive the server: only the server's own process is ended with the unit.
KillMode=process
Restart=on-failure
RestartSec=2
# A server that cannot start (a port in use, a wrong configuration) is not tried again and again.
RestartPreventExitStatus=2
# Each task gets a control group of its own below the unit's; the server itself lives beside them.
Delegate=cpu memory pids
DelegateSubgroup=server
LimitNOFILE=65536
UMask=0077

[Install]
WantedBy={target}
"""


def unit_text(arguments: Sequence[str], *, for_user: bool) -> str:
    """The unit that runs a server with these arguments by this very installation.

    Args:
        for_user: for the user's own service manager instead of the machine's.
    """
    command = shlex.join([sys.executable, "-P", "-m", "millpond.server", *arguments]).replace("%", "%%")
    return _TEXT.format(command=command, target="default.target" if for_user else "multi-user.target")


def unit_path(*, for_user: bool) -> Path:
    """Where the unit belongs."""
    if not for_user:
        return Path("/etc/systemd/system") / UNIT
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user" / UNIT


def write_unit(path: Path, text: str, *, replace: bool) -> None:
    """Put a unit in its place.

    Raises:
        ConflictError: another one is there.
        UnavailableError: it cannot be written.
    """
    try:
        if path.exists() and not replace and path.read_text() != text:
            raise ConflictError(f"{path} exists and says something else", "look at it, then use --replace")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written ({error.strerror})", "run it as root, or use --user for your own services"
        ) from error
