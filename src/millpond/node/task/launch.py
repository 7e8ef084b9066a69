"""How a job's tasks are launched: the part of a job that the scheduler need not know."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from millpond.model.errors import InvalidInputError
from millpond.model.sharing import DEFAULT_SLICE_RULES, ShareClass, SliceRules
from millpond.node.containers.container_launch import ContainerLaunch
from millpond.node.host.controllers import Amounts
from millpond.node.host.identities import MachineAccount, SharedAccount
from millpond.node.task.workspace import Workspace

Command: TypeAlias = tuple[str, ...] | str
"""A program with its arguments, or a line for ``/bin/sh``."""
SHELL_LINE: Final = ["/bin/sh", "-c"]
"""How a line is executed."""

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_IN_CONTAINERS = ("TZ", "PYTHONUNBUFFERED")
_UNHEARD = ("SIGKILL", "SIGSTOP")


class ListenMode(Enum):
    """Where a task's program listens."""

    PORT = "port"
    """On a port of the network that it is in."""
    SOCKET = "socket"
    """On a Unix socket in a folder of its own."""


LONGEST_SHUTDOWN_GRACE_S: Final = 300.0
"""Seconds that a task may have at the most when its machine shuts down, whatever its job asks for."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How a job's tasks are launched.

    Attributes:
        command: what every task runs, unless its role has a command of its own.
        workdir: absolute; where it runs, unless it was sent (``workspace.snapshot``).
        env: variables of the job; those that Millpond sets itself win.
        checkpoint_signal: the signal that asks the program to save its work, such as ``SIGUSR1``; empty means a plain
            SIGTERM, after which nothing counts as saved.
        grace_s: seconds between notice and the end by force.
        role_commands: commands by role, for jobs whose roles differ.
        workspace: files to lay out for each attempt; None: none, not even a place for output.
        serves: each task gets a place to listen on.
        listening: which kind of place that is.
        private_network: its gang has a network of its own, not the machine's.
        role_amounts: by role, what its tasks are kept to.
        said_memory: roles that named their memory and use no cards.
        is_alone: its job has one task, and never more.
        own_shared_memory: its one task names its memory, and in a sandbox has a ``/dev/shm`` of its own.
        identity: whom they run as; None: as the server does.
        account: what its user gets of the server's account; None: all of it, or an account of their own (``identity``).
        container: what its tasks run in; None: the machine's own environment.
        share_class: who goes first where it shares a device.
        slice_rules: how its tasks are held to their parts of devices.
        swappable: its job says that it leaves its devices by swap, so nothing may come about that keeps it from that.
        reads_input: its task is given a client's standard input.
        keep_s: the place of a task whose program has failed is kept this long for a look inside; 0: it is not. Takes a
            workspace.
    """

    command: Command
    workdir: Path
    env: Mapping[str, str] = field(default_factory=dict)
    checkpoint_signal: str = ""
    grace_s: float = 30.0
    role_commands: Mapping[str, Command] = field(default_factory=dict)
    workspace: Workspace | None = None
    serves: bool = False
    listening: ListenMode = ListenMode.PORT
    private_network: bool = False
    role_amounts: Mapping[str, Amounts] = field(default_factory=dict)
    said_memory: frozenset[str] = frozenset()
    is_alone: bool = False
    own_shared_memory: bool = False
    identity: MachineAccount | None = None
    account: SharedAccount | None = None
    container: ContainerLaunch | None = None
    share_class: ShareClass = ShareClass.NORMAL
    slice_rules: SliceRules = DEFAULT_SLICE_RULES
    swappable: bool = False
    reads_input: bool = False
    keep_s: float = 0.0

    def __post_init__(self) -> None:
        for command in (self.command, *self.role_commands.values()):
            if not command:
                raise InvalidInputError("an empty command", "name the program to run")
        if not self.workdir.is_absolute():
            raise InvalidInputError(f"the working directory {str(self.workdir)!r} is relative", "give the whole path")
        name = self.checkpoint_signal
        if name and (name not in signal.Signals.__members__ or name in _UNHEARD):
            raise InvalidInputError(
                f"{name!r} is no signal that a program can handle", "use one such as SIGTERM, SIGINT or SIGUSR1"
            )

    @property
    def notice_signal(self) -> str:
        """The signal that asks a task to end."""
        return self.checkpoint_signal or "SIGTERM"

    @property
    def shutdown_grace_s(self) -> float:
        """The grace of a task that is asked to end from outside, as when the machine shuts down."""
        return min(self.grace_s, LONGEST_SHUTDOWN_GRACE_S)

    @property
    def home(self) -> Path | None:
        """The home of its user, where that is not the account's."""
        own = self.identity or self.account
        return None if own is None else Path(own.home)

    @property
    def inherited(self) -> dict[str, str]:
        """What its tasks inherit of the server's environment, with whom they run as."""
        base, own = base_environment(), self.identity or self.account
        if self.container is not None:
            # The places that these name are not those of the image, and the image may not know the language.
            base = {name: value for name, value in base.items() if name in _IN_CONTAINERS}
        return base if own is None else base | own.environment

    def amounts_of(self, role: str) -> Amounts:
        """What a role's tasks are kept to; nothing where it does not say."""
        return self.role_amounts.get(role, Amounts(0, 0))

    def argv_of(self, role: str) -> list[str]:
        """Program and arguments of a role's tasks."""
        command = self.role_commands.get(role, self.command)
        return [*SHELL_LINE, command] if isinstance(command, str) else list(command)


