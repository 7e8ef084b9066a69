"""The server as a service of systemd: what its units say, and where they belong.

There are two. The server's own group cannot be the one that is divided among tasks: see ``node.host.cgroups``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from millpond.model.errors import ConflictError, UnavailableError
from millpond.node.host.controllers import TASKS_UNIT
from millpond.node.task import shutdown_hook
from millpond.node.task.launch import LONGEST_SHUTDOWN_GRACE_S
from millpond.specs.base_directories import config_home

UNIT: Final = "millpond.service"

BOOTED_MARK: Final = Path("/run/systemd/system")
"""Is there where systemd runs the machine (sd_booted(3))."""

_LONGEST_STOP_S: Final = round(LONGEST_SHUTDOWN_GRACE_S) + 15
"""What is left after the longest grace is for killing those who do not heed it, and for writing how they ended."""

_TEXT: Final = """\
[Unit]
Description=Millpond, a pool of GPU machines
Wants={tasks}
After=network.target {tasks}
RequiresMountsFor={state}

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
LimitNOFILE=65536
# With control groups of version 1 the supervisors of all tasks count here.
TasksMax=infinity
UMask=0077

[Install]
WantedBy={target}
"""

_TASKS_TEXT: Final = """\
[Unit]
Description=The control group of Millpond's tasks
# It comes with the server and goes with the machine.
RefuseManualStop=yes
# Tasks save their work before these go.
After=network.target remote-fs.target
RequiresMountsFor={state}

[Service]
Type=exec
# Keeps the group while no task runs; the server makes one for each task in it.
ExecStart=sleep infinity
# When the machine goes down, tasks hear of it first, and have their time to save their work.
ExecStop={notify}
TimeoutStopSec={longest}
KillMode=process
Delegate=cpu memory pids
# Each task has a bound of its own.
TasksMax=infinity
"""


def unit_texts(arguments: Sequence[str], state_dir: Path, *, for_user: bool) -> dict[str, str]:
    """By name, the units that run a server with these arguments by this very installation.

    Args:
        state_dir: of that server; both wait for the file system there.
        for_user: for the user's own service manager instead of the machine's.
    """
    command = _command("-m", "millpond.server", *arguments)
    state = _quoted(state_dir)
    target = "default.target" if for_user else "multi-user.target"
    return {
        TASKS_UNIT: _TASKS_TEXT.format(
            notify=_command("-s", "-m", shutdown_hook.__name__), longest=_LONGEST_STOP_S, state=state
        ),
        UNIT: _TEXT.format(command=command, target=target, tasks=TASKS_UNIT, state=state),
    }


def _command(*arguments: str) -> str:
    return shlex.join([sys.executable, "-P", *arguments]).replace("%", "%%").replace("$", "$$")


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def require_systemd(mark: Path = BOOTED_MARK) -> None:
    """A unit helps only where systemd looks after the machine.

    Raises:
        UnavailableError: it does not.
    """
    if not mark.is_dir():
        raise UnavailableError(
            "systemd does not look after this machine, so units would start nothing",
            "use --print to see the units; let what starts programs here run `pond up`",
        )


def unit_folder(*, for_user: bool) -> Path:
    """Where units belong."""
    if not for_user:
        return Path("/etc/systemd/system")
    return config_home() / "systemd" / "user"


def write_units(folder: Path, texts: Mapping[str, str], *, replace: bool) -> None:
    """Put units in their place: all of them or none.

    Raises:
        ConflictError: one that says something else is there.
        UnavailableError: they cannot be written.
    """
    paths = {folder / name: text for name, text in texts.items()}
    try:
        for path, text in paths.items():
            if path.exists() and not replace and path.read_text() != text:
                raise ConflictError(f"{path} exists and says something else", "look at it, then use --replace")
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text)
    except OSError as error:
        raise UnavailableError(
            f"units cannot be written to {folder} ({error.strerror})",
            "run it as root, or use --user for your own services",
        ) from error