def heeding(argv: Sequence[str], notice_signal: str) -> list[str]:
    """``argv`` so that its program has its grace after the notice: of a line for the shell, the shell waits for what
    it runs, and ends as that did.

    Else it would die of a notice that it does not know, which ends its sandbox, and counts as work that was not saved.
    Its own ``trap`` in the line takes the place of this one.
    """
    if list(argv[:2]) != SHELL_LINE:
        return list(argv)
    number = int(signal.Signals[notice_signal])
    return [*SHELL_LINE, f"trap 'millpond_ended=$?; wait; exit $millpond_ended' {number}; {argv[2]}"]


_IS_SHELL: Final = re.compile(r"(?:.*/)?(?:(?:ba|da|k|z)?sh|[^/]+\.sh)", re.DOTALL)
_GRACE_SCRIPT: Final = """\
told=
trap : TERM INT HUP QUIT USR1 USR2
trap told=1 {notice}
others() {{
    for stat in /proc/[0-9]*/stat; do
        case $stat in /proc/1/*|/proc/$$/*|/proc/$PPID/*) continue ;; esac
        {{ read -r line <"$stat"; }} 2>/dev/null || continue
        set -- ${{line##*) }}
        [ "$1" != Z ] && [ "$3" = "$group" ] && return 0
    done
    return 1
}}
"$@"
code=$?
[ -n "$told" ] || exit "$code"
read -r line </proc/$$/stat && set -- ${{line##*) }} && group=$3
while others && sleep 0.1; do :; done
exit "$code"
"""
"""Of a process's ``stat``, behind its name: state, parent, group. The group is 0 where its leader is outside."""


def with_grace_below(argv: Sequence[str], notice_signal: str) -> list[str]:
    """The command that ends as ``argv`` does, after a notice not before the rest of its process group; of a program
    that is no shell by its name, ``argv`` itself.

    A sandbox and a container end with their first program, and the notice goes to the whole process group. A shell that
    has no ``trap`` for it dies of it at once, and what it runs would be killed, whose handler has just been called. So
    the first program there is a small shell that runs the command, and after the notice stays until nothing is left in
    its process group, as the supervisor waits for the rest of a task outside a sandbox. Its exit code is the command's.

    Args:
        notice_signal: name of the signal that asks ``argv`` to end.
    """
    if not _IS_SHELL.fullmatch(argv[0]):
        return list(argv)
    return ["/bin/sh", "-c", _GRACE_SCRIPT.format(notice=int(signal.Signals[notice_signal])), "sh", *argv]


def base_environment() -> dict[str, str]:
    """What tasks inherit of the server's environment: where programs lie and how to speak, none of its secrets.

    Python's output is unbuffered by default, so that a log can be followed.
    """
    kept = {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith("LC_")}
    return {"PYTHONUNBUFFERED": "1", **kept}
